"""One model for all trajectories, or units that differ: decided by the errors on trajectories that were held out.

Where a trajectory follows from its start and its inputs, one neural ODE for all predicts it, and learns from far fewer
trajectories than a distribution of units needs. Where units differ beyond that, no single set of weights serves them.
Which of the two it is, only held-out trajectories show.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from langenode._types import Float
from langenode.data import Dataset
from langenode.experiments import own
from langenode.experiments.base import Experiment
from langenode.experiments.unit_choices import with_units
from langenode.fitting import build, cross, plan, points
from langenode.fitting.choose import asked_for
from langenode.fitting.cross import DIVERGED, FoldData
from langenode.fitting.plan import FilePlan
from langenode.fitting.progress import QUIET, Reporter
from langenode.fitting.units.candidates import starting_point
from langenode.fitting.units.errors import NUM_DRAWS, unit_errors
from langenode.fitting.units.solving import fit_candidate
from langenode.inference.hierarchical.conditional import stacked
from langenode.inference.point_fit import fitted_outputs

# Numbers of latent inputs with which units are tried; the fit itself tries more.
LATENTS = (1, 2)
# One model for all must be better by this many nats per reading and this many standard errors of the difference. Units
# have a spread of their own at every time, which mean errors do not see: on tables where both predict about as well,
# the bands of units were the better ones.
MARGIN, NUM_ERRORS = 0.3, 1.0
# Entropy of a normal number of standard deviation one.
NORMAL_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)
UNITS_PREDICT = "units that differ predict held-out trajectories as well or better"
ONE_PREDICTS = "one model for all predicts held-out trajectories better"

# The divisions of the data as a configuration sees them.
Divisions = Callable[[Any], Sequence[FoldData]]


class Compared(NamedTuple):
    """Log densities of a held-out reading, as normal errors of the size that each target makes have."""

    posterior: float
    hierarchical: float
    standard_error: float  # of the difference, by division; zero for a single one

    @property
    def needed(self) -> float:
        """By how much one model for all must be better."""
        return MARGIN + NUM_ERRORS * self.standard_error

    @property
    def target(self) -> str:
        """One model for all where it is clearly better."""
        return "posterior" if self.posterior > self.hierarchical + self.needed else "hierarchical"

    @property
    def why(self) -> str:
        """Both numbers, for people."""
        return (
            f"{ONE_PREDICTS if self.target == 'posterior' else UNITS_PREDICT}: log density of a reading "
            f"{self.hierarchical:.2f} with units that differ, {self.posterior:.2f} with one model for all, which must "
            f"be better by {self.needed:.2g}"
        )


def compare_targets(
    experiment: Experiment, one: Any, units: Any, parts: Divisions, reporter: Reporter = QUIET
) -> Compared:
    """Compare the plainest model of configuration `one` with few latent inputs of `units`, at maximum likelihood."""
    with reporter.task("one model for all, or units that differ"):
        plain = _log_densities([one_error(experiment, one, part) for part in parts(one)])
        of_units = [
            _log_densities([units_error(experiment, tried, part) for part in parts(units)]) for tried in _tried(units)
        ]
    best = max(of_units, key=np.mean)
    difference = plain - best
    with np.errstate(invalid="ignore"):
        error = difference.std(ddof=1) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return Compared(float(plain.mean()), float(best.mean()), float(np.nan_to_num(error)))


def one_error(experiment: Experiment, config: Any, part: FoldData) -> Float[np.ndarray, " out"]:
    """Root mean square errors of one model for all, followed from the start of what is held out; in scaled units."""
    candidate = next(iter(experiment.candidates(config).values()))
    model = points.fit_point(candidate, build.untrained(experiment, candidate), part.train, part.scaling)
    error = part.held_out.outputs - fitted_outputs(model, part.held_out)
    return _rms(np.where(part.held_out.mask, np.nan_to_num(error, nan=np.inf), np.nan))


def units_error(experiment: Experiment, config: Any, part: FoldData) -> Float[np.ndarray, " out"]:
    """The same for the mean prediction of units, given the readings with which they start."""
    start = starting_point(experiment, config, build.untrained(experiment, config), part.train)
    family = fit_candidate(config, start, part.train, part.scaling)
    key = jax.random.key(config.seed)
    return _rms(unit_errors(config, stacked([family]), part.held_out, part.scaling, NUM_DRAWS, key=key).error)


def is_open(asked: Mapping[str, Any], config: Any) -> bool:
    """Whether units that differ were proposed for the data, and nothing was asked for that only they have."""
    of_units = {"target", "stochastic", "method", "hierarchical"} & set(asked)
    of_units |= {"units", "num_latent", "clock"} & set(asked.get("model", {}))
    return config.target == "hierarchical" and not of_units


def settle_data(
    data: Dataset, asked: Mapping[str, Any], config: Any, validation: Dataset | None, reporter: Reporter
) -> Compared | None:
    """Compare for data that are in memory; None where nothing is held out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they have been issued for the first plan
        experiment, one = plan.plan_data(data, {**asked, "target": "posterior"})
    fitted = plan.as_fitted(data, config, None)
    fold = experiment.folds(config, fitted) if validation is None else None
    if fold is not None:
        return compare_targets(experiment, one, config, folds_of(fitted, fold), reporter)
    aside = (fitted, plan.as_fitted(validation, config, None)) if validation is not None else None
    if aside is None and (config.data.folds is not None or "split" in asked.get("data", {})):
        aside = own.set_aside(fitted, config)
    if aside is None:
        return None
    return compare_targets(experiment, one, config, single_division(*aside), reporter)


