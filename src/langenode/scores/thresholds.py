"""Thresholds of the verdict: what a perfect model would exceed by chance in a known share of runs.

A perfect model is simulated at the sizes of the run: data are replaced by draws of the fitted model itself, and the
same number is computed again. What the data show is then one more draw of the same kind, if the model is right; the
threshold is a high rank among them. NumPy in, NumPy out, as in `metrics`.
"""

from typing import Any, NamedTuple

import numpy as np

from langenode._types import Bool, Float, Int, OnStep
from langenode.scores.metrics import energy_distance, w1

# The share of runs in which a perfect model fails a check. Four checks can fail by chance (W1, energy distance,
# coverage, training), and their numbers are related: together they fail in at most one run of twenty.
FALSE_ALARM = 0.02
# Draws of the perfect model behind a threshold, and the most sets of predictions that each is compared with.
NUM_NULL, MOST_SETS, FEW_SETS = 100, 8, 3
# Predictions behind a null of energy distances, whose cost grows with their square.
MOST_PAIRED = 512
NOMINAL = 0.9
# The share of the false alarms that a band too narrow gets; one too wide does less harm.
NARROW_SHARE = 0.75
# Blocks of losses whose medians are compared.
NUM_BLOCKS = 4
# What is assumed of the dependence within a trajectory counts as one more trajectory with this correlation.
ASSUMED_CORRELATION = 0.5


class Threshold(NamedTuple):
    """The largest value that passes, and the probability that a perfect model exceeds it."""

    value: float
    false_alarm: float


class CoverageLimits(NamedTuple):
    """Coverages that pass, and the number of independent readings that those of the data are worth."""

    low: float
    high: float
    effective: float
    false_alarm: float

    @property
    def standard_error(self) -> float:
        """The scatter of the coverage of a band that is right."""
        return float(np.sqrt(NOMINAL * (1.0 - NOMINAL) / self.effective))


def upper_threshold(null: Float[np.ndarray, " draw"], rate: float = FALSE_ALARM) -> Threshold:
    """Return the value that one more draw of the same distribution exceeds with probability `rate` at most.

    It is the draw of rank ceil((1 - rate) (B + 1)) among B. With too few of them it is the largest.
    """
    ordered = np.sort(null)
    rank = min(int(np.ceil((1.0 - rate) * (len(ordered) + 1))), len(ordered))
    return Threshold(float(ordered[rank - 1]), (len(ordered) + 1 - rank) / (len(ordered) + 1))


# Distances


def w1_null(
    pool: Float[np.ndarray, "sample condition time out"],
    mask: Bool[np.ndarray, "member condition time out"],
    *,
    is_crossed: bool,
    rng: np.random.Generator,
    on_step: OnStep | None = None,
) -> Float[np.ndarray, " draw"]:
    """Return W1 (mean over cells, median over sets) of predictions to data of the same size that they made themselves.

    `pool` are predictions, three times as many as members or more. They are divided at random into sets of that size,
    the same ones in every condition where units are crossed, otherwise apart in every condition; each set serves as
    data once, and the others as predictions. Then they are divided anew, until there are `NUM_NULL` values.
    """
    size, null = len(mask), []
    while len(null) < NUM_NULL:
        sets = _divided(pool, size, is_crossed, rng)
        ordered = np.sort(sets, axis=1) if mask.all() else None
        for index in range(len(sets)):
            others = _others(index, len(sets))
            if ordered is None:
                distances = [np.nanmean(w1(sets[k], sets[index], mask_b=mask)) for k in others]
            else:
                distances = [np.abs(ordered[k] - ordered[index]).mean() for k in others]
            null.append(np.median(distances))
            _show(len(null), NUM_NULL, "W1", on_step)
    return np.array(null)


