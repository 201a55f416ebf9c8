"""Whether the units of a population fall into several groups: Hartigan's dip test on principal scores of trajectories.

The dip is the distance of the empirical distribution from the nearest distribution with one mode (Hartigan and
Hartigan, Annals of Statistics 13, 1985). Its critical values are those of uniform samples, which have the largest dips
of all distributions with one mode: a skewed or heavy-tailed population is not called several more often than a uniform
one is.
"""

import itertools
from typing import NamedTuple

import numpy as np

from langenode._types import Float
from langenode.data.dataset import Dataset

# How often one mode is called several, at most.
FALSE_ALARMS = 0.05
# Units of a condition below which two groups cannot be distinguished from chance.
FEWEST_UNITS = 10
# Conditions and components that are looked at, by the number of units and by the variance.
MOST_CONDITIONS, MOST_COMPONENTS = 10, 2
# Share of the variance below which the groups along a component do not matter.
LEAST_SHARE = 0.1

# `sqrt(n)` times the dip that uniform samples of n exceed at these levels: benchmarks/dip_levels.py, seed 0.
SIZES = (10, 20, 50, 100, 200, 500)
LEVELS = (0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
CRITICAL = np.array(
    [
        (0.440, 0.477, 0.504, 0.531, 0.558, 0.572),
        (0.470, 0.511, 0.536, 0.566, 0.594, 0.618),
        (0.493, 0.540, 0.569, 0.599, 0.635, 0.658),
        (0.510, 0.556, 0.587, 0.612, 0.660, 0.684),
        (0.523, 0.574, 0.610, 0.644, 0.676, 0.710),
        (0.533, 0.585, 0.621, 0.648, 0.684, 0.710),
    ]
)


class Modes(NamedTuple):
    """Groups along a principal component of the trajectories of one condition: the dip, and what chance may reach."""

    condition: int
    component: int
    num_units: int
    dip: float
    critical: float


def find_modes(data: Dataset) -> Modes | None:
    """The clearest sign of several groups of units in any condition; None where one group may have made the data.

    The false-alarm rate is divided by the number of components that are looked at (Bonferroni).
    """
    counts = np.bincount(data.condition)
    largest = [c for c in np.argsort(-counts, kind="stable")[:MOST_CONDITIONS] if counts[c] >= FEWEST_UNITS]
    scores = [(int(c), k, column) for c in largest for k, column in enumerate(_scores(data, int(c)).T)]
    level = FALSE_ALARMS / max(len(scores), 1)
    found = [Modes(c, k, len(column), dip(column), critical_dip(len(column), level)) for c, k, column in scores]
    clear = [modes for modes in found if modes.dip > modes.critical]
    return max(clear, key=lambda modes: modes.dip / modes.critical) if clear else None


def _scores(data: Dataset, condition: int) -> Float[np.ndarray, "unit component"]:
    """Leading principal scores of the units of a condition, each output in units of its spread.

    What follows linearly from their starts, where these are given, is subtracted: groups of starts are no groups of
    units. Cells that some units lack are left out, and so are units that lack cells which most have.
    """
    rows = np.flatnonzero(data.condition == condition)
    seen = data.mask[rows].mean(0) >= 0.9
    rows = rows[(data.mask[rows] | ~seen).all(1).all(1)]
    if len(rows) < FEWEST_UNITS or not seen.any():
        return np.zeros((len(rows), 0))
    outputs = np.where(seen, data.outputs[rows] - data.outputs[rows].mean(0), 0.0)
    spread = np.sqrt((outputs**2).sum((0, 1)))
    cells = (outputs / np.where(spread > 0.0, spread, 1.0)).reshape(len(rows), -1)
    if data.initial is not None:
        starts = data.initial[rows] - data.initial[rows].mean(0)
        cells = cells - starts @ np.linalg.lstsq(starts, cells, rcond=None)[0]
    scores, singular, _ = np.linalg.svd(cells, full_matrices=False)
    share = singular**2 / max((singular**2).sum(), 1e-300)
    return (scores * singular)[:, :MOST_COMPONENTS][:, share[:MOST_COMPONENTS] >= LEAST_SHARE]


def critical_dip(num: int, level: float) -> float:
    """The dip that a uniform sample of this size exceeds with this probability; interpolated in both logarithms."""
    across = [np.interp(np.log(num), np.log(SIZES), column) for column in CRITICAL.T]
    return float(np.interp(-np.log(level), -np.log(LEVELS), across) / np.sqrt(num))


def dip(values: Float[np.ndarray, " value"]) -> float:
    """Largest distance of the empirical distribution from the nearest one with one mode.

    Outside a modal interval that distribution is the greatest convex minorant on the left of it and the least concave
    majorant on the right. The interval shrinks until it holds no larger distance than there is outside.
    """
    x = np.sort(np.asarray(values, float)).tolist()
    num = len(x)
    if num < 2 or x[0] == x[-1]:
        return 0.5 / max(num, 1)
    below, above = _minorant(x), _majorant(x)
    low, high, largest = 0, num - 1, 1.0
    while True:
        minorant, majorant = _path(below, high, low), _path(above, low, high)
        inside, left, right = _between(x, minorant, majorant)
        if inside < largest:
            break
        outside = max(_below_path(x, minorant[left:]), _above_path(x, majorant[right:]))
        largest = max(largest, outside)
        if (low, high) == (minorant[left], majorant[right]):
            break
        low, high = minorant[left], majorant[right]
    return largest / (2 * num)


def _minorant(x: list[float]) -> list[int]:
    """For every point the one before it on the greatest convex minorant of the distribution up to there."""
    before = [0] * len(x)
    for j in range(1, len(x)):
        i = j - 1
        while i > 0 and (x[j] - x[i]) * (i - before[i]) >= (x[i] - x[before[i]]) * (j - i):
            i = before[i]
        before[j] = i
    return before


def _majorant(x: list[float]) -> list[int]:
    """For every point the one after it on the least concave majorant of the distribution from there."""
    last = len(x) - 1
    after = [last] * len(x)
    for k in range(last - 1, -1, -1):
        i = k + 1
        while i < last and (x[i] - x[k]) * (after[i] - i) >= (x[after[i]] - x[i]) * (i - k):
            i = after[i]
        after[k] = i
    return after


def _path(step: list[int], begin: int, end: int) -> list[int]:
    points = [begin]
    while points[-1] != end:
        points.append(step[points[-1]])
    return points


def _between(x: list[float], minorant: list[int], majorant: list[int]) -> tuple[float, int, int]:
    """The largest distance between both curves, in units of 1 / n, and where on each of them it is.

    The minorant's points are in falling order, the majorant's in rising order.
    """
    if len(minorant) == 2 and len(majorant) == 2:
        return 1.0, 1, 1
    largest, left, right = 0.0, len(minorant) - 1, len(majorant) - 1
    i, k = len(minorant) - 2, 1
    while True:
        m, c = minorant[i], majorant[k]
        if m > c:
            before = minorant[i + 1]
            distance = c - before + 1 - (x[c] - x[before]) * (m - before) / (x[m] - x[before])
            k += 1
            if distance >= largest:
                largest, left, right = distance, i + 1, k - 1
        else:
            before = majorant[k - 1]
            distance = (x[m] - x[before]) * (c - before) / (x[c] - x[before]) - (m - before - 1)
            i -= 1
            if distance >= largest:
                largest, left, right = distance, i + 1, k
        i, k = max(i, 0), min(k, len(majorant) - 1)
        if minorant[i] == majorant[k]:
            return largest, left, right


def _below_path(x: list[float], points: list[int]) -> float:
    """Largest height of the distribution above the minorant through these points, at least 1."""
    largest = 1.0
    for end, begin in itertools.pairwise(points):
        if end - begin > 1 and x[end] != x[begin]:
            slope = (end - begin) / (x[end] - x[begin])
            largest = max(largest, *(j - begin + 1 - (x[j] - x[begin]) * slope for j in range(begin, end + 1)))
    return largest


def _above_path(x: list[float], points: list[int]) -> float:
    """Largest depth of the distribution below the majorant through these points, at least 1."""
    largest = 1.0
    for begin, end in itertools.pairwise(points):
        if end - begin > 1 and x[end] != x[begin]:
            slope = (end - begin) / (x[end] - x[begin])
            largest = max(largest, *((x[j] - x[begin]) * slope - (j - begin - 1) for j in range(begin, end + 1)))
    return largest
