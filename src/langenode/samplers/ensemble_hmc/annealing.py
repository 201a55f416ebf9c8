"""Powers of the likelihood on the way from the prior to the posterior, and the log-evidence that the way gives."""

from collections.abc import Sequence

import numpy as np

from langenode._types import Float
from langenode.scores.diagnostics import LogEvidence

# Relative effective sample size of the members' weights from one power to the next.
TARGET_ESS = 0.5
# Log-likelihoods are raised to this many spreads (of the middle 80 %) below the median: one lost member sets no power.
TAIL = 3.0
# No power is raised by less than this part, so that the way has an end: where more than half of the members are lost in
# places that they cannot leave, their weights allow hardly any rise, and 1.01 took more than 250 powers.
LEAST_RISE = 1.15
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


def log_evidence(powers: Float[np.ndarray, " power"], ways: Sequence[Float[np.ndarray, "power member"]]) -> LogEvidence:
    """A rough log-evidence from log-likelihoods on the way up to the posterior and on the way down again.

    Members lag behind the powers: their log-likelihoods are too low on the way up and too high on the way down. The
    value is the mean of both ways, and half their difference is a part of its error; the other is a jackknife over
    members, whose values along the path depend on each other.
    """
    values = [_stones(powers, way) for way in ways]
    num = ways[0].shape[1]
    left_out = [np.mean([_stones(powers, np.delete(way, i, axis=1)) for way in ways]) for i in range(num)]
    sampling = np.sqrt((num - 1) * np.var(left_out))
    return LogEvidence(float(np.mean(values)), float(np.hypot(sampling, 0.5 * np.ptp(values))))


def _stones(powers: np.ndarray, path: np.ndarray) -> float:
    """The sum of log ratios c of neighbouring normalisers by Bennett's method, whose averages no tail dominates.

    With `x = d L` for a rise d of the power, `mean s(x - c)` at the lower power equals `mean s(c - x)` at the upper
    one, s being the logistic function. Found by bisection, all stones at once.
    """
    from scipy.special import expit

    rise = np.diff(powers)[:, None]
    below, above = rise * path[:-1], rise * path[1:]
    both = np.concatenate([below, above], axis=1)
    low, high = both.min(axis=1), both.max(axis=1)
    for _ in range(NUM_BISECTIONS):
        middle = 0.5 * (low + high)
        surplus = expit(below - middle[:, None]).mean(axis=1) - expit(middle[:, None] - above).mean(axis=1)
        low, high = np.where(surplus > 0.0, middle, low), np.where(surplus > 0.0, high, middle)
    return float((0.5 * (low + high)).sum())
