"""The Langevin (Ornstein-Uhlenbeck) demonstration: two weights whose exact law is known.

`population`: 1024 trajectories, each with its own (W, b). `posterior`: one true (W, b), five noisy trajectories.
`tempered` is the paper's treatment of the first data set: one w, with the averaged log-likelihood.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from langenode._types import PRNGKeyArray
from langenode.config import Config, Count, Section, TrainingConfig, merge
from langenode.experiments import figures as shared
from langenode.experiments import ou_score
from langenode.experiments.base import Drawing, Experiment, Results, Splits, chain, literal, sticking_chain
from langenode.models import MLP, NeuralODE, OnConcatenation, make_solver
from langenode.scores import metrics as metrics_of
from langenode.simulators import ou


class OUData(Section):
    """The generator; validation and test sets are new draws from the same distribution."""

    num_trajectories: int = Field(default=1024, ge=2)
    """training trajectories"""
    num_validation: Count = 256
    """validation trajectories"""
    num_test: int = Field(default=1024, ge=2)
    """test trajectories"""
    num_times: int = Field(default=100, ge=2)
    """times per trajectory, equally spaced in [0, 1]"""
    rate_std: float = Field(default=0.8, ge=0)
    """standard deviation of the rate W between trajectories"""
    level_std: float = Field(default=0.1, ge=0)
    """standard deviation of the level between trajectories"""
    noise: float = Field(default=0.0, ge=0)
    """standard deviation of the observation noise"""


class OUConfig(Config):
    """The OU demonstration's configuration."""

    experiment: str = "ou"
    data: OUData = OUData()


