"""How much the noise of predictions must change for 90 % bands to hold 90 % of new trajectories' readings."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from langenode._types import Float, PRNGKeyArray
from langenode.data import Dataset
from langenode.inference.predictions import Rule, noise_scales, predict
from langenode.inference.problem import Problem

# Of the absolute value of a standard normal number.
NORMAL_QUANTILE_90 = 1.6448536269514722
# A factor outside means another model, not another noise.
LIMITS = (0.1, 3.0)
# The noise of starts is carried along by the process, not always in proportion: the factor is found again with it.
NUM_ROUNDS = 3


class Errors(NamedTuple):
    """Of every trajectory the readings' distance from the mean prediction, and the variances that explain it."""

    error: Float[np.ndarray, "traj time out"]  # NaN where there is no reading
    from_weights: Float[np.ndarray, "traj time out"]
    from_noise: Float[np.ndarray, "traj time out"]  # of the reading itself and of the start, at factor one

    def standardised(self, factor: Float[np.ndarray, " out"]) -> Float[np.ndarray, "traj time out"]:
        """Errors in predicted standard deviations."""
        return self.error / np.sqrt(self.from_weights + factor**2 * self.from_noise)


def noise_factor(
    problem: Problem,
    train: Dataset,
    validation: Dataset,
    num_samples: int,
    *,
    starts_at_reading: bool = False,
    key: PRNGKeyArray,
) -> Float[np.ndarray, " out"]:
    """One factor per output on the noise that was inferred; both data sets are scaled, on the integrator's grid.

    Residuals are no Gaussian noise where trajectories differ from each other or the error of a start is carried along,
    so the factor is set by the 90 % quantile of the standardised errors of all trajectories. Training trajectories are
    among them because validation trajectories are few, and chance would decide. For a new trajectory to fall inside as
    often as one of n, the level is (n + 1) / n times 90 %.
    """
    factor = np.ones(train.num_outputs)
    for _ in range(NUM_ROUNDS if starts_at_reading else 1):
        rule = Rule(noise_factor=factor, starts_at_reading=starts_at_reading)
        parts = [_errors(problem, data, num_samples, rule, key) for data in (train, validation)]
        factor = _tail_factor(parts)
    return factor


def _errors(problem: Problem, data: Dataset, num_samples: int, rule: Rule, key: PRNGKeyArray) -> Errors:
    """One row per trajectory that has readings."""
    known = predict(problem, data, num_samples, key=key)
    outputs = np.asarray(known.outputs, float)
    noise = np.broadcast_to((noise_scales(problem, known.weights, outputs) ** 2).mean(0), outputs.shape[1:])
    mean, variance = outputs.mean(0), outputs.var(0)
    if rule.starts_at_reading:
        read = np.asarray(predict(problem, data, num_samples, rule, key=key).outputs, float)
        factor = np.asarray(rule.noise_factor)
        noise = noise + np.maximum(read.var(0) - variance, 0.0) / factor**2
        mean = read.mean(0)
    members = data.replicates()
    member, condition = np.nonzero(members.present & members.mask.any((2, 3)))
    seen = members.mask[member, condition]
    error = np.where(seen, members.outputs[member, condition] - mean[condition], np.nan)
    return Errors(error, variance[condition], noise[condition])


def _tail_factor(parts: Sequence[Errors]) -> Float[np.ndarray, " out"]:
    """The factor with which 90 % of the errors lie within 1.645 standard deviations, by bisection."""
    num = sum(len(part.error) for part in parts)
    level = min(0.9 * (num + 1) / num, 1.0)
    low, high = (np.full(parts[0].error.shape[-1], limit) for limit in LIMITS)
    for _ in range(30):
        middle = np.sqrt(low * high)
        cells = [part.standardised(middle).reshape(-1, len(middle)) for part in parts]
        is_narrow = np.nanquantile(np.abs(np.concatenate(cells)), level, axis=0) > NORMAL_QUANTILE_90
        low, high = np.where(is_narrow, middle, low), np.where(is_narrow, high, middle)
    return np.sqrt(low * high)
