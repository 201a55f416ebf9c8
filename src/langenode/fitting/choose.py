"""A whole configuration from what a user asked: defaults of the experiment, and a method where none was named."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langenode.config import Config, ConfigError, merge, merge_all, resolve, shortened
from langenode.experiments import EXPERIMENTS
from langenode.experiments.base import Experiment
from langenode.fitting import build, methods
from langenode.fitting.methods import Drawn
from langenode.inference.partition import Partition, Where

# Guided paths were trusted up to this many weights on the cases of benchmarks/posteriors.py (docs/guide/posteriors.md).
MOST_GUIDED = 30
WORDS = ("experiment", "method", "target", "stochastic", "rest", "precision", "scaling")
SECTIONS = ("data", "model", "prior", "noise", "population", "hierarchical", "tempered", "mle", "training", "predict")
LAST_LAYER = "with last-layer weights alone the posterior is nearly Gaussian, which the trained sampler handles"


class Chosen(NamedTuple):
    """A layer of configuration with the method and what goes with it, and the reason."""

    layer: dict[str, Any]
    why: str


def asked_for(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The user's layers in one, later ones winning; sections must be sections and words text, to be looked into.

    A section in which nothing is asked for, as in a file whose lines are commented out, is none.
    """
    layers, known = list(layers), (*SECTIONS, *methods.methods())
    for key, value in (item for layer in layers for item in layer.items()):
        if key in known and not isinstance(value, Mapping):
            raise ConfigError(
                f"{key} must be a section of a configuration; got {key}={shortened(value)}; set {key}.KEY"
            )
        if key in WORDS and not isinstance(value, str):
            raise ConfigError(f"{key} must be a word; got {shortened(value)}; see docs/reference/configuration.md")
    return {key: value for key, value in merge_all(layers).items() if value != {} or key not in known}


def configure(experiment: str, layers: Sequence[Mapping[str, Any]]) -> Any:
    """The experiment's defaults for the method and target, then the user's layers."""
    known = EXPERIMENTS[experiment]
    asked = asked_for(layers)
    likely = methods.find(asked.get("method", known.default_method))
    target = asked.get("target", known.default_target or likely.targets[0])
    chosen = choose_method(known, target, asked)
    below = known.defaults(chosen.layer["method"], target, asked)
    top = {"experiment": experiment, "target": target}
    config = settle(known.config, top, below, chosen.layer, asked, {"experiment": experiment})
    build.structure(known, config)  # what cannot be built is refused here
    return config


def settle(kind: type[Config], *layers: Mapping[str, Any]) -> Any:
    """Merge layers, later ones winning, into a configuration with the methods' sections, and check it."""
    merged = asked_for(layers)
    method = methods.find(merged.get("method", kind.model_fields["method"].default))
    config = resolve(methods.with_methods(kind), merged)
    method.check(config)
    return config


def choose_method(
    experiment: Experiment,
    target: str,
    asked: Mapping[str, Any],
    *,
    layer: Mapping[str, Any] | None = None,
    where: Where | None = None,
) -> Chosen:
    """The method asked for; else the experiment's own for a population, and for a posterior the one to be trusted.

    - last layers: `langevin`; their posterior is nearly Gaussian, which a trained control handles.
    - up to `MOST_GUIDED` weights: `guided`, replaced by `ensemble-hmc` where its own diagnostics distrust it.
    - more: `ensemble-hmc` where the user asks for the weights, else the last layers only.

    `layer` are choices that data suggest, below what the user asked; `where` chooses weights by a function.
    """
    if "method" in asked:
        return Chosen({"method": asked["method"]}, "asked for")
    if target == "population":
        return Chosen({"method": experiment.default_method}, "the learned Langevin sampler, with a short chain")
    if target == "hierarchical":
        return Chosen({"method": "gaussian-diagonal"}, "what is a unit's own is normal, and the model shapes it")
    if target == "tempered" or asked.get("rest") == "refit":
        return Chosen({"method": "langevin"}, "the learned Langevin sampler, with a short chain")
    return _for_posterior(experiment, asked, merge(layer or {}, asked), where)


def _for_posterior(
    experiment: Experiment, asked: Mapping[str, Any], choices: Mapping[str, Any], where: Where | None
) -> Chosen:
    top = {"method": "guided", "target": "posterior"}
    below = experiment.defaults("guided", "posterior", asked) | ({} if where is None else {"stochastic": "function"})
    config = settle(experiment.config, {"experiment": experiment.name}, top, below, choices)
    if config.stochastic == "last_layer":
        return Chosen(
            {"method": "langevin"},
            LAST_LAYER,
        )
    num = num_stochastic(experiment, config, where)
    if num <= MOST_GUIDED:
        layer = {"method": "guided", "guided": {"fallback": "ensemble-hmc"}}
        return Chosen(layer, f"{num} stochastic weights: few enough for guided paths, whose control is computed")
    more = f"{num} stochastic weights, more than the {MOST_GUIDED} that guided paths are trusted with"
    if "stochastic" in asked or where is not None:
        return Chosen({"method": "ensemble-hmc"}, f"{more}: chains with long trajectories, annealed from the prior")
    return Chosen(
        {"method": "langevin", "stochastic": "last_layer"},
        f"all would be {more}: so only last layers vary",
    )


def num_stochastic(experiment: Experiment, config: Config, where: Where | None = None) -> int:
    """How many weights would be stochastic; of a kind of model that is still to be chosen, in the plainest."""
    model = build.untrained(experiment, config)
    return Partition.of(model, config.stochastic if where is None else where).dim


# What has no effect


def unused_options(config: Config, layers: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The options in a user's layers that change nothing, each with the choice that makes it so."""
    asked = merge_all(layers)
    why = f"method {config.method}"
    method = methods.find(config.method)
    used = {method.name, method.fallback(config.options) if isinstance(method, Drawn) else None}
    idle = [(f"{name}.{key}", why) for name in methods.methods() if name not in used for key in asked.get(name, {})]
    if method.is_drawn:
        idle += [(f"training.{key}", why) for key in asked.get("training", {})]
    for section in ("population", "hierarchical", "tempered"):
        if config.target != section:
            idle += [(f"{section}.{key}", f"target {config.target}") for key in asked.get(section, {})]
    if config.target == "population":
        idle += [(f"noise.{key}", "target population") for key in asked.get("noise", {})]
    return idle
