"""The size of measurement noise, from the data alone: from repeats of a unit, or from the roughness of trajectories.

Trajectories of different units differ because the units do, and that difference is smooth in time or shared by many
cells; noise is neither. Of each condition the members' mean is subtracted, then the leading principal components that
noise could not have made, then polynomials through neighbouring readings; what remains is noise. Signal that survives
all three counts as noise too, so the estimate is an upper bound.
"""

from typing import NamedTuple

import numpy as np

from langenode._types import Float
from langenode.data.dataset import Dataset

# Orders of the differences that remove a smooth signal; a higher one is used where it removes still more.
ORDERS = (2, 3, 4)
# With fewer degrees of freedom the standard error of the variance exceeds half of it.
FEWEST_DEGREES = 8.0
# A component this many times above what the largest one of pure noise reaches is signal.
SIGNAL_MARGIN = 1.2


class NoiseEstimate(NamedTuple):
    """Standard deviation of the noise of each output, its standard error, and what it was estimated from."""

    sigma: Float[np.ndarray, " out"]
    standard_error: Float[np.ndarray, " out"]
    source: str


class _Sums(NamedTuple):
    """Sums of squares of what is left of the readings; under unit noise their mean and half of their variance."""

    squares: Float[np.ndarray, " out"]
    mean: Float[np.ndarray, " out"]
    half_variance: Float[np.ndarray, " out"]

    @property
    def variance(self) -> np.ndarray:
        return self.squares / np.maximum(self.mean, 1e-300)

    @property
    def degrees(self) -> np.ndarray:
        """Degrees of freedom of the chi-squared distribution with this mean and variance."""
        return self.mean**2 / np.maximum(self.half_variance, 1e-300)

    def estimate(self, source: str) -> NoiseEstimate | None:
        if not np.all(self.degrees >= FEWEST_DEGREES):
            return None
        sigma = np.sqrt(self.variance)
        return NoiseEstimate(sigma, sigma / np.sqrt(2.0 * self.degrees), source)


class _Group(NamedTuple):
    """Members of one condition: what is left of their readings, and the directions that were taken out."""

    times: Float[np.ndarray, " time"]
    values: Float[np.ndarray, "member time out"]
    mask: np.ndarray
    removed: Float[np.ndarray, "component time out"]


def estimate_noise(data: Dataset) -> NoiseEstimate | None:
    """The noise of every output; None where there are too few readings to tell."""
    repeats = _from_repeats(data).estimate("repeats of the same unit")
    return repeats if repeats is not None else _from_roughness(data)


def _from_repeats(data: Dataset) -> _Sums:
    """Scatter of trajectories of one unit in one condition about their mean."""
    total = _Sums(*(np.zeros(data.num_outputs) for _ in _Sums._fields))
    pairs = np.stack([data.unit, data.condition], axis=1)
    for pair in np.unique(pairs, axis=0):
        rows = np.all(pairs == pair, axis=1)
        if rows.sum() > 1:
            values, count = _centred(data.outputs[rows], data.mask[rows])
            degrees = np.maximum(count - 1, 0).sum(0)
            total = _add(total, _Sums((values**2).sum((0, 1)), degrees, degrees))
    return total


def _from_roughness(data: Dataset) -> NoiseEstimate | None:
    """From differences of neighbouring readings of the members' deviations from their mean."""
    groups = [_group(data, label) for label in range(data.num_conditions)]
    found = _differences(groups)
    for _ in range(4):  # with less noise, more components are signal
        if found is None:
            return None
        groups = [_without_signal(_group(data, label), found.variance) for label in range(data.num_conditions)]
        found = _differences(groups)
    return None if found is None else found.estimate("the roughness of trajectories")


