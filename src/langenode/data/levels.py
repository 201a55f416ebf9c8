"""How the spread of an output changes with its level, and whether it can be negative: on which scale it is modelled.

The spread of readings about what trajectories have in common is taken as

    s(m)^2 = a^2 + b^2 m^2

at the level m: a part that is the same everywhere and one in proportion. On the scale z = log(1 + y / k) with the knee
k = a / b it is nearly the same at all levels: linear in y below the knee, logarithmic above.
"""

from typing import Literal, NamedTuple

import numpy as np

from langenode.data.checks import valid_cells
from langenode.data.dataset import Dataset
from langenode.data.names import is_positive_name, is_signed_name
from langenode.data.outliers import robust_spread

LevelKind = Literal["linear", "positive", "log"]

# Knees that are tried, in units of the typical level; beyond the last the scale is linear.
_KNEES = np.geomspace(0.01, 30.0, 60)
# A proportional part counts if it raises twice the log-likelihood by this much: by chance alone once in a thousand
# times. Readings of one trajectory deviate together, so that each trajectory counts as a few readings only.
_LEAST_GAIN, _INDEPENDENT = 10.8, 4.0
# So many negative readings would be expected of a quantity with symmetric noise; there are none once in 20 times.
_LEAST_NEGATIVE = 3.0
# Fewer are enough where the name is that of a positive quantity.
_LEAST_NEGATIVE_BY_NAME = 0.3
# Positive readings that span this ratio need less evidence.
_LARGE_RATIO, _LEAST_GAIN_OF_WIDE = 100.0, 3.8
_FEWEST, _BINS, _FEWEST_IN_BIN, _FEWEST_FOR_SLOPE = 12, 12, 3, 5
_MOST_PAIRED = 200


class Level(NamedTuple):
    """The scale of one output, its knee (0 unless it is logarithmic), and the reason."""

    kind: LevelKind
    knee: float
    why: str


class Spread(NamedTuple):
    """Spread against level: s^2 = constant^2 + slope^2 level^2, and twice the gain in log-likelihood over slope 0."""

    constant: float
    slope: float
    gain: float
    plain: float  # with slope 0


def spread_against_level(level: np.ndarray, deviation: np.ndarray) -> Spread:
    """Estimate how deviations spread with the level, by maximum likelihood over a grid of knees constant / slope.

    A wild reading does not decide: deviations are cut at five robust spreads.
    """
    typical = float(np.median(np.abs(level))) if level.size else 0.0
    if level.size < _FEWEST or not typical > 0 or not np.any(deviation):
        return Spread(0.0, 0.0, 0.0, 0.0)
    level, bound = level / typical, 5.0 * robust_spread(deviation)
    deviation = np.clip(deviation, -bound, bound) if bound > 0 else deviation
    plain = float(np.sqrt(np.mean(deviation**2)))
    shapes = np.sqrt(_KNEES[:, None] ** 2 + level**2)
    scales = np.sqrt(np.mean((deviation / shapes) ** 2, axis=1))
    scores = -len(level) * np.log(scales) - np.log(shapes).sum(1)
    best = int(np.argmax(scores))
    gain = 2.0 * float(scores[best] + len(level) * np.log(plain))
    return Spread(float(scales[best] * _KNEES[best]), float(scales[best]) / typical, gain, plain)


def find_levels(data: Dataset) -> tuple[Level, ...]:
    """Return the scale of every output, by evidence.

    An output without negative readings is logarithmic if its spread grows with its level. It is positive, linear but
    never below zero, if so many readings are so near to zero that a quantity with either sign would have been read
    below it. Names of quantities that are often negative, such as temperatures, keep it linear.
    """
    return tuple(_level(data, column) for column in range(data.num_outputs))


def knees(data: Dataset, kinds: tuple[LevelKind, ...]) -> np.ndarray:
    """Return the knee of every output of a logarithmic kind, from these data; 0 for the others."""
    return np.array([_knee(data, k) if kind == "log" else 0.0 for k, kind in enumerate(kinds)])


def may_be_logarithmic(data: Dataset, column: int) -> bool:
    """Whether an output has enough readings, none of them negative, and no name of a quantity with a sign."""
    seen = _readings(data, column)
    is_enough = seen.size >= _FEWEST and bool(seen.min() >= 0 and seen.max() > 0)
    return is_enough and not is_signed_name(data.output_names[column])


