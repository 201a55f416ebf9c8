"""Readings that stand apart from all others, named for a person to look at; and spreads that they do not move."""

from typing import NamedTuple

import numpy as np

from langenode.data.dataset import Dataset
from langenode.data.fitness import trajectory_name

# Of a normal distribution: standard deviation over median absolute deviation, and over half the central 80 %.
_PER_MEDIAN_DEVIATION, _PER_CENTRAL_80 = 1.482602218505602, 0.7803041338
# A reading stands apart if the gap to the rest is this many times their range, or if it deviates from both its
# neighbours, to the same side, by this many times what readings usually do and by this many spreads of the output.
_GAPS, _SPIKES, _SPREADS = 2.0, 20.0, 3.0
# More than this share of all readings is no accident but the process.
_MOST = 0.01
_FEWEST_READINGS = 10


class Outlier(NamedTuple):
    """One reading that stands apart: where it is, and the range of all others of its output."""

    output: str
    trajectory: str
    time: float
    value: float
    low: float
    high: float

    def line(self) -> str:
        """Return a warning in one line."""
        return (
            f"{self.output} of {self.trajectory} at time {self.time:g} is {self.value:g}, far from all other readings "
            f"({self.low:g} to {self.high:g}); if it is a fault, correct it or leave the cell empty"
        )


def robust_spread(values: np.ndarray) -> float:
    """Return the standard deviation of a normal distribution with the median deviation of the values.

    Where half of the values are equal, that of the central 80 %, and then the plain standard deviation.
    """
    if values.size == 0:
        return 0.0
    peak = float(np.abs(values).max())
    if peak == 0.0:
        return 0.0
    relative = values / peak
    spread = _PER_MEDIAN_DEVIATION * float(np.median(np.abs(relative - np.median(relative))))
    if not spread > 0.0:
        low, high = np.quantile(relative, [0.1, 0.9])
        spread = _PER_CENTRAL_80 / 2 * float(high - low)
    return peak * (spread if spread > 0.0 else float(np.std(relative)))


def find_outliers(data: Dataset) -> tuple[Outlier, ...]:
    """Return the readings that stand apart, by output, in order of trajectory and time."""
    found = []
    for column, name in enumerate(data.output_names):
        mask, values = data.mask[..., column], data.outputs[..., column]
        if mask.sum() < _FEWEST_READINGS:
            continue
        seen = values[mask]
        peak = float(np.abs(seen).max())
        if peak == 0.0:
            continue
        apart = np.zeros(mask.shape, dtype=bool)
        apart[mask] = _is_apart(seen / peak)
        apart |= _is_spike(values / peak, mask)
        if not 0 < apart.sum() <= max(1, _MOST * mask.sum()):
            continue
        rest = values[mask & ~apart]
        low, high = float(rest.min()), float(rest.max())
        for row, time in np.argwhere(apart):
            where = trajectory_name(data, int(row))
            found.append(Outlier(name, where, float(data.times[row, time]), float(values[row, time]), low, high))
    return tuple(found)


def _is_apart(values: np.ndarray) -> np.ndarray:
    """Whether a value is beyond a gap that is several times the range of the rest; few values may be."""
    order = np.argsort(values)
    ordered, num = values[order], len(values)
    most = max(1, int(_MOST * num))
    apart = np.zeros(num, dtype=bool)
    for count in range(1, most + 1):
        if ordered[-count] - ordered[-count - 1] > _GAPS * (ordered[-count - 1] - ordered[0]):
            apart[order[-count:]] = True
        if ordered[count] - ordered[count - 1] > _GAPS * (ordered[-1] - ordered[count]):
            apart[order[:count]] = True
    return apart


def _is_spike(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Whether a reading is far above both readings beside it, or far below both."""
    spread = robust_spread(values[mask])
    before, after = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    for row in range(len(values)):
        at = np.flatnonzero(mask[row])
        before[row, at[1:]] = np.diff(values[row, at])
        after[row, at[:-1]] = -np.diff(values[row, at])
    steps = np.abs(before[~np.isnan(before)])
    usual = _PER_MEDIAN_DEVIATION * float(np.median(steps)) if steps.size else 0.0
    height = np.where(np.sign(before) == np.sign(after), np.minimum(np.abs(before), np.abs(after)), 0.0)
    return np.nan_to_num(height) > max(_SPIKES * usual, _SPREADS * spread, 1e-12)
