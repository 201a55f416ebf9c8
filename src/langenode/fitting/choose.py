"""A whole configuration from what a user asked: defaults of the experiment, and a method where none was named."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langenode.config import Config, merge, resolve
from langenode.experiments import EXPERIMENTS, Experiment
from langenode.fitting import build
from langenode.inference.partition import Partition, Where

# Up to so many weights guided paths were trusted on the cases of benchmarks/posteriors.py (docs/guide/posteriors.md).
MOST_GUIDED = 30


class Chosen(NamedTuple):
    """A layer of configuration with the method and what goes with it, and the reason."""

    layer: dict[str, Any]
    why: str


def configure(experiment: str, layers: Sequence[Mapping[str, Any]]) -> Any:
    """The experiment's defaults for the method and target, then the user's layers."""
    known = EXPERIMENTS[experiment]
    asked: dict[str, Any] = {}
    for layer in layers:
        asked = merge(asked, layer)
    target = asked.get("target", known.default_target(asked.get("method", known.default_method)))
    chosen = choose_method(known, target, asked)
    below = known.defaults(chosen.layer["method"], target, asked)
    top = {"experiment": experiment, "target": target}
    return resolve(known.config, top, below, chosen.layer, asked, {"experiment": experiment})


def choose_method(
    experiment: Experiment,
    target: str,
    asked: Mapping[str, Any],
    *,
    layer: Mapping[str, Any] | None = None,
    where: Where | None = None,
) -> Chosen:
    """The method asked for; else the experiment's own for a population, and for a posterior the one to be trusted.

    - last layers: `langevin`; they are near enough to a linear model for a control that is trained.
    - up to `MOST_GUIDED` weights: `guided`, replaced by `smc` where its own diagnostics distrust it.
    - more: the last layers only; or, where the user wants others, `smc`, which says when its islands disagree.

    `layer` are choices that data suggest, below what the user asked; `where` chooses weights by a function.
    """
    if "method" in asked:
        return Chosen({"method": asked["method"]}, "asked for")
    if target == "population":
        return Chosen({"method": experiment.default_method}, "the learned Langevin sampler, with a short chain")
    if target == "tempered" or asked.get("rest") == "refit":
        return Chosen({"method": "langevin"}, "the learned Langevin sampler, with a short chain")
    return _for_posterior(experiment, asked, merge(layer or {}, asked), where)


def _for_posterior(
    experiment: Experiment, asked: Mapping[str, Any], choices: Mapping[str, Any], where: Where | None
) -> Chosen:
    top = {"method": "guided", "target": "posterior"}
    below = experiment.defaults("guided", "posterior", asked) | ({} if where is None else {"stochastic": "function"})
    config = resolve(experiment.config, {"experiment": experiment.name}, top, below, choices)
    if config.stochastic == "last_layer":
        return Chosen({"method": "langevin"}, "last layers: near enough to linear for a control that is trained")
    num = num_stochastic(experiment, config, where)
    if num <= MOST_GUIDED:
        layer = {"method": "guided", "draws": {"fallback": "smc"}}
        return Chosen(layer, f"{num} stochastic weights: few enough for a control that is computed")
    more = f"{num} stochastic weights, more than the {MOST_GUIDED} that guided paths are trusted with"
    if "stochastic" in asked or where is not None:
        return Chosen({"method": "smc"}, more)
    return Chosen({"method": "langevin", "stochastic": "last_layer"}, f"all would be {more}: so the last layers only")


def num_stochastic(experiment: Experiment, config: Config, where: Where | None = None) -> int:
    """How many weights would be stochastic; of a kind of model that is still to be chosen, in the plainest."""
    model = build.untrained(experiment, config)
    return Partition.of(model, config.stochastic if where is None else where).dim


# What has no effect

_SAMPLER_OPTIONS = {
    "langevin": "num_steps horizon layers grid step diffusion diffusion_start noise learn_start estimator",
    "bottleneck": "latent_dim num_steps horizon layers decoder_layers",
    "paper": "num_steps pseudo_time_step layers start_variance contraction diffusion diffusion_start",
    "gaussian-full": "estimator",
    "gaussian-diagonal": "estimator",
    "gaussian-lowrank": "estimator rank",
}
_DRAWS_OPTIONS = {
    "guided": "num num_steps most_steps horizon eta resample_below num_moves chunk fallback num_islands",
    "nuts": "num num_chains num_warmup",
    "smc": "num num_islands",
    "sgld": "num num_chains num_iterations batch",
    "svgd": "num num_iterations",
    "pathfinder": "num",
    "laplace": "num predictive",
    "ensemble": "num_members",
    "map": "",
}


def unused_options(config: Config, layers: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The options in a user's layers that change nothing, each with the choice that makes it so."""
    asked: dict[str, Any] = {}
    for layer in layers:
        asked = merge(asked, layer)
    why = f"method {config.method}"
    used = _SAMPLER_OPTIONS.get(config.method, "").split()
    idle = [(f"sampler.{key}", why) for key in asked.get("sampler", {}) if key not in used]
    used = _DRAWS_OPTIONS.get(config.method, "").split()
    idle += [(f"draws.{key}", why) for key in asked.get("draws", {}) if key not in used]
    if config.is_drawn:
        idle += [(f"training.{key}", why) for key in asked.get("training", {})]
    for section in ("population", "tempered"):
        if config.target != section:
            idle += [(f"{section}.{key}", f"target {config.target}") for key in asked.get(section, {})]
    if config.target == "population":
        idle += [(f"noise.{key}", "target population") for key in asked.get("noise", {})]
    return idle
