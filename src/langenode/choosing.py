"""A whole configuration from what a user asked: defaults of the experiment, and a method where none was named."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langenode import assembly
from langenode.config import Config, merge, resolve
from langenode.experiments import EXPERIMENTS, Experiment
from langenode.partition import Partition, Where

# Up to so many weights guided paths were trusted on the cases of benchmarks/posteriors.py (docs/posteriors.md).
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
    model = assembly.untrained(experiment, config)
    return Partition.of(model, config.stochastic if where is None else where).dim
