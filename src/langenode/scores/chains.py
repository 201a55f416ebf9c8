"""Agreement of Markov chains in function space: what they predict inside and outside the data, and two verdicts.

Hidden units of a network can be exchanged, so chains that agree in all predictions may disagree in every weight.
NumPy in, plain numbers out, 64-bit inside.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from langenode._types import Float

# The evidence for these is in docs/guide/posteriors.md, "Two verdicts".
LARGEST_MEDIAN_INSIDE, LARGEST_INSIDE, LARGEST_LOG_LIKELIHOOD = 1.02, 1.05, 1.05
LARGEST_OUTSIDE, LARGEST_SQUARED_NORM, LARGEST_DRIFT = 1.1, 1.2, 3.0
# Halves of two are the least that have a variance.
FEWEST_DRAWS = 4


class Agreement(NamedTuple):
    """R-hat of the quantities that two verdicts are made of; NaN for a prediction that no draw changes (a known start).

    `drift` is the change of the mean of |z|^2 from the first to the second half of the draws, in standard errors;
    `mean_error` the standard error of predicted means inside the data, in standard deviations of the predictions (root
    mean square over predictions), by the spread of the chains' means.
    """

    inside: Float[np.ndarray, " inside"]
    outside: Float[np.ndarray, " outside"]
    log_likelihood: float
    squared_norm: float
    drift: float
    mean_error: float

    @property
    def is_trusted_inside(self) -> bool:
        """Whether predictions at the training inputs and the log-likelihood agree between chains."""
        spread = spread_of(self.inside)
        is_near = spread is None or (spread["max"] <= LARGEST_INSIDE and spread["median"] <= LARGEST_MEDIAN_INSIDE)
        return bool(is_near and self.log_likelihood <= LARGEST_LOG_LIKELIHOOD)

    @property
    def is_trusted_outside(self) -> bool:
        """Whether predictions beyond the training inputs and |z|^2 agree between chains, and |z|^2 has settled."""
        spread = spread_of(self.outside)
        is_settled = self.squared_norm <= LARGEST_SQUARED_NORM and self.drift <= LARGEST_DRIFT
        return bool(is_settled and (spread is None or spread["max"] <= LARGEST_OUTSIDE))

    @property
    def largest_inside(self) -> float:
        """The largest R-hat inside the data, that of the log-likelihood among them."""
        return float(np.nanmax([*self.inside, self.log_likelihood]))

    def describe(self) -> str:
        """The R-hats in words."""
        text = []
        for where, values in (("inside", self.inside), ("outside", self.outside)):
            if spread := spread_of(values):
                text.append(f"{where} the data {spread['median']:.3f} (largest {spread['max']:.3f})")
        text.append(f"of the log-likelihood {self.log_likelihood:.3f}, of |z|^2 {self.squared_norm:.3f}")
        drift = f"drift of |z|^2 {self.drift:.1f} standard errors"
        return f"R-hat {', '.join(text)}, {drift}, predicted means known to {self.mean_error:.2f} standard deviations"

    def record(self) -> dict[str, Any]:
        """The numbers of metrics.json."""
        found: dict[str, Any] = {
            "rhat_log_likelihood": self.log_likelihood,
            "rhat_squared_norm": self.squared_norm,
            "squared_norm_drift": self.drift,
            "mean_error_in": self.mean_error,
            "trusted_in": self.is_trusted_inside,
            "trusted_out": self.is_trusted_outside,
        }
        for name, values in (("rhat_in", self.inside), ("rhat_out", self.outside)):
            if spread := spread_of(values):
                found[name] = spread
        return found


def spread_of(r_hat: Float[np.ndarray, " number"]) -> dict[str, float] | None:
    """Median and largest of the R-hats that there are; None without any."""
    known = r_hat[~np.isnan(r_hat)]
    return {"median": float(np.median(known)), "max": float(np.max(known))} if len(known) else None


def agreement(
    inside: Float[np.ndarray, "chain draw inside"],
    outside: Float[np.ndarray, "chain draw outside"],
    log_likelihood: Float[np.ndarray, "chain draw"],
    squared_norm: Float[np.ndarray, "chain draw"],
) -> Agreement:
    """Compare chains."""
    norms = np.asarray(squared_norm, float)
    return Agreement(
        inside=_varying(inside),
        outside=_varying(outside),
        log_likelihood=float(split_r_hat(np.asarray(log_likelihood)[..., None])[0]),
        squared_norm=float(split_r_hat(norms[..., None])[0]),
        drift=_drift(norms),
        mean_error=_mean_error(inside),
    )


def _varying(values: np.ndarray) -> np.ndarray:
    return np.where(np.ptp(values, axis=(0, 1)) > 0.0, split_r_hat(values), np.nan)


def split_r_hat(values: Float[np.ndarray, "chain draw number"]) -> Float[np.ndarray, " number"]:
    """Return the potential scale reduction of every number, each chain split into its halves.

    `sqrt((n - 1)/n + B/(n W))`, with W the mean variance within the halves of n draws and B/n the variance of their
    means. Infinite with fewer than four draws, where a number is not finite, and where every half stands still.
    """
    values = np.asarray(values, float)
    half = values.shape[1] // 2
    if values.shape[1] < FEWEST_DRAWS:
        return np.full(values.shape[2], np.inf)
    parts = np.concatenate([values[:, :half], values[:, -half:]])
    within = parts.var(axis=1, ddof=1).mean(axis=0)
    between = parts.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sqrt((half - 1) / half + between / within)
    return np.where(np.isnan(found), np.inf, found)


def _drift(values: Float[np.ndarray, "chain draw"]) -> float:
    """The change of the mean between the halves of the draws, in standard errors over chains."""
    half = values.shape[1] // 2
    if half < 1 or len(values) < 2:
        return math.inf
    change = values[:, -half:].mean(axis=1) - values[:, :half].mean(axis=1)
    error = change.std(ddof=1) / math.sqrt(len(change))
    return float(abs(change.mean()) / error) if error > 0.0 else math.inf


def _mean_error(values: Float[np.ndarray, "chain draw number"]) -> float:
    """The standard error of means over all chains in standard deviations, root mean square; NaN if nothing varies."""
    values = np.asarray(values, float)
    num_chains, num, _ = values.shape
    if num < FEWEST_DRAWS or num_chains < 2:
        return math.nan
    means, variance = values.mean(axis=1), values.var(axis=(0, 1))
    with np.errstate(invalid="ignore"):
        squares = np.where(variance > 0.0, means.var(axis=0, ddof=1) / num_chains / variance, np.nan)
    return float(np.sqrt(np.mean(squares[~np.isnan(squares)]))) if not np.isnan(squares).all() else math.nan


def effective_size(values: Float[np.ndarray, "chain draw number"]) -> float:
    """The median effective sample size of the numbers that vary, by Geyer's initial positive sequence; NaN if none."""
    values = np.asarray(values, float)
    values = values[..., np.ptp(values, axis=(0, 1)) > 0.0] if values.size else values[..., :0]
    num_chains, num, _ = values.shape
    if values.shape[2] == 0 or num < FEWEST_DRAWS:
        return math.nan
    centred = values - values.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * num, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, 2 * num, axis=1)[:, :num].mean(axis=0) / num
    within = covariance[0] * num / (num - 1)
    total = within * (num - 1) / num + values.mean(axis=1).var(axis=0, ddof=1)
    correlation = 1.0 - (within - covariance * num / (num - 1)) / total
    pairs = correlation[: num // 2 * 2].reshape(num // 2, 2, -1).sum(axis=1)
    is_kept = np.cumprod(pairs > 0.0, axis=0)
    times = np.maximum(
        2.0 * (np.minimum.accumulate(pairs, axis=0) * is_kept).sum(axis=0) - 1.0, 1.0 / np.log10(num * num_chains)
    )
    return float(np.median(num_chains * num / times))
