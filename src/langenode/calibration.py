"""How much the noise of predictions must change for 90 % bands to hold 90 % of new trajectories' readings."""

from typing import NamedTuple

import numpy as np

from langenode._types import Float, PRNGKeyArray
from langenode.data import Dataset
from langenode.predictive import Rule, noise_scales, predict
from langenode.problem import Problem

# Of the absolute value of a standard normal number.
NORMAL_QUANTILE_90 = 1.6448536269514722
# Tails that ask for more than this mean another model, not another noise.
LIMITS_OF_TAIL = (0.1, 2.0)
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
    """A factor an output on the noise that was inferred; both data sets are scaled, on the integrator's grid.

    Two things make it differ from one. Residuals are no Gaussian noise where trajectories differ from each other or the
    error of a start is carried along: the 90 % quantile of the standardised training errors tells, output by output.
    And new trajectories scatter more than those that the weights were fitted to: the growth of the mean square from
    training to validation trajectories tells, for all outputs together since there are few.
    """

    def errors(data: Dataset, factor: np.ndarray) -> Errors:
        rule = Rule(noise_factor=factor, starts_at_reading=starts_at_reading)
        return _errors(problem, data, num_samples, rule, key)

    factor = np.ones(train.num_outputs)
    for _ in range(NUM_ROUNDS if starts_at_reading else 1):
        factor = _tail_factor(errors(train, factor))
    fitted, new = (errors(data, factor).standardised(factor) for data in (train, validation))
    return factor * np.sqrt(_growth(fitted, new))


def _errors(problem: Problem, data: Dataset, num_samples: int, rule: Rule, key: PRNGKeyArray) -> Errors:
    """One row a trajectory that has readings."""
    known = predict(problem, data, num_samples, key=key)
    outputs = np.asarray(known.outputs, float)
    noise = np.broadcast_to((noise_scales(problem, known.weights) ** 2).mean(0), outputs.shape[1:])
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


def _tail_factor(errors: Errors) -> Float[np.ndarray, " out"]:
    """The factor with which 90 % of the errors lie within 1.645 standard deviations, by bisection."""
    low, high = (np.full(errors.error.shape[-1], limit) for limit in LIMITS_OF_TAIL)
    for _ in range(30):
        middle = np.sqrt(low * high)
        tails = np.nanquantile(np.abs(errors.standardised(middle)), 0.9, axis=(0, 1))
        is_narrow = tails > NORMAL_QUANTILE_90
        low, high = np.where(is_narrow, middle, low), np.where(is_narrow, high, middle)
    return np.sqrt(low * high)


def _growth(fitted: Float[np.ndarray, "traj time out"], new: Float[np.ndarray, "traj2 time2 out"]) -> float:
    """How much more new trajectories scatter: a ratio of mean squares, at least one.

    By medians over trajectories, so that one outside the range of training does not set it, and drawn towards one by as
    much as chance explains (the standard error of a difference of medians).
    """
    logs = [np.log(np.nanmean(part**2, axis=(1, 2)) + 1e-300) for part in (fitted, new)]
    difference = float(np.median(logs[1]) - np.median(logs[0]))
    variance = 0.5 * np.pi * sum(_robust_variance(part) / len(part) for part in logs)
    if difference <= 0.0:
        return 1.0
    return float(np.exp(difference * max(0.0, 1.0 - variance / difference**2)))


def _robust_variance(values: Float[np.ndarray, " traj"]) -> float:
    """The variance of a normal law with the same quartiles."""
    return float((np.subtract(*np.quantile(values, (0.75, 0.25))) / 1.349) ** 2)
