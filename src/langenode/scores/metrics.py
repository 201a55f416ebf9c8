"""Metrics of predictions against data.

Everything here is evaluated on the host: NumPy in, NumPy out, 64-bit inside. Predictions are `(sample, condition, time,
out)`, data are replicates `(member, condition, time, out)` with a mask of the same shape (False is missing; the value
there is ignored). A *cell* is one (condition, time, out). Scores are fair: their expectation does not depend on the
number of samples. Functions that assess the weights rather than the predictions are in `diagnostics`, and are also
exported from here.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from langenode._types import Bool, Float, Int
from langenode.scores.diagnostics import (
    DistanceCorrelation,
    LogEvidence,
    distance_correlation,
    distance_correlation_matrix,
    k_hat,
    log_evidence,
    num_non_finite,
    relative_ess,
    weight_moments,
)

__all__ = [
    "DistanceCorrelation",
    "LogEvidence",
    "central_bands",
    "coverage",
    "crps",
    "crps_of_cells",
    "distance_correlation",
    "distance_correlation_matrix",
    "energy_distance",
    "energy_score",
    "k_hat",
    "log_evidence",
    "num_non_finite",
    "relative_ess",
    "w1",
    "w1_to_law",
    "weight_moments",
]

_BLOCK = 2**22  # elements in a temporary array (32 MB), so that memory is not quadratic in the samples


def w1(
    samples_a: Float[np.ndarray, "sample condition time out"],
    samples_b: Float[np.ndarray, "member condition time out"],
    *,
    mask_b: Bool[np.ndarray, "member condition time out"] | None = None,
    weights_a: Float[np.ndarray, " sample"] | None = None,
) -> Float[np.ndarray, "condition time out"]:
    """Return the exact Wasserstein-1 distance of the marginals in every cell; NaN where a cell has no data.

    W1 = ∫ |F_a(x) - F_b(x)| dx with the empirical distribution functions; sizes may differ, members may be missing, and
    the samples may carry importance weights.
    """
    a, b = cells_first(samples_a), cells_first(samples_b)
    distance = np.full(len(a), np.nan)
    if (mask_b is None or mask_b.all()) and weights_a is None and a.shape == b.shape:
        for cells in blocks(len(a), a.shape[1]):
            distance[cells] = np.abs(np.sort(a[cells]) - np.sort(b[cells])).mean(axis=1)
        return distance.reshape(samples_a.shape[1:])
    mass_a = _normalised(weights_a, a.shape[1])
    present = cells_first(mask_like(samples_b, mask_b)) > 0
    for cells in blocks(len(a), a.shape[1] + b.shape[1]):
        count = present[cells].sum(axis=1, keepdims=True)
        filled = np.where(present[cells], b[cells], a[cells, :1])  # within the range of the samples, so without effect
        values = np.concatenate([a[cells], filled], axis=1)
        mass_b = present[cells] / np.maximum(count, 1)
        mass = np.concatenate([np.broadcast_to(mass_a, a[cells].shape), -mass_b], axis=1)
        distance[cells] = np.where(count[:, 0] > 0, area_between(values, mass), np.nan)
    return distance.reshape(samples_a.shape[1:])


def w1_to_law(
    samples: Float[np.ndarray, "sample time"],
    values: Float[np.ndarray, " value"] | Int[np.ndarray, " value"],
    probabilities: Float[np.ndarray, "time value"],
) -> Float[np.ndarray, " time"]:
    """Return the exact Wasserstein-1 distance of samples to a known law on a grid of values, at every time."""
    num, distance = len(samples), []
    for column, law in zip(np.asarray(samples, float).T, probabilities, strict=True):
        points = np.concatenate([column, values])[None]
        mass = np.concatenate([np.full(num, 1.0 / num), -law / law.sum()])[None]
        distance.append(area_between(points, mass)[0])
    return np.array(distance)


def energy_score(
    samples: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "member condition time out"],
    *,
    mask: Bool[np.ndarray, "member condition time out"] | None = None,
) -> float:
    """Return the fair energy score of whole trajectories, averaged over members and conditions; lower is better.

    ES = 1/R Σ_r ‖x_r - y‖ - 1/(2 R (R-1)) Σ_{r≠r'} ‖x_r - x_r'‖, where the norm is the root mean square over the (time,
    out) cells in which the member y is observed. Members without any observation are left out.
    """
    _need_two(len(samples))
    scores, counts = [], []
    for x, y, patterns, group in _conditions(samples, data, mask):
        for index, cells in enumerate(patterns):
            members = y[group == index]
            if cells.any():
                score = _mean_distance(x, members, cells) - 0.5 * _mean_self_distance(x, cells)
                scores.append(score)
                counts.append(len(members))
    return float(np.average(scores, weights=counts)) if scores else float("nan")


def energy_distance(
    samples: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "member condition time out"],
    *,
    mask: Bool[np.ndarray, "member condition time out"] | None = None,
    fair: bool = True,
) -> float:
    """Return the squared energy distance of whole trajectories, averaged over the pairs of members.

    D² = 2 E‖X - Y‖ - E‖X - X'‖ - E‖Y - Y'‖; no root is taken. If fair, it is unbiased (U-statistics, r≠r') and may be
    slightly negative. Otherwise it is the distance of the two empirical distributions, which is positive even for two
    samples of the same distribution, by (1/R + 1/n) E‖Y - Y'‖ on average: compare it with its floor. The norm is the
    root mean square over the cells in which both members of a pair are observed. A condition needs two members. The
    cost grows with the square of the number of distinct missing patterns.
    """
    _need_two(len(samples))
    own_distance = _mean_self_distance if fair else (lambda rows, cells: _mean_distance(rows, rows, cells))
    distances, counts = [], []
    for x, y, patterns, group in _conditions(samples, data, mask):
        for p in range(len(patterns)):
            for q in range(p, len(patterns)):
                cells, y_p, y_q = patterns[p] & patterns[q], y[group == p], y[group == q]
                num_pairs = len(y_p) * (len(y_p) - fair) / 2 if p == q else len(y_p) * len(y_q)
                if num_pairs == 0 or not cells.any():
                    continue
                within = own_distance(y_p, cells) if p == q else _mean_distance(y_p, y_q, cells)
                cross = _mean_distance(x, y_p, cells) + _mean_distance(x, y_q, cells)
                distances.append(cross - own_distance(x, cells) - within)
                counts.append(num_pairs)
    return float(np.average(distances, weights=counts)) if distances else float("nan")


def crps(
    samples: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "member condition time out"],
    *,
    mask: Bool[np.ndarray, "member condition time out"] | None = None,
    weights: Float[np.ndarray, " sample"] | None = None,
) -> float:
    """Return the fair continuous ranked probability score, averaged over the observed cells; lower is better."""
    scores = crps_of_cells(samples, data, mask=mask, weights=weights)
    present = mask_like(data, mask)
    return float(scores[present].mean()) if present.any() else float("nan")


def crps_of_cells(
    samples: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "member condition time out"],
    *,
    mask: Bool[np.ndarray, "member condition time out"] | None = None,
    weights: Float[np.ndarray, " sample"] | None = None,
) -> Float[np.ndarray, "member condition time out"]:
    """Return the fair continuous ranked probability score of every reading; NaN where there is none.

    CRPS = Σ_r w_r |x_r - y| - Σ_{r≠r'} w_r w_r' |x_r - x_r'| / (2 (1 - Σ_r w_r²)); with equal weights the divisor is 2
    R (R-1). One sort per cell suffices: Σ_{r≠r'} w w' |x - x'| = 2 ∫ F (1 - F) dx. NaN if one sample has all the
    weight.
    """
    _need_two(len(samples))
    x, y, present = cells_first(samples), cells_first(data), cells_first(mask_like(data, mask)) > 0
    mass = _normalised(weights, len(samples))
    unlike = 1.0 - np.sum(mass**2)
    scores = np.full(y.shape, np.nan)
    for cells in blocks(len(x), x.shape[1] + y.shape[1]) if unlike > 0.0 else ():
        centre = x[cells].mean(axis=1, keepdims=True)  # cumulative sums cancel, so keep them small
        seen = np.where(present[cells], y[cells] - centre, x[cells, :1] - centre)
        error, spread = _absolute_error(x[cells] - centre, seen, mass)
        scores[cells] = np.where(present[cells], error - (spread / unlike)[:, None], np.nan)
    return scores.T.reshape(data.shape)


def coverage(
    samples: Float[np.ndarray, "sample condition time out"],
    data: Float[np.ndarray, "member condition time out"],
    *,
    levels: Sequence[int | float] = (50, 90, 95),
    mask: Bool[np.ndarray, "member condition time out"] | None = None,
    weights: Float[np.ndarray, " sample"] | None = None,
) -> dict[str, float]:
    """Return the fraction of observed cells inside the central bands, by level in percent: `{"50": ..., "90": ...}`.

    The band's ends are quantiles at rank p (R + 1) of the ordered samples: then data of the samples' own
    distribution are covered at the nominal rate as long as p (R + 1) >= 1 (the rank p (R - 1) + 1 that NumPy
    defaults to covers 91 % for 95 at R = 50).
    """
    present = mask_like(data, mask)
    result = {}
    for level, (low, high) in zip(levels, central_bands(samples, levels, weights), strict=True):
        inside = (data >= low) & (data <= high)
        result[f"{level:g}"] = float(inside[present].mean()) if present.any() else float("nan")
    return result


def central_bands(
    samples: Float[np.ndarray, "sample condition time out"],
    levels: Sequence[int | float],
    weights: Float[np.ndarray, " sample"] | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the lower and upper end of the central band of every level in percent, each (condition, time, out)."""
    tails = [0.5 - level / 200.0 for level in levels]
    ends = _quantiles(samples, tails + [1.0 - tail for tail in tails], weights)
    return list(zip(ends[: len(tails)], ends[len(tails) :], strict=True))


def cells_first(values: np.ndarray) -> np.ndarray:
    """Reorder `(n, condition, time, out)` to contiguous `(cell, n)` in 64-bit, so that sorting runs along memory."""
    return np.ascontiguousarray(values.reshape(len(values), -1).T, dtype=float)


def mask_like(data: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Return the mask, or one that is True everywhere."""
    return np.ones(data.shape, dtype=bool) if mask is None else mask


def blocks(num_rows: int, row_size: int) -> Iterator[slice]:
    """Yield slices of rows whose temporary arrays stay within the block size."""
    step = max(1, _BLOCK // max(row_size, 1))
    return (slice(start, min(start + step, num_rows)) for start in range(0, num_rows, step))


def _normalised(weights: np.ndarray | None, num_samples: int) -> np.ndarray:
    if weights is None:
        return np.full(num_samples, 1.0 / num_samples)
    if not (np.all(weights >= 0.0) and 0.0 < np.sum(weights) < np.inf):
        found = f"a minimum of {np.min(weights, initial=np.inf)} and a sum of {np.sum(weights)}"
        raise ValueError(
            f"importance weights must be non-negative with a finite, positive sum; found {found}; take exp first"
        )
    return np.asarray(weights, dtype=float) / np.sum(weights, dtype=float)


def _need_two(num_samples: int) -> None:
    if num_samples < 2:
        raise ValueError(f"a fair score needs two samples or more; found {num_samples}; draw more")


def area_between(values: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return ∫ |Σ_{i: value_i <= x} mass_i| dx per row: W1 for masses +1/n of one set and -1/m of the other."""
    area = np.empty(len(values))
    for rows in blocks(*values.shape):
        order = np.argsort(values[rows], axis=1)
        gaps = np.diff(np.take_along_axis(values[rows], order, axis=1), axis=1)
        difference = np.cumsum(np.take_along_axis(mass[rows], order, axis=1), axis=1)[:, :-1]
        area[rows] = np.sum(np.abs(difference) * gaps, axis=1)
    return area


def _conditions(
    samples: np.ndarray, data: np.ndarray, mask: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield per condition: samples and data as rows, the distinct patterns of observed cells, each row's pattern."""
    present = mask_like(data, mask)
    for index in range(samples.shape[1]):
        x = samples[:, index].reshape(len(samples), -1).astype(float)
        y = data[:, index].reshape(len(data), -1).astype(float)
        patterns, group = np.unique(present[:, index].reshape(y.shape), axis=0, return_inverse=True)
        yield x, y, patterns, group.reshape(-1)


def _mean_distance(x: np.ndarray, y: np.ndarray, cells: np.ndarray) -> float:
    """Return the mean over all pairs of rows of the root mean square difference in the chosen cells."""
    from scipy.spatial.distance import cdist

    x, y = x[:, cells], y[:, cells]
    total = sum(cdist(x[rows], y).sum() for rows in blocks(len(x), len(y)))
    return float(total) / (len(x) * len(y) * np.sqrt(cells.sum()))


def _mean_self_distance(x: np.ndarray, cells: np.ndarray) -> float:
    """Return the same over pairs of different rows of one set: zero distances of a row to itself are not counted."""
    return _mean_distance(x, x, cells) * len(x) / (len(x) - 1)


def _absolute_error(x: np.ndarray, y: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ_r w_r |x_r - y| for every y, and ∫ F (1 - F) dx, per row, from one sort of x and y together."""
    values = np.concatenate([x, y], axis=1)
    weight = np.concatenate([np.broadcast_to(mass, x.shape), np.zeros(y.shape)], axis=1)
    order = np.argsort(values, axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    weight = np.take_along_axis(weight, order, axis=1)
    below, moment = np.cumsum(weight, axis=1), np.cumsum(weight * ordered, axis=1)
    spread = np.sum((below * (1.0 - below))[:, :-1] * np.diff(ordered, axis=1), axis=1)
    error = np.empty_like(values)
    np.put_along_axis(error, order, ordered * (2.0 * below - 1.0) + moment[:, -1:] - 2.0 * moment, axis=1)
    return error[:, x.shape[1] :], spread


def _quantiles(samples: np.ndarray, probabilities: Sequence[float], weights: np.ndarray | None) -> list[np.ndarray]:
    """Return weighted quantiles over samples, linear between knots (n m_i + 1/2) / (n + 1).

    m_i is the weight below a sample plus half its own and n = 1 / Σ w² the effective size: with equal weights the knots
    are i / (R + 1). Beyond the outer knots the quantile is the extreme sample.
    """
    mass = _normalised(weights, len(samples))
    values, mass = cells_first(samples[mass > 0.0]), mass[mass > 0.0]
    effective = 1.0 / np.sum(mass**2)
    result = np.empty((len(probabilities), len(values)))
    for cells in blocks(*values.shape):
        order = np.argsort(values[cells], axis=1)
        ordered, weight = np.take_along_axis(values[cells], order, axis=1), mass[order]
        knots = (effective * (np.cumsum(weight, axis=1) - 0.5 * weight) + 0.5) / (effective + 1.0)
        for row, probability in zip(result, probabilities, strict=True):
            right = np.sum(knots < probability, axis=1, keepdims=True)
            pair = np.clip(np.concatenate([right - 1, right], axis=1), 0, ordered.shape[1] - 1)
            (left_x, right_x), (left_p, right_p) = (
                np.take_along_axis(table, pair, axis=1).T for table in (ordered, knots)
            )
            step = np.where(right_p > left_p, right_p - left_p, 1.0)
            row[cells] = left_x + np.clip((probability - left_p) / step, 0.0, 1.0) * (right_x - left_x)
    return [row.reshape(samples.shape[1:]) for row in result]
