"""The Schlögl demonstration: a neural ODE whose random weights send trajectories to one of two states.

The data are exact simulations of the reaction; its exact law, from the master equation, scores every fit. The model is
deterministic for given weights, or has intrinsic noise (`model.noise`): then no weight is random.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
from pydantic import Field

from langenode._types import PRNGKeyArray
from langenode.config import Config, Count, ModelConfig, NoiseConfig, Section, TemperedConfig, TrainingConfig, merge
from langenode.experiments import figures as shared
from langenode.experiments.base import Companion, Drawing, Experiment, Results, Splits, chain, literal
from langenode.experiments.modes import increment_memory, mode_shares, mode_summary, valley
from langenode.inference.predictions import predict
from langenode.models import MLP, NeuralODE, NeuralSDE, OnConcatenation, PositiveOnConcatenation, make_solver
from langenode.scores import metrics as metrics_of
from langenode.simulators import schlogl
from langenode.simulators.master_equation import CountLaw, count_law

# Distances to the exact law and mode weights use this multiple of `predict.num_weights` samples, so that their own
# sampling error is negligible.
LAW_SAMPLES = 4
# Distance correlation is quadratic in samples and in weights.
NUM_DEPENDENCE_SAMPLES = 128


class SchloglData(Section):
    """The generator; validation and test sets are further simulations."""

    num_trajectories: int = Field(default=1024, ge=2)
    """training trajectories"""
    num_validation: Count = 256
    """validation trajectories"""
    num_test: int = Field(default=1024, ge=2)
    """test trajectories"""
    num_times: int = Field(default=101, ge=2)
    """times per trajectory, equally spaced"""
    end_time: float = Field(default=10.0, gt=0)
    """last time"""
    num_start: Count = 250
    """molecules at the start"""


class SchloglModel(ModelConfig):
    """The right-hand side, and with `noise` the layers of its diffusion."""

    noise: bool = False
    """a neural SDE: process noise in place of stochastic weights"""
    diffusion_layers: tuple[Count, ...] = (16,)
    """widths of the hidden layers of the diffusion, with noise"""


class SchloglConfig(Config):
    """The Schlögl demonstration's configuration."""

    experiment: str = "schlogl"
    data: SchloglData = SchloglData()
    model: SchloglModel = SchloglModel()  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)

    @pydantic.model_validator(mode="after")
    def _starts_somewhere(self) -> "SchloglConfig":
        if self.model.noise and self.model.trainable_start:
            raise ValueError(
                "a neural SDE starts where the data do; found model.trainable_start=true with model.noise=true; drop "
                "one of the two"
            )
        return self


