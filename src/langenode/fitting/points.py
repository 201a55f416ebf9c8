"""The point that a fit starts from: candidates at their maximum likelihood, and the plainest that is good enough."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from langenode._types import OnStep
from langenode.config import Config
from langenode.data import Dataset, Scaling
from langenode.experiments.base import Experiment
from langenode.fitting.build import Prepared, untrained
from langenode.fitting.noise import mode_numbers, noise_levels
from langenode.fitting.progress import QUIET, Reporter
from langenode.fitting.units import candidates as candidates_of_units
from langenode.fitting.units.candidates import judge_candidates
from langenode.inference.likelihood import replicate_spread
from langenode.inference.noise import noise_parts
from langenode.inference.point_fit import fit_mle, replicates_mean, rms_error
from langenode.inference.weight_scales import search_units

# A later, less plain candidate must lower the validation error by this much to be kept.
WORTHWHILE = 0.95


class PointChoice(NamedTuple):
    """The candidate that was kept, its model at maximum likelihood, and all that were tried with their errors.

    `start` is its model before.
    """

    name: str
    config: Any
    model: Any
    tried: list[dict[str, Any]]
    start: Any = None


def choose_model(experiment: Experiment, config: Config, data: Prepared, *, reporter: Reporter = QUIET) -> PointChoice:
    """Fit the candidates' models by maximum likelihood; keep the plainest whose validation error is good.

    None is tried after one whose error is below the standard error of the replicates' means: no better one could show.
    """
    if config.target == "hierarchical":
        return _choose_units(experiment, config, data, reporter)
    kept: PointChoice | None = None
    tried, best = [], np.inf
    judged = data.at_once if data.validation is None else data.validation
    if data.some is not None:
        num, total = data.some.num_trajectories, data.train.num_trajectories
        reporter.say(f"maximum likelihood: from {num} of {total} training trajectories, chosen at random")
    for name, candidate in experiment.candidates(config).items():
        start = untrained(experiment, candidate)
        with reporter.task(f"maximum likelihood, {name}") as task:
            model = fit_point(candidate, start, data.at_once, data.scaling, on_step=task.at)
            error = rms_error(model, judged)
        reporter.say(f"maximum likelihood: {name}, validation error {error:.4g} (scaled)")
        tried.append({"name": name, "error": error})
        if kept is None or error < WORTHWHILE * best:
            kept, best = PointChoice(name, candidate, model, tried, start), error
        if best < replicates_mean(judged).standard_error:
            break
    assert kept is not None
    return settle_noise(kept, data)


def _choose_units(experiment: Experiment, config: Config, data: Prepared, reporter: Reporter) -> PointChoice:
    """The plainest of a hierarchical fit's candidates whose log score on held-out units is good."""
    candidates = experiment.candidates(config)
    if len(candidates) == 1:
        (name,) = candidates
        start = candidates_of_units.starting_point(experiment, config, untrained(experiment, config), data.train)
        return PointChoice(name, candidates[name], start, [], start)
    with reporter.task("effects of units"):
        found = judge_candidates(experiment, config, data.train, data.validation, data.scaling)
    tried = [{"name": name, "error": error} for name, error in found.errors.items()]
    name = found.best
    return PointChoice(name, candidates[name], found.models[name], tried, found.starts[name])


def plainest(tried: Sequence[Mapping[str, Any]], worthwhile: float) -> str:
    """The name of the first candidate whose error no later one lowers by the worthwhile factor."""
    kept = tried[0]
    for one in tried[1:]:
        kept = one if one["error"] < worthwhile * kept["error"] else kept
    return kept["name"]


def fit_point(config: Config, model: Any, train: Dataset, scaling: Scaling, *, on_step: OnStep | None = None) -> Any:
    """The model at its maximum likelihood; the data are scaled."""
    options = config.mle
    units = search_units(model, train) if options.units == "automatic" else None
    sigma = None
    if options.weighting == "replicates":
        sigma = replicate_spread(train, mode_numbers(config, train, scaling))
    return fit_mle(
        model,
        train,
        num_adam=options.num_adam,
        num_lbfgs=options.num_lbfgs,
        learning_rate=options.learning_rate,
        penalty=options.penalty,
        sigma=sigma,
        units=units,
        on_step=on_step,
    ).model


def settle_noise(point: PointChoice, data: Prepared) -> PointChoice:
    """The point with its noise in two parts, constant and proportional, where that is asked for or evident."""
    asked = point.config.noise
    if point.config.target == "hierarchical":  # noise is estimated with the family
        return point
    if asked.kind != "inferred" or asked.proportional is False or point.model.log_noise is None:
        return point
    noise = asked.model_copy(update={"proportional": True})
    config = point.config.model_copy(update={"noise": noise})
    levels = noise_levels(config, data.scaling)
    assert levels is not None
    found = noise_parts(point.model, data.at_once, levels)
    if asked.proportional == "auto" and not found.is_proportional.any():
        plain = asked.model_copy(update={"proportional": False})
        return point._replace(config=point.config.model_copy(update={"noise": plain}))
    log_noise = jnp.asarray(found.log_noise, point.model.log_noise.dtype)
    model = eqx.tree_at(lambda m: m.log_noise, point.model, log_noise)
    return point._replace(config=config, model=model)