def settle_file(
    found: FilePlan, layers: Sequence[Mapping[str, Any]], reporter: Reporter, recorded: str | None = None
) -> FilePlan:
    """The plan with the target that predicts held-out trajectories better; `recorded` is a choice made before."""
    asked = asked_for(layers)
    if not is_open(asked, found.config):
        return found
    path = Path(found.source["path"])
    one = plan.plan_file(path, [*layers, {"target": "posterior"}], read=lambda *_: (found.reading, found.source))
    why = recorded
    if why is None:
        train, held_out = found.splits.train, found.splits.validation
        fold = own.folds(found.config, train)
        parts = single_division(train, held_out) if fold is None else folds_of(train, fold)
        why = compare_targets(own.EXPERIMENT, one.config, found.config, parts, reporter).why
    kept = found if why.startswith(UNITS_PREDICT) else one
    target = own.Choice("target", kept.config.target, why)
    return kept._replace(choices=tuple(target if choice.what == "target" else choice for choice in kept.choices))


def recorded_choice(choices: Sequence[Mapping[str, str]]) -> str | None:
    """Why a run has its target, where that was decided here."""
    found = [one["why"] for one in choices if one.get("what") == "target"]
    return next((why for why in found if why.startswith((UNITS_PREDICT, ONE_PREDICTS))), None)


def folds_of(data: Dataset, fold: np.ndarray) -> Divisions:
    """The divisions of cross-validation, by configuration."""
    return lambda config: cross.divide(config, data, fold)[0]


def single_division(train: Dataset, held_out: Dataset) -> Divisions:
    """One division, by configuration."""

    def divided(config: Any) -> Sequence[FoldData]:
        scaled = build.prepare(config, train, held_out)
        assert scaled.validation is not None
        return [FoldData(scaled.train, scaled.validation, scaled.scaling, held_out)]

    return divided


def _tried(config: Any) -> list[Any]:
    """The configurations of units that are tried: few latent inputs, or smooth curves, which need no such number."""
    if config.model.units in ("auto", "smooth"):
        return [with_units(config, "smooth")]
    latents = [config.model.model_copy(update={"num_latent": number}) for number in LATENTS]
    return [config.model_copy(update={"model": model}) for model in latents]


def _rms(error: np.ndarray) -> Float[np.ndarray, " out"]:
    """By output, of the readings that there are; infinite where a model diverges, NaN where nothing was read."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.nansum(error**2, axis=(0, 1)) / (~np.isnan(error)).sum((0, 1)))


def _log_densities(errors: Sequence[np.ndarray]) -> Float[np.ndarray, " division"]:
    """The mean over outputs, by division; means of these are of geometric means of errors: no single unit decides."""
    found = np.log(np.clip(np.stack(errors), 1e-12, DIVERGED))
    is_known = ~np.isnan(found)
    means = np.where(is_known, found, 0.0).sum(1) / np.maximum(is_known.sum(1), 1)
    return np.where(is_known.any(1), -means - NORMAL_ENTROPY, -math.inf)
