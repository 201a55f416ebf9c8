"""Diagnostics of weights: their mutual dependence, and statistics of importance weights.

Evaluated on the host, like `metrics`: NumPy in, NumPy out, 64-bit inside.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Float

_BLOCK = 2**22  # elements in a temporary array, so that memory is linear, not quadratic, in the draws


# Weights whose relative effective sample size is above this are nearly equal.
NEARLY_EQUAL = 0.95


class DistanceCorrelation(NamedTuple):
    """Distance correlation: bias-corrected squared, biased, and the level of the biased one under independence."""

    corrected: Any  # a float for a pair, a (dim, dim) array for a matrix
    biased: Any
    independence: float


class LogEvidence(NamedTuple):
    """Logarithm of the mean weight, and its standard error."""

    value: float
    standard_error: float


def distance_correlation(
    x: Float[np.ndarray, " n"] | Float[np.ndarray, "n p"],
    y: Float[np.ndarray, " n"] | Float[np.ndarray, "n q"],
    *,
    num_permutations: int = 100,
    rng: np.random.Generator,
) -> DistanceCorrelation:
    """Return the distance correlation of two (groups of) variables over n draws.

    `corrected` is the bias-corrected squared value (U-centred; zero mean under independence, may be negative), `biased`
    the usual one in [0, 1], `independence` the 95 % level of `biased` when y is permuted. The cost is O(n²) per
    permutation.
    """
    groups = [values.reshape(len(values), -1).astype(float) for values in (x, y)]
    corrected, biased = _distance_correlations(groups)
    null = [
        _distance_correlations([groups[0], groups[1][rng.permutation(len(y))]])[1][0, 1]
        for _ in range(num_permutations)
    ]
    level = float(np.quantile(null, 0.95)) if null else float("nan")
    return DistanceCorrelation(float(corrected[0, 1]), float(biased[0, 1]), level)


def distance_correlation_matrix(
    weights: Float[np.ndarray, "n dim"], *, num_permutations: int = 10, rng: np.random.Generator
) -> DistanceCorrelation:
    """Return the distance correlation of every pair of columns: two `(dim, dim)` matrices and one scalar level.

    Here `independence` is the *median* of the biased values when every column is permuted independently, pooled over
    pairs and permutations: what the off-diagonal entries of `biased` would be without dependence.
    """
    columns = [weights[:, [index]].astype(float) for index in range(weights.shape[1])]
    corrected, biased = _distance_correlations(columns)
    upper = np.triu_indices(len(columns), k=1)
    null = [
        _distance_correlations([rng.permutation(column) for column in columns])[1][upper]
        for _ in range(num_permutations if len(columns) > 1 else 0)
    ]
    return DistanceCorrelation(corrected, biased, float(np.median(null)) if null else float("nan"))


def num_non_finite(log_weights: Float[np.ndarray, " sample"]) -> int:
    """How many draws have no finite log weight; the functions below give them the weight zero."""
    return int(np.sum(~np.isfinite(log_weights)))


def relative_ess(log_weights: Float[np.ndarray, " sample"]) -> float:
    """Return the effective sample size over the sample size, (Σ w)² / (n Σ w²), in (0, 1]."""
    scaled, _ = _scaled_weights(log_weights)
    return float(scaled.sum() ** 2 / (len(scaled) * np.sum(scaled**2)))


def log_evidence(log_weights: Float[np.ndarray, " sample"]) -> LogEvidence:
    """Return the log of the mean weight, log(1/n Σ w), with its delta-method error std(w) / (sqrt(n) mean(w))."""
    scaled, shift = _scaled_weights(log_weights)
    mean = scaled.mean()
    error = scaled.std(ddof=1) / (np.sqrt(len(scaled)) * mean) if len(scaled) > 1 else np.nan
    return LogEvidence(float(shift + np.log(mean)), float(error))


def is_k_hat_telling(relative_ess: float | None) -> bool:
    """Whether k-hat says anything: weights that are nearly equal have no tail to speak of. None: not known, so yes."""
    return relative_ess is None or not relative_ess > NEARLY_EQUAL


def k_hat(log_weights: Float[np.ndarray, " sample"]) -> float:
    """Shape k of the generalised Pareto distribution of the largest weights (PSIS); below 0.7 they can be trusted.

    The tail is the ceil(min(n/5, 3 sqrt(n))) largest weights, without ties at the threshold. With fewer than five of
    them, and so for equal weights, there is no tail to fit and the result is NaN.
    """
    scaled, shift = _scaled_weights(log_weights)
    num_tail = int(np.ceil(min(0.2 * len(scaled), 3.0 * np.sqrt(len(scaled)))))
    if len(scaled) <= num_tail:
        return float("nan")
    # Compared as logarithms, where different weights stay different even when both underflow.
    shifted = np.where(np.isfinite(log_weights), np.asarray(log_weights, dtype=float), -np.inf) - shift
    threshold = max(np.partition(shifted, -num_tail - 1)[-num_tail - 1], np.log(np.finfo(float).tiny))
    excess = np.sort(np.exp(shifted[shifted > threshold]) - np.exp(threshold))
    return _pareto_shape(excess) if len(excess) >= 5 else float("nan")


def _pareto_shape(excess: Float[np.ndarray, " tail"]) -> float:
    """Return the generalised Pareto shape of sorted excesses by Zhang & Stephens (2009), shrunk weakly to 0.5.

    With θ = -k/σ the profile log likelihood is n (log(-θ/k(θ)) - k(θ) - 1), k(θ) = mean log(1 - θ x). The estimate is k
    at the mean of θ under it, on a grid; the prior is equivalent to ten more excesses with k = 0.5 (PSIS).
    """
    num = len(excess)
    num_grid = 30 + int(np.sqrt(num))
    quartile = excess[int(num / 4 + 0.5) - 1]
    if quartile <= 0.0:  # weights that differ by rounding only
        return float("nan")
    grid = np.arange(num_grid) + 0.5
    theta = 1.0 / excess[-1] + (1.0 - np.sqrt(num_grid / grid)) / (3.0 * quartile)

    def shape(theta: np.ndarray) -> np.ndarray:
        return np.log1p(-theta[:, None] * excess).mean(axis=1)

    log_profile = num * (np.log(-theta / shape(theta)) - shape(theta) - 1.0)
    profile = np.exp(log_profile - log_profile.max())
    k = shape(np.average(theta, weights=profile, keepdims=True)).item()
    return (num * k + 10 * 0.5) / (num + 10)


def _scaled_weights(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights divided by the largest of them, zero where not finite; and the logarithm of the largest."""
    logs = np.where(np.isfinite(log_weights), np.asarray(log_weights, dtype=float), -np.inf)
    shift = float(np.max(logs, initial=-np.inf))
    if not np.isfinite(shift):
        raise ValueError(f"some log weight must be finite; none of {len(logs)} is; check the model under these draws")
    return np.exp(logs - shift), shift


