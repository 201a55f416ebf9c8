"""How far training has moved a sampler: spread and dependence of its draws before and after."""

from typing import Any

import numpy as np

from langenode._types import Float

# A sampler has moved if its standard deviations or its mean changed by a tenth of a standard deviation, or its
# correlations by a tenth, in root mean square. Both sets of draws have the same random numbers, so that a sampler which
# training leaves alone shows no change at all.
LEAST_MOTION = 0.1


def motion(before: Float[np.ndarray, "sample dim"], after: Float[np.ndarray, "sample dim"]) -> dict[str, Any]:
    """Medians of the weights' standard deviations, rms correlations, and changes in units of the first ones."""
    finite = np.isfinite(before).all(1) & np.isfinite(after).all(1)
    before, after = before[finite], after[finite]
    if len(before) < 2:
        return {}
    first, last = (np.maximum(draws.std(0, ddof=1), np.finfo(float).tiny) for draws in (before, after))
    shift = float(np.sqrt(np.mean(((after.mean(0) - before.mean(0)) / first) ** 2)))
    widening = float(np.sqrt(np.mean(np.log(last / first) ** 2)))
    dependence = [_rms_correlation(draws) for draws in (before, after)]
    turned = _rms_difference(before, after)
    return {
        "std_before": float(np.median(first)),
        "std_after": float(np.median(last)),
        "correlation_before": dependence[0],
        "correlation_after": dependence[1],
        "shift": shift,
        "has_moved": max(shift, widening, turned) >= LEAST_MOTION,
    }


def _correlations(draws: np.ndarray) -> np.ndarray:
    """Correlations of all pairs of weights; none of a single weight."""
    if draws.shape[1] < 2:
        return np.zeros(0)
    standard = draws - draws.mean(0)
    standard /= np.maximum(np.linalg.norm(standard, axis=0), np.finfo(float).tiny)
    return (standard.T @ standard)[np.triu_indices(draws.shape[1], 1)]


def _rms_correlation(draws: np.ndarray) -> float:
    pairs = _correlations(draws)
    return float(np.sqrt(np.mean(pairs**2))) if pairs.size else 0.0


def _rms_difference(before: np.ndarray, after: np.ndarray) -> float:
    change = _correlations(after) - _correlations(before)
    return float(np.sqrt(np.mean(change**2))) if change.size else 0.0