def defaults(method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Choices made by measurement (see docs/guide/schlogl.md) that differ from the general defaults."""
    layers: dict[str, Any] = {
        "mle": {"num_adam": 300, "num_lbfgs": 0},
        "population": {"loss": "quantile", "kl_weight": 3e-3, "saturation": 0.5},
        "paper": {"num_steps": 500, "pseudo_time_step": 2e-3, "layers": (101, 101), "diffusion_start": 2.0},
        **chain(8, horizon=2.0),
        "training": {"num_updates": 900, "num_samples": 384, "learning_rate": 5e-3},
    }
    if target == "tempered":  # the paper's treatment: two modes, separated by k-means
        layers["noise"] = {"num_modes": 2}
        layers["training"] = {"num_updates": 300, "num_samples": 64, "batch_trajectories": 64, "learning_rate": 4e-3}
    if target == "population" and method != "bottleneck":  # its KL is over 321 weights, that of the bottleneck over 4
        layers["prior"] = {"scale": 0.1}
        layers["population"] |= {"kl_weight": 1e-4}
    if method == "paper":
        layers = merge(layers, literal(num_updates=100, num_samples=32, block=10))
        layers["predict"] = {"num_weights": 1024, "num_w1_draws": 4}  # a draw costs 500 steps in 321 dimensions
    if asked.get("model", {}).get("noise"):
        layers |= {
            "stochastic": "none",
            "rest": "refit",
            "mle": {"num_adam": 800, "num_lbfgs": 0, "learning_rate": 1e-2},
            "training": {"num_updates": 400, "num_samples": 256, "batch_trajectories": 256, "learning_rate": 2e-3},
        }
        layers["population"] |= {"transition_weight": 3.0, "saturation": None}
    return layers


def simulate(config: SchloglConfig, key: PRNGKeyArray) -> Splits:
    """Simulate three independent sets of exact trajectories."""
    options = config.data
    sizes = (options.num_trajectories, options.num_validation, options.num_test)
    parameters = _parameters(config)
    return Splits(*(schlogl.simulate(parameters, n, key=jax.random.fold_in(key, i)) for i, n in enumerate(sizes)))


def _parameters(config: SchloglConfig) -> schlogl.SchloglParameters:
    options = config.data
    return schlogl.SchloglParameters(
        num_start=options.num_start, num_times=options.num_times, end_time=options.end_time
    )


def build_model(config: SchloglConfig, key: PRNGKeyArray) -> NeuralODE | NeuralSDE:
    """Build `dX/dt = NN(X)`, 1-16-16-1: 321 weights; with noise a second net for the diffusion."""
    options = config.model
    key_drift, key_diffusion = jax.random.split(key)
    dynamics = OnConcatenation(MLP((1, *options.layers, 1), options.activation, key=key_drift))
    if not options.noise:
        solver = make_solver(options.solver, options.substeps, options.input_rule)
        initial = jnp.zeros(1) if options.trainable_start else None
        return NeuralODE(dynamics, num_hidden=1, solver=solver, initial=initial)
    network = MLP((1, *options.diffusion_layers, 1), options.activation, key=key_diffusion)
    return NeuralSDE(dynamics, PositiveOnConcatenation(network))


def companions(config: SchloglConfig) -> dict[str, SchloglConfig]:
    """Return the paper's baseline for our sampler: a diagonal Gaussian under the averaged mixture likelihood."""
    if config.method not in ("bottleneck", "langevin", "paper") or config.stochastic != "all":
        return {}
    num_updates = min(200, config.training.num_updates)
    bbvi = config.model_copy(
        update={
            "method": "gaussian-diagonal",
            "target": "tempered",
            "noise": NoiseConfig(num_modes=2),
            "tempered": TemperedConfig(),
            "training": TrainingConfig(num_updates=num_updates, num_samples=32, batch_trajectories=32),
        }
    )
    return {"bbvi": bbvi}


def exact_law(config: SchloglConfig) -> CountLaw:
    """Return the exact law of the counts from the master equation."""
    return _law_of(_parameters(config))


@functools.cache
def _law_of(parameters: schlogl.SchloglParameters) -> CountLaw:
    return count_law(schlogl.network(parameters), parameters.times)


def metrics(results: Results) -> dict[str, Any]:
    """Return distances to the exact law, weights and widths of the two modes, and the memory of the noise."""
    law = exact_law(results.config)
    spread = float(np.sqrt(np.mean(law.std**2)))
    split = valley(law.counts, law.probabilities[-1])
    train, samples = results.splits.train.outputs[:, :, 0], law_samples(results)
    distance = {
        "relative": float(metrics_of.w1_to_law(samples, law.counts, law.probabilities).mean() / spread),
        "data_relative": float(metrics_of.w1_to_law(train, law.counts, law.probabilities).mean() / spread),
        "num_samples": len(samples),
        "rms_std": spread,
    }
    ours, data = mode_summary(samples[:, -1], split), mode_summary(train[:, -1], split)
    exact = mode_summary(law.counts, split, weights=law.probabilities[-1])
    modes = {**ours._asdict(), "split": split}
    modes |= {f"{name}_data": value for name, value in data._asdict().items()}
    modes |= {f"{name}_exact": value for name, value in exact._asdict().items()}
    modes |= mode_shares(samples[:, -1], exact)
    found: dict[str, Any] = {"w1_exact": distance, "modes": modes, "point_fit": shared.point_fit_noise(results, 2)}
    if "bbvi" in results.companions:
        found["bbvi"] = _companion_scores(results.companions["bbvi"], law, split, spread)
    if results.problem.partition.dim > 1:
        found["distance_correlation"] = shared.pair_dependence(results.weights[:NUM_DEPENDENCE_SAMPLES])[1]
    found["increments"] = {
        "lag1": increment_memory(samples[:2048], split),
        "lag1_data": increment_memory(train, split),
    }
    return found


def _companion_scores(companion: Companion, law: CountLaw, split: float, spread: float) -> dict[str, Any]:
    """Return distance to the exact law, and weights and widths of the modes, of the paper's baseline."""
    samples = np.asarray(companion.predictions[:, 0, :, 0], float)
    exact = mode_summary(law.counts, split, weights=law.probabilities[-1])
    found: dict[str, Any] = {
        "w1_exact": float(metrics_of.w1_to_law(samples, law.counts, law.probabilities).mean() / spread),
        **mode_summary(samples[:, -1], split)._asdict(),
        **mode_shares(samples[:, -1], exact),
    }
    return found | {"num_samples": len(samples)}


def law_samples(results: Results) -> np.ndarray:
    """Return many trajectories of the fit, (sample, time)."""
    num = LAW_SAMPLES * results.config.predict.num_weights
    prediction = predict(results.problem, results.splits.train, num, results.rule, key=results.key)
    return np.asarray(prediction.outputs[:, 0, :, 0], float)


def figures(results: Results) -> dict[str, Drawing]:
    """Draw the figures of the paper's section, but that of several runs (`reproduce`), with the exact law and more."""
    made = {
        "trajectories": _trajectories(results),
        "end": _end_density(results),
        "w1_exact": _distances(results),
        "calibration": shared.calibration(results),
    }
    if results.problem.partition.dim > 1:
        made["dependence"] = shared.dependence(results, NUM_DEPENDENCE_SAMPLES)
    if hasattr(results.problem.posterior, "path"):
        made["weight_paths"] = shared.weight_paths(results)
    return made | shared.training(results)


def _panels(results: Results) -> dict[str, np.ndarray]:
    panels = {
        "data (exact simulation)": results.splits.train.outputs[:, :, 0],
        shared.method_label(results.config): results.predictions[:, 0, :, 0],
    }
    if "bbvi" in results.companions:
        panels["BBVI (diagonal, mixture likelihood)"] = results.companions["bbvi"].predictions[:, 0, :, 0]
    return panels


def _trajectories(results: Results) -> Drawing:
    from langenode import plots

    panels = _panels(results)
    times = results.splits.train.times[0]
    figure = plots.trajectory_panels(times, panels, xlabel="t", ylabel="X")
    modes = results.metrics["modes"]
    caption = (
        "Above: sixty trajectories of each set. Below: the density of all trajectories over time, scaled to its "
        "maximum at each time."
    )
    if "bbvi" in results.companions:
        caption += " BBVI is the paper's baseline: a diagonal Gaussian over the weights under a two-mode likelihood."
    numbers = [("P(low) of the fit", f"{modes['p_low']:.3f}"), ("P(low) of the data", f"{modes['p_low_data']:.3f}")]
    numbers += [("exact", f"{modes['p_low_exact']:.3f}")]
    alt = f"Trajectories and their densities over time: {', '.join(panels)}."
    return Drawing(figure, "Trajectories", caption, alt, numbers)


def _end_density(results: Results) -> Drawing:
    from langenode import plots

    law = exact_law(results.config)
    panels = {name: values[:, -1] for name, values in _panels(results).items()}
    figure = plots.end_density(law.counts, law.probabilities[-1], panels, xlabel="X at the last time")
    modes = results.metrics["modes"]
    numbers = [
        (f"std of the {name} mode", f"{modes[f'{name}_std']:.1f} (exact {modes[f'{name}_std_exact']:.1f})")
        for name in ("low", "high")
    ]
    caption = "Distribution of the last count: the exact law (master equation), and samples of the data and the fits."
    return Drawing(
        figure, "Final distribution", caption, "Densities with two peaks, compared with the exact law.", numbers
    )


def _distances(results: Results) -> Drawing:
    from langenode import plots

    law, found = exact_law(results.config), results.metrics["w1_exact"]
    curves = {
        name: metrics_of.w1_to_law(values, law.counts, law.probabilities) / found["rms_std"]
        for name, values in _panels(results).items()
    }
    figure = plots.distance_curves(law.times, curves, xlabel="t", ylabel="W1 to the exact law / rms std")
    caption = (
        f"W1 of the marginals to the exact law over time, for the data and for {len(results.predictions)} samples of "
        "each fit. The distance of the data is due to sampling alone."
    )
    numbers = [("mean, fit (many samples)", f"{found['relative']:.4f}")]
    numbers += [("mean, data", f"{found['data_relative']:.4f}")]
    return Drawing(figure, "Distance to the exact law", caption, "W1 over time, one curve per set.", numbers)


EXPERIMENT = Experiment(
    name="schlogl",
    config=SchloglConfig,
    defaults=defaults,
    default_method="bottleneck",
    simulate=simulate,
    build_model=build_model,
    companions=companions,
    metrics=metrics,
    figures=figures,
)