def _centred(outputs: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Deviations from the mean over members, zero where there is no reading, and how many members were read."""
    count = mask.sum(0)
    mean = np.where(mask, outputs, 0.0).sum(0) / np.maximum(count, 1)
    return np.where(mask, outputs - mean, 0.0), count


def _group(data: Dataset, label: int) -> _Group:
    rows = np.flatnonzero(data.condition == label)
    mask = data.mask[rows]
    values = _centred(data.outputs[rows], mask)[0] if len(rows) > 1 else np.where(mask, data.outputs[rows], 0.0)
    return _Group(data.times[rows[0]], values, mask, np.zeros((0, *values.shape[1:])))


def _without_signal(group: _Group, noise: np.ndarray) -> _Group:
    """Without the leading principal components of the members that noise of these variances could not have made."""
    seen = group.mask.any(0)
    num = len(group.values)
    if num < 3 or not np.all(group.mask == seen):
        return group
    scale = np.sqrt(np.maximum(noise, 1e-300))
    rows = (group.values / scale)[:, seen]
    _, singular, directions = np.linalg.svd(rows, full_matrices=False)
    edge = SIGNAL_MARGIN * (1.0 + np.sqrt(rows.shape[1] / (num - 1))) ** 2
    most = min(num - 1, rows.shape[1]) // 2
    kept = directions[: min(int((singular**2 / (num - 1) > edge).sum()), most)]
    left, removed = np.zeros_like(group.values), np.zeros((len(kept), *seen.shape))
    left[:, seen] = rows - rows @ kept.T @ kept
    removed[:, seen] = kept
    return group._replace(values=left * scale, removed=removed)


def _differences(groups: list[_Group]) -> _Sums | None:
    """Sums by differences of the lowest order above which no more signal is removed."""
    best = None
    for order in ORDERS:
        num_outputs = groups[0].values.shape[2]
        total = _Sums(*(np.zeros(num_outputs) for _ in _Sums._fields))
        for group in groups:
            for output in range(num_outputs):
                total = _add(total, _of_output(group, output, order))
        if not np.all(total.degrees >= FEWEST_DEGREES):
            break
        is_less = (
            best is None or total.variance.sum() * (1.0 + np.sqrt(2.0 / total.degrees.min())) < best.variance.sum()
        )
        if is_less:
            best = total
    return best


def _of_output(group: _Group, output: int, order: int) -> _Sums:
    """Sums of one condition and output, the others zero."""
    squares, mean, half_variance = 0.0, 0.0, 0.0
    num = len(group.values)
    patterns, which = np.unique(group.mask[:, :, output], axis=0, return_inverse=True)
    share = 1.0 - 1.0 / num if num > 1 else 1.0
    share = share * (num - 1 - len(group.removed)) / max(num - 1, 1)
    for number, seen in enumerate(patterns):
        if seen.sum() <= order:
            continue
        members = group.values[which.ravel() == number][:, seen, output]
        differences = difference_matrix(group.times[seen], order)
        squares += float(((members @ differences.T) ** 2).sum())
        removed = group.removed[:, seen, output]
        left = differences @ differences.T - (differences @ removed.T) @ (removed @ differences.T)
        mean += share * len(members) * float(np.trace(left))
        half_variance += share * len(members) * float((left**2).sum())
    one = np.arange(group.values.shape[2]) == output
    return _Sums(one * squares, one * mean, one * half_variance)


def difference_matrix(times: Float[np.ndarray, " time"], order: int) -> Float[np.ndarray, "window time"]:
    """Differences of `order + 1` neighbours that vanish for polynomials below that order, each of unit norm."""
    num = len(times) - order
    matrix = np.zeros((num, len(times)))
    for window in range(num):
        near = times[window : window + order + 1]
        gaps = (near[:, None] - near) / (near[-1] - near[0]) + np.eye(order + 1)
        weights = 1.0 / gaps.prod(1)
        matrix[window, window : window + order + 1] = weights / np.linalg.norm(weights)
    return matrix


def _add(a: _Sums, b: _Sums) -> _Sums:
    return _Sums(*(x + y for x, y in zip(a, b, strict=True)))
