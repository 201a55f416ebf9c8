"""Powers of the likelihood on the way from the prior to the posterior, and the log-evidence that the way gives."""

import numpy as np

from langenode._types import Float
from langenode.scores.diagnostics import LogEvidence

# Relative effective sample size of the members' weights from one power to the next.
TARGET_ESS = 0.5
# Log-likelihoods are raised to this many spreads (of the middle 80 %) below the median: one lost member sets no power.
TAIL = 3.0
# No power is raised by less than this part, so that the way has an end.
LEAST_RISE = 1.01
LEAST_POWER = 1e-12
NUM_BISECTIONS = 60


def next_power(power: float, log_likelihood: Float[np.ndarray, " member"]) -> float:
    """The power at which the members' weights have the wanted effective size, at most one."""
    values = clipped(np.asarray(log_likelihood, float))
    if _relative_ess((1.0 - power) * values) >= TARGET_ESS:
        return 1.0
    low, high = np.log(LEAST_POWER), np.log(1.0 - power)
    for _ in range(NUM_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _relative_ess(np.exp(middle) * values) > TARGET_ESS else (low, middle)
    return float(min(1.0, max(power + np.exp(low), LEAST_RISE * power)))


def clipped(values: Float[np.ndarray, " member"]) -> Float[np.ndarray, " member"]:
    """Log-likelihoods without their lower tail."""
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    return np.maximum(values, middle - TAIL * (high - low))


def _relative_ess(logs: np.ndarray) -> float:
    weights = np.exp(logs - logs.max())
    return float(weights.sum() ** 2 / (len(weights) * np.sum(weights**2)))


def log_evidence(powers: Float[np.ndarray, " power"], path: Float[np.ndarray, "power member"]) -> LogEvidence:
    """A rough log-evidence: stepping stones, the mean of those forward and backward along the path.

    Forward, the ratio of two neighbouring normalisers is `mean exp(d L)` at the lower power; backward, one over `mean
    exp(-d L)` at the upper one. The error is a jackknife over members, whose values along the path depend on each
    other, and half the difference of both directions, which members that lag behind the powers make large.
    """
    forward, backward = _stones(powers, path)
    num = path.shape[1]
    left_out = [np.mean(_stones(powers, np.delete(path, i, axis=1))) for i in range(num)]
    sampling = np.sqrt((num - 1) * np.var(left_out))
    return LogEvidence(0.5 * (forward + backward), float(np.hypot(sampling, 0.5 * (forward - backward))))


def _stones(powers: np.ndarray, path: np.ndarray) -> tuple[float, float]:
    rise = np.diff(powers)[:, None]
    return float(_log_mean_exp(rise * path[:-1]).sum()), float(-_log_mean_exp(-rise * path[1:]).sum())


def _log_mean_exp(logs: np.ndarray) -> np.ndarray:
    highest = logs.max(axis=1, keepdims=True)
    return highest[:, 0] + np.log(np.exp(logs - highest).mean(axis=1))
