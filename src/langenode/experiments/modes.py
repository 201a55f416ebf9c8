"""Two modes of a count: the valley between them, their weights, means and widths, and the memory of their noise."""

from typing import NamedTuple

import numpy as np

from langenode._types import Float, Int


class ModeSummary(NamedTuple):
    """Probability of the low mode, and mean and standard deviation of each; NaN where a mode is empty."""

    p_low: float
    low_mean: float
    low_std: float
    high_mean: float
    high_std: float


def valley(counts: Int[np.ndarray, " count"], probabilities: Float[np.ndarray, " count"]) -> float:
    """Return the least likely count between the two peaks of an exact law; halfway if there is only one peak."""
    inner = probabilities[1:-1]
    peaks = 1 + np.flatnonzero((inner > probabilities[:-2]) & (inner >= probabilities[2:]))
    peaks = peaks[np.argsort(probabilities[peaks])[-2:]]
    low, high = int(peaks.min()), int(peaks.max())
    if low == high:
        return float(counts[low])
    return float(counts[low + int(np.argmin(probabilities[low:high]))])


def mode_summary(values: np.ndarray, split: float, *, weights: np.ndarray | None = None) -> ModeSummary:
    """Return weights, means and widths of the modes below and above `split`, of samples or of a weighted grid."""
    weights = np.ones(len(values)) if weights is None else weights
    is_low = values < split

    def moments(chosen: np.ndarray) -> tuple[float, float]:
        mass = weights[chosen].sum()
        if mass <= 0.0:
            return float("nan"), float("nan")
        mean = (weights[chosen] * values[chosen]).sum() / mass
        variance = (weights[chosen] * (values[chosen] - mean) ** 2).sum() / mass
        return float(mean), float(np.sqrt(variance))

    return ModeSummary(float(weights[is_low].sum() / weights.sum()), *moments(is_low), *moments(~is_low))


def mode_shares(values: np.ndarray, modes: ModeSummary, reach: float = 3.0) -> dict[str, float]:
    """Return the fractions of samples at the low and the high mode, within `reach` standard deviations of each.

    The rest is at neither. A sample counts for the nearer mode where the two overlap.
    """
    low = np.abs(values - modes.low_mean) / modes.low_std
    high = np.abs(values - modes.high_mean) / modes.high_std
    at_low, at_high = (low <= reach) & (low <= high), (high <= reach) & (high < low)
    return {"at_low": float(at_low.mean()), "at_high": float(at_high.mean())}


def increment_memory(trajectories: Float[np.ndarray, "traj time"], split: float) -> dict[str, float | None]:
    """Return the lag-1 autocorrelation of the increments within each mode, over the last half of the time.

    It uses trajectories that stay on one side of `split` there. None where a mode is empty or its increments vanish.
    """
    late = trajectories[:, trajectories.shape[1] // 2 :]
    found: dict[str, float | None] = {}
    for name, stays in (("low", np.all(late < split, axis=1)), ("high", np.all(late >= split, axis=1))):
        steps = np.diff(late[stays], axis=1)
        steps = steps - steps.mean() if steps.size else steps
        power = float((steps**2).mean()) if steps.size else 0.0
        found[name] = float((steps[:, 1:] * steps[:, :-1]).mean() / power) if power > 1e-12 else None
    return found
