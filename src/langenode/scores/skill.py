"""Skill: the scores of a fit beside those of plain predictors, on the same readings and in the same way.

Scores are kept by trajectory, because readings of one trajectory err together: the error of a ratio of scores is that
of a sample of trajectories. NumPy in, NumPy out, as in `metrics`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Bool, Float
from langenode.scores.metrics import central_bands, crps_of_cells

LEVEL = 90  # of the band whose coverage and width are reported, in percent


class Scores(NamedTuple):
    """Sums over the readings of every trajectory and output. CRPS and widths are in units of `spread`."""

    crps: Float[np.ndarray, "traj out"]
    inside: Float[np.ndarray, "traj out"]  # number of readings inside the band
    width: Float[np.ndarray, "traj out"]
    count: Float[np.ndarray, "traj out"]  # number of readings  # pyright: ignore[reportIncompatibleMethodOverride]


def scores_by_trajectory(
    samples: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "member condition time out"],
    mask: Bool[np.ndarray, "member condition time out"],
    spread: Float[np.ndarray, " out"],
) -> Scores:
    """Score predictions; one row per trajectory that has readings, members first."""
    [(low, high)] = central_bands(samples, [LEVEL])
    inside = (data >= low) & (data <= high)
    width = np.broadcast_to((high - low) / spread, data.shape)
    crps = crps_of_cells(samples, data, mask=mask) / spread
    rows = mask.any(axis=(2, 3))
    sums = [np.where(mask, cells, 0.0)[rows].sum(axis=1) for cells in (crps, inside, width, np.ones(data.shape))]
    return Scores(*sums)


def pooled(parts: Sequence[Scores]) -> Scores:
    """Scores of several divisions of the data as if they were one."""
    return Scores(*(np.concatenate(sums) for sums in zip(*parts, strict=True)))


def mean_crps(scores: Scores) -> float:
    """CRPS in units of the spread: the mean over readings of each output, then over the outputs."""
    return float(_mean(scores.crps.sum(0), scores.count.sum(0)))


def crps_ratio(scores: Scores, other: Scores) -> tuple[float, float | None]:
    """Return the ratio of two CRPS and its standard error; None for one trajectory, which says nothing of others."""
    ours, theirs = mean_crps(scores), mean_crps(other)
    if theirs <= 0.0:  # a predictor without any error
        return (1.0 if ours <= 0.0 else float("inf")), 0.0
    ratios = _without_each(scores) / np.maximum(_without_each(other), 1e-300)
    return ours / theirs, _jackknife(ratios)


def summary(scores: Scores, names: Sequence[str]) -> dict[str, Any]:
    """CRPS and width in units of the spread, and the coverage of the band; CRPS of each output too."""
    count = scores.count.sum(0)
    by_output = np.divide(scores.crps.sum(0), count, out=np.full(len(count), np.nan), where=count > 0)
    return {
        "crps": mean_crps(scores),
        "crps_se": _jackknife(_without_each(scores)),
        "coverage": float(scores.inside.sum() / count.sum()),
        "width": float(_mean(scores.width.sum(0), count)),
        "crps_by_output": dict(zip(names, by_output.tolist(), strict=True)),
    }


def skill(ours: Scores, plain: Mapping[str, Scores | None], names: Sequence[str]) -> dict[str, Any]:
    """Compare a fit with plain predictors; `ratio` is its CRPS over that of the best of them.

    None stands for a predictor that these data do not allow.
    """
    nothing = dict.fromkeys(("crps", "crps_se", "coverage", "width", "crps_by_output"))
    baselines = {key: nothing if one is None else summary(one, names) for key, one in plain.items()}
    known = {key: one for key, one in plain.items() if one is not None}
    best = min(known, key=lambda key: mean_crps(known[key]))
    ratio, error = crps_ratio(ours, known[best])
    return {
        **summary(ours, names),
        "best": best,
        "ratio": ratio,
        "ratio_se": error,
        "num_trajectories": len(ours.count),
        "baselines": baselines,
    }


def _without_each(scores: Scores) -> Float[np.ndarray, " traj"]:
    """Mean CRPS without one trajectory at a time; of a single one nothing is left."""
    if len(scores.count) < 2:
        return np.zeros(0)
    return _mean(scores.crps.sum(0) - scores.crps, scores.count.sum(0) - scores.count)


def _jackknife(values: Float[np.ndarray, " traj"]) -> float | None:
    """Standard error of a number from its values without one trajectory at a time: se² = (n - 1) / n Σ (x_i - x̄)²."""
    return float(np.sqrt((len(values) - 1) * values.var())) if len(values) else None


def _mean(total: np.ndarray, count: np.ndarray) -> Any:
    """Mean per output over readings, then over the outputs that have any, which are on the last axis."""
    means = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return np.nanmean(means, axis=-1)
