"""The viscoelastic demonstration: a relaxing composite, by our law with tensor internal variables or the paper's.

Microstructures differ in their anisotropy: in our law the structural factor is stochastic, in the paper's the last
layers.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pydantic

from langenode._types import PRNGKeyArray
from langenode.config import Count, ModelConfig, merge
from langenode.experiments import composite
from langenode.experiments import figures as shared
from langenode.experiments.base import Drawing, Experiment, Results, chain, literal
from langenode.experiments.composite import CompositeConfig
from langenode.models import InternalVariableLaw, TensorLaw, internal_variable_law, tensor_law
from langenode.scores import metrics as metrics_of

# Number of samples over which the paper computes distance correlations.
NUM_PAPER_SAMPLES = 50
# And we, of our law's few weights.
NUM_SAMPLES = 512
# Bulk over shear modulus of our law before training; isochoric loadings do not change it.
BULK_RATIO = 1000.0


class ViscoelasticModel(ModelConfig):
    """Our law or the paper's.

    `correction`: the networks of our law; `auto` keeps them only if validation data favour them. `rate_potential`: a
    potential that depends on the rate, as the paper's count of 561 weights implies.
    """

    law: Literal["tensor", "paper"] = "tensor"
    """tensor internal variables, or the paper's scalar ones"""
    num_branches: Count = 4
    """tensor internal variables of the tensor law"""
    correction: Literal["auto", "no", "neural"] = "auto"
    """neural correction of the tensor law: auto tries it and keeps it where validation improves"""
    correction_layers: tuple[Count, ...] = (8,)
    """widths of the hidden layers of the correction"""
    num_internal: Count = 6
    """scalar internal variables of the paper's law"""
    rate_potential: bool = False
    """the paper's 16-input potential, which also sees the rates"""
    potential_layers: tuple[Count, ...] | None = None
    """widths of the hidden layers of the paper's potential; none for those of its flow"""
    convex: bool = False
    """make the network of the potential (or of the tensor law's correction to it) convex in its inputs"""


