"""The hyperelastic demonstration: a potential with 28 weights, and three choices of stochastic weights.

Loadings are much faster than the relaxation of the matrix, so the composite is elastic. Either all weights are
stochastic (the paper's full treatment), or only those of the last layer, with the others fixed at maximum likelihood or
refitted.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pydantic

from langenode._types import PRNGKeyArray
from langenode.config import ModelConfig, Positive, TrainingConfig, merge
from langenode.experiments import composite
from langenode.experiments import figures as shared
from langenode.experiments.base import Drawing, Experiment, Results, chain, literal
from langenode.experiments.composite import CompositeConfig, CompositeData
from langenode.models import NeuralODE, hyperelastic_potential
from langenode.scores import metrics as metrics_of

# The three variants, by the name of their companion's file: which weights are stochastic, and how the rest is treated.
VARIANTS = {"full": ("all", "fixed"), "fixed": ("last_layer", "fixed"), "refit": ("last_layer", "refit")}
TITLES = {"full": "all weights", "fixed": "last layer, rest fixed", "refit": "last layer, rest refitted"}
# Samples over which distance correlations are computed.
NUM_DEPENDENCE_SAMPLES = 512

# Refitted features move farther than random weights about the point fit.
_FEW = {"num_samples": 256, "batch_conditions": 4}
TRAINING: dict[str, dict[str, Any]] = {
    "full": {"num_updates": 1000, "learning_rate": 5e-3, **_FEW},
    "fixed": {"num_updates": 1500, "learning_rate": 2e-2, **_FEW},
    "refit": {"num_updates": 1500, "learning_rate": 2e-2, **_FEW},
}


PAPER_TRAINING = {
    "num_updates": 60,
    "num_samples": 50,
    "batch_trajectories": 128,
    "learning_rate": 1e-2,
    "block": 5,
}


class HyperelasticModel(ModelConfig):
    """The potential: its hidden layers, and what holds whatever its weights."""

    convex: bool = False
    """make the potential convex in the invariants"""
    stress_free: bool = False
    """no stress at zero strain whatever the weights; the default except for the paper's method"""
    structure: Literal["no", "normal", "full"] = "no"
    """anisotropy of a microstructure: a structural factor of the normal components (6 weights) or of all six (21)"""


class HyperelasticData(CompositeData):
    """Loadings much faster than the relaxation of the matrix."""

    time_step: Positive = 1e-9
    """time step, in s: far below the shortest relaxation time"""