def energy_null(
    pool: Float[np.ndarray, "sample condition time out"],
    mask: Bool[np.ndarray, "member condition time out"],
    *,
    is_crossed: bool,
    rng: np.random.Generator,
    on_step: OnStep | None = None,
) -> Float[np.ndarray, " draw"]:
    """Return the same for the energy distance (not the fair one) of trajectories that have the same gaps."""
    from scipy.spatial.distance import cdist

    size, null = len(mask), []
    pool = pool[: max(MOST_PAIRED, 3 * size)]
    pool = pool[: len(pool) // size * size]
    chosen = [condition for condition in range(pool.shape[1]) if mask[0, condition].any()]
    rows = [pool[:, condition][:, mask[0, condition]] for condition in chosen]
    distances = [cdist(row, row) / np.sqrt(row.shape[1]) for row in rows]
    while len(null) < NUM_NULL:
        order = _orders(len(pool), 1 if is_crossed else len(rows), rng)
        means = np.mean([_block_means(d, order[k % len(order)], size) for k, d in enumerate(distances)], axis=0)
        for index in range(len(means)):
            others = _others(index, len(means))
            between = 2.0 * means[others, index] - means[others, others] - means[index, index]
            null.append(np.median(between))
        _show(len(null), NUM_NULL, "energy distance", on_step)
    return np.array(null)


def w1_null_of(
    pool: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "draw member condition time out"],
    mask: Bool[np.ndarray, "member condition time out"],
    on_step: OnStep | None = None,
) -> Float[np.ndarray, " draw"]:
    """Return W1 of predictions to data sets that the model made in its own way, members of each being dependent."""
    sets = _few_sets(pool, len(mask))
    null: list[float] = []
    for made in data:
        null.append(float(np.median([np.nanmean(w1(one, made, mask_b=mask)) for one in sets])))
        _show(len(null), len(data), "W1", on_step)
    return np.array(null)


def energy_null_of(
    pool: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "draw member condition time out"],
    mask: Bool[np.ndarray, "member condition time out"],
    on_step: OnStep | None = None,
) -> Float[np.ndarray, " draw"]:
    """Return the same for the energy distance."""
    sets = _few_sets(pool, len(mask))
    null: list[float] = []
    for made in data:
        null.append(float(np.median([energy_distance(one, made, mask=mask, fair=False) for one in sets])))
        _show(len(null), len(data), "energy distance", on_step)
    return np.array(null)


def _show(done: int, total: int, what: str, on_step: OnStep | None) -> None:
    if on_step is not None:
        on_step(min(done, total), total, f"{what} of a perfect model")