def _level(data: Dataset, column: int) -> Level:
    name, seen = data.output_names[column], _readings(data, column)
    if seen.size < _FEWEST or seen.min() < 0 or seen.max() <= 0:
        return Level("linear", 0.0, "some readings are negative" if seen.size and seen.min() < 0 else "few readings")
    spread = _spread(data, column)
    if is_signed_name(name):
        return Level("linear", 0.0, "a quantity of this name can be negative")
    low, high = np.quantile(seen, [0.01, 0.99])
    is_wide = seen.min() > 0 and high > _LARGE_RATIO * low
    if spread.gain >= (_LEAST_GAIN_OF_WIDE if is_wide else _LEAST_GAIN):
        knee = _knee(data, column)
        words = f"its readings are not negative, and above {knee:.3g} they spread in proportion to their level"
        return Level("log", knee, words)
    from scipy.special import ndtr

    expected = float(ndtr(-seen / spread.plain).sum()) if spread.plain > 0 else 0.0
    if expected >= (_LEAST_NEGATIVE_BY_NAME if is_positive_name(name) else _LEAST_NEGATIVE):
        return Level(
            "positive", 0.0, f"none of its readings is negative, though about {expected:.2g} would be by chance"
        )
    return Level("linear", 0.0, "its readings stay away from zero, or their spread does not grow with them")


def _readings(data: Dataset, column: int) -> np.ndarray:
    return data.outputs[..., column][data.mask[..., column]]


def _knee(data: Dataset, column: int) -> float:
    """Return where an output's scale turns from linear to logarithmic; never zero, so that a zero can be read."""
    seen = _readings(data, column)
    positive = seen[seen > 0]
    if not positive.size:
        return 1.0
    smallest = 0.1 * float(np.quantile(positive, 0.02))
    found = _spread(data, column)
    knee = found.constant / found.slope if found.slope > 0 else np.inf
    return max(min(knee, float(positive.max())), smallest)


def _spread(data: Dataset, column: int) -> Spread:
    """Estimate the spread against level from deviations of trajectories from their mean."""
    level, deviation, share = _deviations(data, column)
    found = spread_against_level(level, deviation)
    return found._replace(gain=share * found.gain)


def _deviations(data: Dataset, column: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return levels, deviations from them, and how many of the deviations count as independent, as a share.

    Readings within a bin of the time since the start, one per trajectory, deviate from what they have in common: their
    median, and what follows from the trajectory's first reading, which a model starts from. Where trajectories share no
    times a reading deviates from the one expected from its two neighbours.
    """
    mask, values = data.mask[..., column].copy(), data.outputs[..., column]
    rows, first = np.arange(len(values)), mask.argmax(axis=1)
    starts = values[rows, first]
    mask[rows, first] = False
    if not mask.any():
        return np.zeros(0), np.zeros(0), 1.0
    since, row = data.times - data.times[:, :1], np.nonzero(mask)[0]
    edges = np.unique(np.quantile(since[mask], np.linspace(0, 1, _BINS + 1)))
    bins = np.clip(np.searchsorted(edges, since[mask], side="right") - 1, 0, max(len(edges) - 2, 0))
    cells, which = np.unique(bins * data.num_trajectories + row, return_inverse=True)
    means = np.bincount(which, weights=values[mask]) / np.bincount(which)
    levels, deviations = [np.zeros(0)], [np.zeros(0)]
    for number in np.unique(cells // data.num_trajectories):
        here = cells // data.num_trajectories == number
        if here.sum() >= _FEWEST_IN_BIN:
            level, deviation = _within_bin(means[here], starts[cells[here] % data.num_trajectories])
            levels.append(level)
            deviations.append(deviation)
    if sum(map(len, levels)) < _FEWEST:
        return _local_deviations(data, column)
    level, deviation = np.concatenate(levels), np.concatenate(deviations)
    return level, deviation, min(1.0, _INDEPENDENT * data.num_trajectories / len(level))


def _within_bin(values: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the levels that are expected of trajectories with these starts, and the deviations from them.

    Medians, of readings and of slopes between pairs of them (Theil and Sen), are not moved by one wild reading.
    """
    some = slice(_MOST_PAIRED)
    run, rise = (np.subtract.outer(part[some], part[some]) for part in (starts, values))
    is_pair = run != 0
    has_slope = len(values) >= _FEWEST_FOR_SLOPE and is_pair.sum() >= 2 * len(values[some])
    slope = float(np.median(rise[is_pair] / run[is_pair])) if has_slope else 0.0
    rest = values - slope * starts
    expected = np.median(rest) + slope * starts
    lost = 2 if has_slope else 1
    return expected, (values - expected) * np.sqrt(len(values) / (len(values) - lost))


def _local_deviations(data: Dataset, column: int) -> tuple[np.ndarray, np.ndarray, float]:
    levels, deviations = [np.zeros(0)], [np.zeros(0)]
    valid = valid_cells(data.times) & data.mask[..., column]
    for row in range(data.num_trajectories):
        times, values = data.times[row, valid[row]], data.outputs[row, valid[row], column]
        if len(times) < 3:
            continue
        weight = (times[2:] - times[1:-1]) / (times[2:] - times[:-2])
        expected = weight * values[:-2] + (1 - weight) * values[2:]
        scale = np.sqrt(1 + weight**2 + (1 - weight) ** 2)
        levels.append(expected)
        deviations.append((values[1:-1] - expected) / scale)
    return np.concatenate(levels), np.concatenate(deviations), 0.5
