"""Scores of held-out units: as new units, and given their first readings."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from langenode._types import Bool, Float, OnStep
from langenode.config import Config
from langenode.data import Dataset, revealed_start, separate_by_start
from langenode.fitting.build import Streams
from langenode.fitting.units.predicting import UnitPrediction, predict_units
from langenode.inference.predictions import Rule
from langenode.inference.problem import Problem
from langenode.scores import metrics

LEVELS = (50, 90, 95)
# How many first readings of a unit are given; half of them is of each unit's own.
NumGiven = Literal["half"] | int
GIVEN: tuple[NumGiven, ...] = (1, 2, "half")


class HeldOut(NamedTuple):
    """A fit, and units that it did not see: in folds each part has a fit of its own."""

    problem: Problem
    config: Config
    rule: Rule
    test: Dataset


class Scored(NamedTuple):
    """Readings that were not given: CRPS and whether each level's band contains it, and their log density together.

    Of readings below a limit of quantification only the last is known.
    """

    crps: Float[np.ndarray, " reading"]
    inside: Bool[np.ndarray, "level reading"]
    log_density: float
    num_readings: int
    num_units: int


def score_units(parts: Sequence[HeldOut], *, on_step: OnStep | None = None) -> dict[str, Any]:
    """Return `new_units` and `given_units`: CRPS, log score per reading and coverage, in the data's own units."""
    amounts: tuple[NumGiven, ...] = (0, *GIVEN)
    found: dict[NumGiven, list[Scored]] = {amount: [] for amount in amounts}
    for number, part in enumerate(parts):
        for amount, scored in _score_part(part, amounts).items():
            found[amount].append(scored)
        if on_step is not None:
            on_step(number + 1, len(parts), "held-out units")
    rows = [{"num_given": amount, **_pooled(found[amount])} for amount in GIVEN]
    return {"new_units": _pooled(found[0]), "given_units": [row for row in rows if row["num_readings"]]}


def _score_part(part: HeldOut, amounts: Sequence[NumGiven]) -> dict[NumGiven, Scored]:
    data = separate_by_start(part.test)
    shown = revealed_start(data) if part.config.noise.in_start else data
    whole = _predicted(part, data, shown.mask)
    found = {}
    for amount in amounts:
        given = first_readings(shown, amount)
        found[amount] = _scored(part, shown, given, _predicted(part, data, given), whole)
    return found


def _predicted(part: HeldOut, data: Dataset, given: Bool[np.ndarray, "traj time out"]) -> UnitPrediction:
    config = part.config
    key, rng = Streams.of(config.seed).evaluation, np.random.default_rng([config.seed, 7])
    num = config.predict.num_samples
    return predict_units(part.problem, config, data, num, part.rule, key=key, rng=rng, given=given)


def first_readings(data: Dataset, num: NumGiven) -> Bool[np.ndarray, "traj time out"]:
    """Return a mask of what was read at the first times of each unit, trajectory after trajectory."""
    given = np.zeros_like(data.mask)
    for unit in range(data.num_units):
        own = np.flatnonzero(data.unit == unit)
        trajectory, time = np.nonzero(data.mask[own].any(axis=2))
        count = len(time) // 2 if num == "half" else num
        given[own[trajectory[:count]], time[:count]] = True
    return given & data.mask


def _scored(part: HeldOut, shown: Dataset, given: np.ndarray, found: UnitPrediction, whole: UnitPrediction) -> Scored:
    """The log density of the rest given the first readings is that of all less that of the first."""
    asked = shown.mask & ~given
    known = asked & ~is_below(part.config, shown)
    crps = metrics.crps_of_cells(found.observed, shown.outputs[None], mask=known[None])[0]
    bands = metrics.central_bands(found.observed, LEVELS)
    inside = np.array([(low <= shown.outputs) & (shown.outputs <= high) for low, high in bands])
    log_density = float((whole.log_evidence - found.log_evidence).sum())
    assert part.rule.scaling is not None
    log_density += float(np.log(part.rule.scaling.slope_at(shown.outputs))[known].sum())
    units = np.unique(shown.unit[asked.any(axis=(1, 2))])
    return Scored(crps[known], inside[:, known], log_density, int(asked.sum()), len(units))


def is_below(config: Config, data: Dataset) -> Bool[np.ndarray, "traj time out"]:
    """Return which readings are only known to be below the limit of quantification."""
    limit = config.hierarchical.quantification_limit
    return np.zeros_like(data.mask) if limit is None else data.mask & (data.outputs <= np.asarray(limit))


def _pooled(parts: Sequence[Scored]) -> dict[str, Any]:
    crps = np.concatenate([part.crps for part in parts])
    inside = np.concatenate([part.inside for part in parts], axis=1)
    num = sum(part.num_readings for part in parts)
    is_known, by_level = len(crps) > 0, zip(LEVELS, inside, strict=True)
    return {
        "crps": float(crps.mean()) if is_known else None,
        "log_score": sum(part.log_density for part in parts) / num if num else None,
        "coverage": {str(level): float(row.mean()) if is_known else None for level, row in by_level},
        "num_readings": num,
        "num_units": sum(part.num_units for part in parts),
    }