def _distance_correlations(groups: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return bias-corrected squared and biased distance correlations of every pair of groups `(n, p)`.

    Both are a double-centred product of distance matrices a, b, written in raw sums, so that no centred matrix is
    stored: Σ a b - 2/m Σ_i a_i. b_i. + a.. b.. / c, with (m, c) = (n, n²) for the biased one and (n - 2, (n - 1)(n -
    2)) for the corrected one (Székely & Rizzo 2014).
    """
    from scipy.spatial.distance import cdist

    num = len(groups[0])
    if num < 4:
        raise ValueError(f"distance correlation needs four draws or more; found {num}; draw more")
    products = np.zeros((len(groups), len(groups)))
    row_sums = np.empty((len(groups), num))
    step = max(1, _BLOCK // (len(groups) * num))
    for start in range(0, num, step):
        distances = np.stack([cdist(group[start : start + step], group) for group in groups])
        row_sums[:, start : start + step] = distances.sum(axis=2)
        flat = distances.reshape(len(groups), -1)
        products += flat @ flat.T
    totals = row_sums.sum(axis=1)
    by_row, by_total = row_sums @ row_sums.T, np.outer(totals, totals)

    def correlation(divisor: int, total_divisor: int) -> np.ndarray:
        covariance = products - 2.0 / divisor * by_row + by_total / total_divisor
        scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)).clip(min=0.0))
        return np.divide(covariance, scale, out=np.zeros_like(scale), where=scale > 0.0)

    return correlation(num - 2, (num - 1) * (num - 2)), np.sqrt(correlation(num, num**2).clip(min=0.0))


def weight_moments(weights: np.ndarray) -> dict[str, Any]:
    """Return mean, standard deviation and correlation (a number for two weights, a matrix for more)."""
    constant = len(weights) < 2 or np.ptp(weights, axis=0).min() == 0.0  # a std of equal numbers may be rounding
    corr = np.eye(weights.shape[1]) if constant else np.corrcoef(weights.T)
    return {"mean": weights.mean(0), "std": weights.std(0), "corr": corr[0, 1] if weights.shape[1] == 2 else corr}