def defaults(method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Choices made by measurement (see docs/guide/ou.md) that differ from the general defaults."""
    del asked
    layers: dict[str, Any] = {
        "scaling": "none",  # the two weights are meaningful in the data's own units
        "model": {"layers": ()},
        "mle": {"num_adam": 200, "num_lbfgs": 30, "learning_rate": 0.3},
        "population": {"explained": 0.99999},
        "guided": {"num": 8192, "num_steps": 32},  # two weights need few steps, so many paths are cheap
        **chain(8),
    }
    if target == "posterior":
        one_truth = {"num_trajectories": 5, "rate_std": 0.0, "level_std": 0.0, "noise": 0.05}
        layers |= {
            "data": one_truth,
            "prior": {"mean": "zero", "scale": 10.0},
            "noise": {"kind": "given", "sigma": one_truth["noise"]},
            **sticking_chain(16),
        }
    if method == "paper":
        return merge(layers, literal(num_updates=200, num_samples=64, learning_rate=1e-2, block=5))
    return layers


def simulate(config: OUConfig, key: PRNGKeyArray) -> Splits:
    """Simulate three independent sets from the generator."""
    options = config.data
    parameters = ou.OUParameters(
        rate_std=options.rate_std, level_std=options.level_std, noise=options.noise, num_times=options.num_times
    )
    sizes = (options.num_trajectories, options.num_validation, options.num_test)
    return Splits(*(ou.simulate(parameters, n, key=jax.random.fold_in(key, i)) for i, n in enumerate(sizes)))


def build_model(config: OUConfig, key: PRNGKeyArray) -> NeuralODE:
    """Build `dh/dt = W h + b`, or a net with the given hidden layers; the state itself is observed."""
    options = config.model
    solver = make_solver(options.solver, options.substeps, options.input_rule)
    network = MLP((1, *options.layers, 1), options.activation, key=key)
    log_noise = jnp.log(jnp.full(1, 0.1)) if config.noise.kind == "inferred" else None
    initial = jnp.zeros(1) if options.trainable_start else None
    return NeuralODE(OnConcatenation(network), num_hidden=1, solver=solver, log_noise=log_noise, initial=initial)


def companions(config: OUConfig) -> dict[str, OUConfig]:
    """Return the paper's baseline for our sampler: a full Gaussian under the averaged likelihood."""
    if config.method not in ("langevin", "paper") or config.target == "posterior":
        return {}
    bbvi = config.model_copy(
        update={
            "method": "gaussian-full",
            "target": "tempered",
            "training": TrainingConfig(num_updates=500, num_samples=64, batch_trajectories=64, learning_rate=2e-2),
        }
    )
    return {"bbvi": bbvi}


def is_two_weight_law(config: OUConfig) -> bool:
    """Whether the weights are (W, b) themselves, in the data's own units."""
    return not config.model.layers and config.scaling == "none" and not config.model.trainable_start


def has_exact_posterior(config: OUConfig) -> bool:
    """Whether the target is the posterior of (W, b), whose density has one mode."""
    is_plain = config.stochastic == "all" and config.rest == "fixed" and config.noise.kind != "inferred"
    return config.target != "population" and is_two_weight_law(config) and is_plain


def metrics(results: Results) -> dict[str, Any]:
    """Return the moments of the sampled weights, of those that the generator drew, and the exact ones."""
    drawn = drawn_weights(results)
    exact = ou.exact_moments(_parameters(results.config))
    found: dict[str, Any] = {
        "data_weights": metrics_of.weight_moments(drawn) | {"comparable": is_two_weight_law(results.config)},
        "exact_weights": {"mean": exact.mean, "std": exact.std, "corr": exact.corr},
        "point_fit": shared.point_fit_noise(results),
    }
    if "bbvi" in results.companions:
        found["bbvi_weights"] = metrics_of.weight_moments(results.companions["bbvi"].weights)
    if _has_score(results):
        found["score"] = ou_score.score_metrics(results, _parameters(results.config), drawn)
    return found


def _has_score(results: Results) -> bool:
    """Whether the generator's weights have a density, and the sampler a drift to compare with its score."""
    has_density = min(results.config.data.rate_std, results.config.data.level_std) > 0
    return has_density and is_two_weight_law(results.config) and ou_score.has_score(results)


def drawn_weights(results: Results) -> np.ndarray:
    """Return the (W, b) of the training data."""
    attributes = results.splits.train.attributes
    return np.stack([attributes["W"], attributes["b"]], axis=1)


def _parameters(config: OUConfig) -> ou.OUParameters:
    return ou.OUParameters(rate_std=config.data.rate_std, level_std=config.data.level_std)


def figures(results: Results) -> dict[str, Drawing]:
    """Draw every figure of the paper's Langevin section, calibration and the loss history."""
    config = results.config
    made = {"density": _density(results)}
    if is_two_weight_law(config):
        made["weights"] = _weight_densities(results)
    if _has_score(results):
        made["score"] = ou_score.score_figure(results, _parameters(config), drawn_weights(results))
    made["calibration"] = shared.calibration(results)
    if len(results.convergence["update"]) and config.target != "posterior":  # the posterior's floor includes the noise
        made["w1"] = _w1_convergence(results)
    if hasattr(results.problem.posterior, "path"):
        made["weight_paths"] = shared.weight_paths(results, ("W", "b") if is_two_weight_law(config) else None)
    return made | shared.training(results)


def _density(results: Results) -> Drawing:
    from langenode import plots

    train = results.splits.train
    panels = {"data": train.outputs[:, :, 0], shared.method_label(results.config): results.predictions[:, 0, :, 0]}
    if "bbvi" in results.companions:
        panels["BBVI (full Gaussian, averaged likelihood)"] = results.companions["bbvi"].predictions[:, 0, :, 0]
    caption = (
        "Density of the trajectories over time, scaled to its maximum at each time, with the mean: the data and the "
        "predictions of the sampled weights."
    )
    if "bbvi" in results.companions:
        caption += " BBVI is the paper's baseline, a Gaussian over the weights under the averaged likelihood."
    alt = f"Heat maps of trajectory densities side by side: {', '.join(panels)}."
    figure = plots.density_panels(train.times[0], panels, xlabel="t", ylabel="y")
    w1 = results.metrics["w1"]
    numbers = [] if w1 is None else [("W1 to the data", f"{w1['mean']:.4g}"), ("its floor", f"{w1['floor']:.4g}")]
    return Drawing(figure, "Trajectories", caption, alt, numbers)


def _w1_convergence(results: Results) -> Drawing:
    from langenode import plots

    w1, times = results.metrics["w1"], results.splits.train.times[0]
    caption = "W1 of the predicted marginals to the data, over time and over the course of training."
    alt = "W1 over time for a sequence of updates, falling to the floor, and its mean against the update."
    numbers = [("mean W1 at the end", f"{w1['mean']:.4g}"), ("floor", f"{w1['floor']:.4g}")]
    numbers += [("ratio", f"{w1['ratio']:.2f}")]
    figure = plots.w1_convergence(times, results.convergence, floor=w1["floor"])
    return Drawing(figure, "Convergence of W1", caption, alt, numbers)


def _weight_densities(results: Results) -> Drawing:
    from langenode import plots

    parameters = _parameters(results.config)
    has_law = min(parameters.rate_std, parameters.level_std) > 0
    law = None
    if has_law:
        moments = ou.exact_moments(parameters)
        density = jax.jit(jax.vmap(lambda w: ou.log_density(w, parameters)))
        law = plots.AnalyticLaw(moments.mean, moments.std, moments.corr, lambda w: np.exp(np.asarray(density(w))))
    figure = plots.weight_densities(
        results.weights,
        drawn_weights(results),
        ("W", "b"),
        label=shared.method_label(results.config),
        other=results.companions["bbvi"].weights if "bbvi" in results.companions else None,
        other_label="BBVI",
        law=law,
    )
    ours, theirs = metrics_of.weight_moments(results.weights), metrics_of.weight_moments(drawn_weights(results))
    numbers = [
        (f"std of {name}", f"{ours['std'][i]:.4f} (drawn: {theirs['std'][i]:.4f})") for i, name in enumerate("Wb")
    ]
    if np.isfinite(theirs["corr"]):
        numbers.append(("correlation", f"{ours['corr']:.4f} (drawn: {theirs['corr']:.4f})"))
    caption = (
        "Distribution of the two weights: densities on the diagonal; below it the samples with contours of their "
        "kernel estimate, above it those of the baseline or of the generator. Dashed: first principal vectors. Black: "
        "the generator's exact law, if any."
    )
    alt = "Marginal and joint densities of the weights W and b."
    return Drawing(figure, "The weights", caption, alt, numbers)


EXPERIMENT = Experiment(
    name="ou",
    config=OUConfig,
    defaults=defaults,
    simulate=simulate,
    build_model=build_model,
    companions=companions,
    metrics=metrics,
    figures=figures,
    has_exact_posterior=has_exact_posterior,
)