class HyperelasticConfig(CompositeConfig):
    """The hyperelastic demonstration's configuration."""

    experiment: str = "hyperelastic"
    stochastic: Literal["all", "last_layer", "last_two_layers", "structure"] = "all"  # pyright: ignore[reportIncompatibleVariableOverride]
    """which weights are uncertain; structure: the potential's structural factor"""
    data: HyperelasticData = HyperelasticData()  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)
    model: HyperelasticModel = HyperelasticModel()  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)

    @pydantic.model_validator(mode="after")
    def _has_what_is_stochastic(self) -> "HyperelasticConfig":
        if self.stochastic == "structure" and self.model.structure == "no":
            raise ValueError(
                "a potential needs a structural factor to make it stochastic; found stochastic='structure' with "
                "model.structure='no'; set model.structure='normal', or 'full' for data with shear"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _has_nothing_to_integrate(self) -> "HyperelasticConfig":
        plain = ModelConfig()
        changed = [
            n
            for n in ("solver", "substeps", "input_rule", "trainable_start")
            if getattr(self.model, n) != getattr(plain, n)
        ]
        if changed:
            raise ValueError(
                "a potential has no hidden state, so that nothing is integrated; found "
                f"{', '.join(f'model.{name}={getattr(self.model, name)!r}' for name in changed)}; leave the defaults"
            )
        return self


def defaults(method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Choices made by measurement (see docs/guide/hyperelastic.md) that differ from the general defaults."""
    del target
    if asked.get("stochastic") == "structure" or asked.get("data", {}).get("source") == "fe":
        return _anisotropic_defaults(method, asked)
    way = "full" if asked.get("stochastic", "all") == "all" else "refit"
    layers: dict[str, Any] = {
        "scaling": "common",
        "model": {"layers": (3, 3), "activation": "softplus", "stress_free": method != "paper"},
        "mle": {"num_adam": 300, "num_lbfgs": 500},
        "prior": {"scale": 0.1},
        "population": {"loss": "quantile", "power": 2, "kl_weight": 1e-5},
        "paper": {"num_steps": 5000},
        **chain(8),
        "training": TRAINING[way],
    }
    if method == "paper":
        layers["tempered"] = {"temperature": 1.0}
        layers["prior"] = {"scale": 1.0}
        layers["training"] = {}
        layers["predict"] = {"num_weights": 1024, "num_w1_draws": 4}  # a draw costs 5000 steps
        layers = merge(layers, literal(has_input_rule=False, **PAPER_TRAINING))
    return layers


def _anisotropic_defaults(method: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices for a stochastic structural factor, as in the viscoelastic law: few weights, all needed."""
    is_fe = asked.get("data", {}).get("source") == "fe"
    return {
        "scaling": "common",
        "stochastic": "structure",
        "model": {
            "layers": (3, 3),
            "activation": "softplus",
            "stress_free": method != "paper",
            "structure": "full" if is_fe else "normal",
        },
        "mle": {"num_adam": 300, "num_lbfgs": 500},
        "population": {"loss": "energy", "kl_weight": 1e-4} | (composite.FEW_MICROSTRUCTURES if is_fe else {}),
        **chain(8),
        "training": {"num_updates": 600, "num_samples": 128, "batch_conditions": 8},
    }


def build_model(config: HyperelasticConfig, key: PRNGKeyArray) -> NeuralODE:
    """Build `S = dW(I_1, I_2, I_3)/dE` with a net 3-3-3-1."""
    options = config.model
    potential = hyperelastic_potential(
        options.layers,
        options.activation,
        convex=options.convex,
        strain_scale=config.data.amplitude,
        stress_free=options.stress_free,
        structure=options.structure,
        key=key,
    )
    return NeuralODE(None, potential, num_hidden=0)


def variant(config: HyperelasticConfig) -> str | None:
    """Return which of the three variants a configuration is."""
    found = (config.stochastic, "fixed" if config.stochastic == "all" else config.rest)
    return next((name for name, pair in VARIANTS.items() if pair == found), None)


def companions(config: HyperelasticConfig) -> dict[str, HyperelasticConfig]:
    """Return the other two variants, for the paper's comparison."""
    mine = variant(config)
    if mine is None or config.is_drawn:
        return {}
    return {
        name: config.model_copy(
            update={"stochastic": stochastic, "rest": rest, "training": _training(config, mine, name)}
        )
        for name, (stochastic, rest) in VARIANTS.items()
        if name != mine
    }


def _training(config: HyperelasticConfig, mine: str, other: str) -> TrainingConfig:
    """Return the training of another variant: its own defaults, unless the user has changed those of this one."""
    if config.method == "paper" or config.training != TrainingConfig(**TRAINING[mine]):
        return config.training
    return TrainingConfig(**TRAINING[other])


def three_ways(results: Results) -> dict[str, np.ndarray]:
    """Return predictions for the held-out loadings of every fitted variant, in the paper's order."""
    found = {name: other.predictions for name, other in results.companions.items()}
    found[variant(results.config) or "fit"] = results.observable
    return {name: found[name] for name in (*VARIANTS, "fit") if name in found}


def metrics(results: Results) -> dict[str, Any]:
    """Return the scores of the point fit, of the spread, and of the three variants."""
    members, found = results.splits.test.replicates().outputs, results.metrics["w1"]
    rng, ways = np.random.default_rng(results.config.seed), {}
    for name, samples in three_ways(results).items():
        draws = [rng.permutation(len(samples))[: len(members)] for _ in range(results.config.predict.num_w1_draws)]
        w1 = float(np.median([metrics_of.w1(samples[draw], members).mean() for draw in draws]))
        ways[name] = {
            "w1": w1,
            "w1_over_floor": w1 / found["floor"] if found else None,  # no floor with few microstructures
            "std_ratio": composite.std_ratio(samples, members),
            "coverage": metrics_of.coverage(samples, members)["90"],
        }
    for way in ways.values():
        way["w1_over_full"] = way["w1"] / ways["full"]["w1"] if "full" in ways else None
    made = composite.metrics(results) | {"variants": ways}
    if results.problem.partition.dim > 1:
        made["distance_correlation"] = shared.pair_dependence(results.weights[:NUM_DEPENDENCE_SAMPLES])[1]
    return made


def figures(results: Results) -> dict[str, Drawing]:
    """Draw every figure of the paper's section, the microstructures, bands, calibration and the training."""
    members = results.splits.test.replicates().outputs
    ways = {TITLES.get(name, "the fit"): (samples, members) for name, samples in three_ways(results).items()}
    if variant(results.config) is None:
        ways = composite.components(results)
    made = composite.figures(results, ways)
    if results.problem.partition.dim > 1:
        made["dependence"] = shared.dependence(results, NUM_DEPENDENCE_SAMPLES)
    return made | shared.training(results)


EXPERIMENT = Experiment(
    name="hyperelastic",
    config=HyperelasticConfig,
    defaults=defaults,
    simulate=composite.simulate,
    build_model=build_model,
    companions=companions,
    metrics=metrics,
    figures=figures,
)