def _few_sets(pool: np.ndarray, size: int) -> list[np.ndarray]:
    return [pool[k * size : (k + 1) * size] for k in range(min(FEW_SETS, len(pool) // size))]


def _divided(pool: np.ndarray, size: int, is_crossed: bool, rng: np.random.Generator) -> np.ndarray:
    """Return the pool as (set, member, condition, time, out), shuffled."""
    order = _orders(len(pool), 1 if is_crossed else pool.shape[1], rng)
    shuffled = np.take_along_axis(pool, order.T[:, :, None, None], axis=0)
    num = len(pool) // size
    return shuffled[: num * size].reshape(num, size, *pool.shape[1:])


def _orders(num: int, num_conditions: int, rng: np.random.Generator) -> Int[np.ndarray, "condition row"]:
    return np.stack([rng.permutation(num) for _ in range(num_conditions)])


def _others(index: int, num: int) -> Int[np.ndarray, " set"]:
    """Return some of the other sets."""
    return (index + 1 + np.arange(min(num - 1, MOST_SETS))) % num


def _block_means(distances: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """Return the mean distance between every two sets of rows."""
    num = len(distances) // size
    member = np.zeros((len(distances), num))
    member[order[: num * size], np.repeat(np.arange(num), size)] = 1.0 / size
    return member.T @ distances @ member


# Coverage


def needed_levels(
    samples: Float[np.ndarray, "sample condition time out"], data: Float[np.ndarray, "member condition time out"]
) -> Float[np.ndarray, "member condition time out"]:
    """Return the level, in (0, 1), of the central band that just reaches every reading: |2 F(y) - 1|."""
    ranks = [((samples < one).sum(axis=0) + 0.5 * (samples == one).sum(axis=0)) / len(samples) for one in data]
    return np.abs(2.0 * np.stack(ranks) - 1.0)


def coverage_limits(
    inside: Float[np.ndarray, " traj"],
    count: Float[np.ndarray, " traj"],
    correlation: float,
    null: Float[np.ndarray, " draw"] | None = None,
    rate: float = FALSE_ALARM,
) -> CoverageLimits:
    """Return the coverages that a 90 % band has by chance, but for a share `rate` of runs.

    Readings of a trajectory err together, so N readings are worth N / (1 + (m - 1) ρ) independent ones, m readings
    per trajectory with intraclass correlation ρ: the larger of `correlation` and that of being inside, with one more
    trajectory that has `ASSUMED_CORRELATION`. The limits are those of a binomial number of that size. `null` are
    coverages under the model itself, whose weights are the same for all trajectories; limits include theirs.
    """
    num, total = len(count), count.sum()
    share = inside.sum() / total
    deviation = inside - share * count
    squares = inside * (1.0 - share) ** 2 + (count - inside) * share**2
    own = intraclass_correlation(deviation, squares, count)
    rho = (num * np.clip(max(correlation, own), 0.0, 1.0) + ASSUMED_CORRELATION) / (num + 1)
    effective = total / (1.0 + ((count**2).sum() / total - 1.0) * rho)
    narrow, wide = rate * NARROW_SHARE, rate * (1.0 - NARROW_SHARE)
    low, high = _binomial_limits(effective, narrow, wide)
    if null is not None:
        low, high = min(low, float(np.quantile(null, narrow))), max(high, float(np.quantile(null, 1.0 - wide)))
    return CoverageLimits(low, high, float(effective), rate)


def intraclass_correlation(
    deviation: Float[np.ndarray, " traj"], squares: Float[np.ndarray, " traj"], count: Float[np.ndarray, " traj"]
) -> float:
    """Correlation of two readings of one trajectory, from sums of deviations and of their squares; 0 if unknown."""
    pairs, variance = (count * (count - 1.0)).sum(), squares.sum() / count.sum()
    return float((deviation**2 - squares).sum() / pairs / variance) if pairs > 0 and variance > 0 else 0.0


def _binomial_limits(num: float, narrow: float, wide: float) -> tuple[float, float]:
    """Return the shares below which, and above which, a binomial share lies with these probabilities.

    P(X <= k) = I_{1-p}(n - k, k + 1), the regularised incomplete beta function, also for n and k that are not whole.
    """
    from scipy.optimize import brentq
    from scipy.special import betainc

    def below(k: float) -> float:
        return 1.0 if k >= num else float(betainc(num - k, k + 1.0, 1.0 - NOMINAL))

    low: Any = 0.0 if below(0.0) >= narrow else brentq(lambda k: below(k) - narrow, 0.0, num)
    # More than n of n cannot be: if even P(X >= n) is above the rate, every reading may be inside.
    high: Any = num if NOMINAL**num >= wide else brentq(lambda k: 1.0 - below(k - 1.0) - wide, 1.0, num)
    return float(low) / num, float(high) / num


# Training


def has_fallen(
    before: Float[np.ndarray, " update"], last: Float[np.ndarray, " update"], rate: float = FALSE_ALARM
) -> bool:
    """Whether a loss has fallen between two stretches of training by more than its scatter.

    A t-test of the medians of a few blocks of each: losses of neighbouring updates are alike, medians of blocks hardly,
    and one wild loss changes none. A loss at rest seems to have fallen with probability `rate`.
    """
    from scipy.special import stdtrit

    first, second = (np.array([np.median(block) for block in _blocks_of(losses)]) for losses in (before, last))
    if len(first) < 2 or len(second) < 2:
        return bool(np.median(before) > np.median(last))
    error = np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    freedom = len(first) + len(second) - 2
    return bool(first.mean() - second.mean() > stdtrit(freedom, 1.0 - rate) * error)


def _blocks_of(losses: np.ndarray) -> list[np.ndarray]:
    return np.array_split(losses, min(NUM_BLOCKS, len(losses)))
