"""How long noise remembers: the decay time of its correlation, from residuals."""

from typing import Any

import numpy as np

from langenode._types import Bool, Float

# The decay time is sought between this fraction of the shortest interval and this multiple of the longest span.
SHORTEST, LONGEST = 0.05, 20.0


def estimate_correlation_time(
    residual: Float[np.ndarray, "traj time out"],
    mask: Bool[np.ndarray, "traj time out"],
    times: Float[np.ndarray, "traj time"],
) -> float:
    """The decay time of `corr(t, t') = exp(-|t - t'| / decay)` at its maximum likelihood.

    Residuals are scaled by the noise; their scale is estimated once more with the decay time. Each is compared with
    the observed one before it, which is all that counts for noise with an exponential memory.
    """
    from scipy.optimize import minimize_scalar

    gaps, before, after = _neighbours(residual, mask, times)
    firsts = int(mask.any(axis=1).sum())
    opening = np.take_along_axis(residual, mask.argmax(1)[:, None], axis=1)[:, 0]
    first_squares = float((np.where(mask.any(1), opening, 0.0) ** 2).sum())
    if len(gaps) == 0:
        raise ValueError("a memory of the noise needs two readings of some trajectory; found none; give the time")

    def misfit(log_decay: float) -> float:
        rho = np.exp(-gaps / np.exp(log_decay))
        share = np.maximum(1.0 - rho**2, 1e-12)
        scale = (first_squares + ((after - rho * before) ** 2 / share).sum()) / (firsts + len(gaps))
        return 0.5 * (firsts + len(gaps)) * np.log(scale) + 0.5 * np.log(share).sum()

    bounds = (np.log(SHORTEST * gaps.min()), np.log(LONGEST * np.ptp(times)))
    found: Any = minimize_scalar(misfit, bounds=bounds, method="bounded")
    return float(np.exp(found.x))


def _neighbours(residual: np.ndarray, mask: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, ...]:
    """Gaps in time between an observed reading and the one before, and the two residuals, of all trajectories."""
    found = []
    for row, seen, at in zip(residual, mask, times, strict=True):
        for column in range(residual.shape[2]):
            places = np.flatnonzero(seen[:, column])
            values = row[places, column]
            found.append((np.diff(at[places]), values[:-1], values[1:]))
    parts = (np.concatenate(part) for part in zip(*found, strict=True))
    gaps, before, after = parts
    is_later = gaps > 0.0
    return gaps[is_later], before[is_later], after[is_later]