class ViscoelasticConfig(CompositeConfig):
    """The viscoelastic demonstration's configuration."""

    experiment: str = "viscoelastic"
    stochastic: Literal["all", "last_layer", "last_two_layers", "structure"] = "structure"  # pyright: ignore[reportIncompatibleVariableOverride]
    """which weights are uncertain; structure: the structural factor of the tensor law"""
    model: ViscoelasticModel = ViscoelasticModel()  # pyright: ignore[reportIncompatibleVariableOverride]  (frozen)

    @pydantic.model_validator(mode="after")
    def _has_what_integrates(self) -> "ViscoelasticConfig":
        if self.model.solver != "heun":
            raise ValueError(
                "a material law advances by steps of its own, so that it can serve a host code; found model.solver="
                f"{self.model.solver!r}; leave it at 'heun', and use model.substeps with model.law='paper'"
            )
        if self.model.law == "tensor" and (self.model.substeps > 1 or self.model.input_rule != "trapezoid"):
            raise ValueError(
                "the tensor law's step is exponential, and exact for a strain that is linear in time; found "
                f"model.substeps={self.model.substeps} and model.input_rule={self.model.input_rule!r}; leave both at "
                "their defaults, or set model.law='paper'"
            )
        if self.model.law == "tensor" and self.model.trainable_start:
            raise ValueError(
                "the tensor law starts relaxed, without stress; found model.trainable_start=true; leave it out, or set "
                "model.law='paper'"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _has_what_is_stochastic(self) -> "ViscoelasticConfig":
        if self.stochastic == "structure" and self.model.law != "tensor":
            raise ValueError(
                "only our law has a structural factor; found stochastic='structure' with model.law='paper'; use "
                "stochastic='last_layer' or 'all', or model.law='tensor'"
            )
        if self.stochastic == "last_layer" and self.model.law == "tensor" and self.model.correction != "neural":
            raise ValueError(
                "a last layer needs networks; our law may have none (model.correction is not 'neural'); use "
                "stochastic='structure' or 'all', or set model.correction='neural'"
            )
        return self


def defaults(method: str, target: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Choices made by measurement (see docs/guide/viscoelastic.md) that differ from the general defaults."""
    del target
    law = asked.get("model", {}).get("law", "paper" if method == "paper" else "tensor")
    layers: dict[str, Any] = {
        "scaling": "common",
        "model": {"law": law},
        "mle": {"num_adam": 0, "num_lbfgs": 150},
        "population": {"loss": "energy", "kl_weight": 1e-4},
        "paper": {"num_steps": 5000},
        **chain(8),
        "training": {"num_updates": 600, "num_samples": 128, "batch_conditions": 8},
    }
    if law == "tensor" and asked.get("data", {}).get("source") == "fe":
        # Finite strain shows: without networks the point fit misses a quarter of the spread, with them a tenth.
        layers["model"]["correction"] = "neural"
        layers["mle"] = {"num_adam": 0, "num_lbfgs": 400}
        layers["population"] |= composite.FEW_MICROSTRUCTURES
    if law == "paper":
        layers |= {"stochastic": "last_layer", "rest": "refit", "mle": {"num_adam": 1500, "num_lbfgs": 0}}
        layers["training"] = {"num_updates": 300, "num_samples": 64, "batch_conditions": 8, "learning_rate": 2e-3}
    if method == "paper":
        layers["model"]["rate_potential"] = True
        layers["tempered"] = {"temperature": 1.0}
        layers["predict"] = {"num_weights": 256, "num_w1_draws": 4}  # each is weighed on all 2240 trajectories
        layers["training"] = {}
        sizes = {"num_updates": 60, "num_samples": 50, "batch_trajectories": 64}
        layers = merge(layers, literal(has_input_rule=law == "paper", **sizes, learning_rate=2e-3, block=5))
    return layers


def build_model(config: ViscoelasticConfig, key: PRNGKeyArray) -> TensorLaw | InternalVariableLaw:
    """Build the law before training, in time scaled by the duration."""
    options, data = config.model, config.data
    if options.law == "paper":
        return internal_variable_law(
            num_hidden=options.num_internal,
            layers=options.layers,
            potential_layers=options.potential_layers,
            rate_potential=options.rate_potential,
            strain_scale=data.amplitude,
            # The rate of a random walk whose strain is `amplitude` after unit time.
            rate_scale=data.amplitude * float(np.sqrt(data.num_steps)),
            input_rule=options.input_rule,
            substeps=options.substeps,
            convex=options.convex,
            trainable_start=options.trainable_start,
            key=key,
        )
    return tensor_law(
        num_branches=options.num_branches,
        correction_layers=None if options.correction == "no" else options.correction_layers,
        strain_scale=data.amplitude,
        shortest=0.5 / data.num_steps,
        longest=2.0,
        bulk_ratio=BULK_RATIO,
        convex=options.convex,
        shear=data.source == "fe",
        key=key,
    )


def candidates(config: ViscoelasticConfig) -> dict[str, ViscoelasticConfig]:
    """Return, with `auto`, our law without networks and with them."""
    options = config.model
    if options.law == "paper" or options.correction != "auto":
        return {"the model": config}
    return {
        f"{correction} correction": config.model_copy(
            update={"model": options.model_copy(update={"correction": correction})}
        )
        for correction in ("no", "neural")
    }


def weight_groups(results: Results) -> dict[str, np.ndarray]:
    """Return samples of the stochastic weights, grouped by the part of the law they belong to."""
    names = [name.split(".")[0].split("[")[0] for name in results.problem.partition.names]
    return {
        part: results.weights[:, [i for i, name in enumerate(names) if name == part]] for part in dict.fromkeys(names)
    }


def metrics(results: Results) -> dict[str, Any]:
    """Return the point fit and the spread; also the dependence between the two networks where both are stochastic."""
    found = composite.metrics(results)
    groups = weight_groups(results)
    if len(groups) == 2:
        samples = {name: group[:NUM_PAPER_SAMPLES] for name, group in groups.items()}
        rng = np.random.default_rng(results.config.seed)
        dependence = metrics_of.distance_correlation(*samples.values(), num_permutations=100, rng=rng)
        within = {name: shared.pair_dependence(group)[1] for name, group in samples.items()}
        found["distance_correlation"] = {**dependence._asdict(), "num_samples": NUM_PAPER_SAMPLES, "within": within}
    elif results.problem.partition.dim > 1:
        found["distance_correlation"] = shared.pair_dependence(results.weights[:NUM_SAMPLES])[1]
    return found


def figures(results: Results) -> dict[str, Drawing]:
    """Draw every figure of the paper's section, the microstructures, calibration and the training."""
    made = composite.figures(results, composite.components(results))
    if results.problem.partition.dim > 1:
        made["dependence"] = _dependence(results)
    return made | shared.training(results)


def _dependence(results: Results) -> Drawing:
    """Draw the distance correlation within each part of the law, and between the parts if there are two."""
    from langenode import plots

    groups = weight_groups(results)
    if len(groups) == 1:
        return shared.dependence(results, NUM_SAMPLES)
    matrices, numbers = {}, []
    for name, weights in groups.items():
        found, medians = shared.pair_dependence(weights[:NUM_PAPER_SAMPLES])
        matrices[f"{name}, {weights.shape[1]} weights"] = (found.biased, found.independence)
        numbers.append(
            (f"median within {name}", f"{medians['median']:.3f} (independent: {medians['independence']:.3f})")
        )
    between = results.metrics["distance_correlation"]
    numbers.append(("between the two", f"{between['biased']:.3f} (independent: {between['independence']:.3f})"))
    numbers.append(("bias-corrected squared", f"{between['corrected']:.3f}"))
    caption = (
        f"Distance correlation of pairs of weights over {NUM_PAPER_SAMPLES} samples, within each network, and their "
        "histograms. With this few samples even independent weights reach the dashed levels, and independent groups "
        "of weights much higher ones."
    )
    alt = "Matrices of distance correlations within two groups of weights, and histograms."
    return Drawing(plots.group_dependence(matrices), "Dependence between weights", caption, alt, numbers)


EXPERIMENT = Experiment(
    name="viscoelastic",
    config=ViscoelasticConfig,
    defaults=defaults,
    simulate=composite.simulate,
    build_model=build_model,
    candidates=candidates,
    metrics=metrics,
    figures=figures,
)
