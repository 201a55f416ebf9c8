"""Plain predictors that a fit must beat: training trajectories resampled, a Gaussian process, the start carried on.

Each is a function of training and test data that gives samples of new observations for the test conditions,
`(sample, condition, time, out)`, or None where the data do not allow it. It sees what the fit sees: the start of a test
trajectory where it is known, its times and its inputs, but none of its other readings. In a condition with several
trajectories every sample takes the start of one of them at random, as a fit does.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from langenode.data import FEWEST_REPLICATES, Dataset

Predictor = Callable[..., np.ndarray | None]

# Training trajectories that are resampled, readings that the Gaussian process knows, and those it chooses its kernel
# by: the first is bounded by the work of interpolation, the others by that of factorising a matrix of their size.
MOST_TRAJECTORIES, MOST_READINGS, MOST_CHOOSING = 256, 500, 150
# A trajectory is held beyond its ends for this fraction of its duration before others stand in for it.
HELD = 0.1
# Inputs that differ by less than this fraction of their range are the same.
SAME_INPUT = 1e-3
# Trajectories whose starts are spread over more than this fraction of their duration have no common clock.
COMMON_CLOCK = 0.5
ROWS_AT_ONCE = 4096


def resampled(train: Dataset, test: Dataset, num_samples: int, *, rng: np.random.Generator) -> np.ndarray:
    """Training trajectories, interpolated to the test times: those with the same inputs where there are five or more.

    Times count from the start of each trajectory where trajectories begin at quite different times.
    """
    is_elapsed = not _has_common_clock(train)
    return _resampled(_series(train, is_elapsed=is_elapsed), train, test, num_samples, rng, is_elapsed=is_elapsed)


def carried(train: Dataset, test: Dataset, num_samples: int, *, rng: np.random.Generator) -> np.ndarray | None:
    """The start, carried on with what training trajectories had added to theirs after the same time.

    Not where the start is unknown, or is something else than a reading of the outputs.
    """
    if not _has_start(train) or not _has_start(test):
        return None
    assert test.initial is not None
    series = _series(train, is_elapsed=True, is_increment=True)
    added = _resampled(series, train, test, num_samples, rng, is_elapsed=True)
    return added + test.initial[_members(test, num_samples, rng)][:, :, None, :]


def gp(train: Dataset, test: Dataset, num_samples: int, *, rng: np.random.Generator) -> np.ndarray:
    """A Gaussian process on (time, start, inputs at that time), one per output, with noise.

    Its kernel is a squared exponential with a length per feature plus white noise, by maximum marginal likelihood.
    """
    features, rows = _features(train, test)
    member = _members(test, num_samples, rng)
    condition = np.arange(test.num_conditions)
    samples = np.empty((num_samples, test.num_conditions, test.num_times, test.num_outputs))
    for index in range(test.num_outputs):
        seen = train.mask[..., index]
        mean, std = _regressed(features[seen], train.outputs[..., index][seen], rows.reshape(-1, rows.shape[-1]), rng)
        mean, std = (values.reshape(test.num_trajectories, test.num_times) for values in (mean, std))
        noise = rng.standard_normal((num_samples, len(condition), test.num_times))
        samples[..., index] = mean[member] + std[member] * noise
    return samples


PREDICTORS: dict[str, Predictor] = {"resampled": resampled, "gp": gp, "carried": carried}


# Resampling


class _Series(NamedTuple):
    """Readings of one output along one trajectory, its start included."""

    times: np.ndarray
    values: np.ndarray


def _resampled(
    series: list[list[_Series]],
    train: Dataset,
    test: Dataset,
    num_samples: int,
    rng: np.random.Generator,
    *,
    is_elapsed: bool,
) -> np.ndarray:
    """Draw from the series of the training trajectories at the times of every test condition."""
    order = rng.permutation(train.num_trajectories)[:MOST_TRAJECTORIES]
    cases, own_times = test.cases(), _clock(train.times, is_elapsed)
    samples = np.empty((num_samples, test.num_conditions, test.num_times, test.num_outputs))
    for condition, times in enumerate(_clock(cases.times, is_elapsed)):
        alike = order[_same_inputs(own_times[order], train.inputs[order], times, cases.inputs[condition])]
        chosen = alike if len(alike) >= FEWEST_REPLICATES else order
        for index in range(test.num_outputs):
            samples[:, condition, :, index] = _drawn([series[i][index] for i in chosen], times, num_samples)
    return samples


def _series(data: Dataset, *, is_elapsed: bool, is_increment: bool = False) -> list[list[_Series]]:
    """Return the series of every trajectory and output; increments are over its start."""
    has_start, found = _has_start(data), []
    for trajectory, times in enumerate(_clock(data.times, is_elapsed)):
        found.append([])
        for index in range(data.num_outputs):
            seen = data.mask[trajectory, :, index]
            at, values = times[seen], data.outputs[trajectory, seen, index]
            if has_start and data.initial is not None:
                start, is_later = data.initial[trajectory, index], at > times[0]
                at, values = np.append(times[0], at[is_later]), np.append(start, values[is_later])
                values = values - start if is_increment else values
            found[-1].append(_Series(at, values))
    return found


def _drawn(series: list[_Series], times: np.ndarray, num_samples: int) -> np.ndarray:
    """Return (sample, time) from series in turn, each about equally often; those that reach a time stand in for others.

    Where none reaches it the nearest end is held.
    """
    known = [one for one in series if len(one.times)]
    if not known:
        return np.zeros((num_samples, len(times)))
    values = np.stack([np.interp(times, one.times, one.values) for one in known])
    first, last = (np.array([one.times[end] for one in known])[:, None] for end in (0, -1))
    beyond = np.maximum(np.maximum(first - times, times - last), 0.0)
    reaches = beyond <= np.maximum(HELD * (last - first), beyond.min(axis=0))
    turn = np.arange(num_samples)
    if reaches.all():
        return values[turn % len(known)]
    return np.stack([values[ok, t][turn % ok.sum()] for t, ok in enumerate(reaches.T)], axis=1)


def _same_inputs(own_times: np.ndarray, own_inputs: np.ndarray, times: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Return which training trajectories have these inputs at these times, as far as they reach."""
    tolerance = SAME_INPUT * np.ptp(own_inputs, axis=(0, 1))
    same = np.ones(len(own_times), dtype=bool)
    for row in range(len(own_times)):
        for index in range(inputs.shape[1]):
            path = np.interp(times, own_times[row], own_inputs[row, :, index])
            same[row] &= bool(np.abs(path - inputs[:, index]).max() <= tolerance[index])
    return same


# The Gaussian process


def _features(train: Dataset, test: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return time, start (if it is known of both) and inputs of every row, (traj, time, feature)."""
    is_elapsed = not _has_common_clock(train)
    is_started = train.initial is not None and test.initial is not None
    found = []
    for data in (train, test):
        parts = [_clock(data.times, is_elapsed)[..., None], data.inputs]
        if is_started and data.initial is not None:
            parts.append(np.repeat(data.initial[:, None, :], data.num_times, axis=1))
        found.append(np.concatenate(parts, axis=-1))
    return found[0], found[1]


def _regressed(
    features: np.ndarray, values: np.ndarray, rows: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of new readings in these rows."""
    shift, scale = values.mean(), values.std()
    spread = features.std(axis=0)
    used = spread > 1e-9 * np.maximum(np.abs(features).max(axis=0), 1e-300)
    if scale == 0.0 or len(values) < 3 or not used.any():
        return np.full(len(rows), shift), np.full(len(rows), max(float(scale), 1e-300))
    centre = features[:, used].mean(axis=0)
    known, wanted = ((part[:, used] - centre) / spread[used] for part in (features, rows))
    pick = rng.permutation(len(values))[:MOST_READINGS]
    process = _fitted_process(known[pick], (values[pick] - shift) / scale)
    found = [
        process.predict(wanted[i : i + ROWS_AT_ONCE], return_std=True) for i in range(0, len(wanted), ROWS_AT_ONCE)
    ]
    mean, std = (np.concatenate(part) for part in zip(*found, strict=True))
    return shift + scale * mean, scale * std


def _fitted_process(features: np.ndarray, values: np.ndarray) -> Any:
    """Choose the kernel by some of the readings, then condition on all of them."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    lengths: Any = np.ones(features.shape[1])
    as_it_is: Any = None
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(lengths, (0.1, 100.0)) + WhiteKernel(0.1, (1e-6, 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lengths at their bounds: features without effect
        chosen = GaussianProcessRegressor(kernel).fit(features[:MOST_CHOOSING], values[:MOST_CHOOSING]).kernel_
        return GaussianProcessRegressor(chosen, optimizer=as_it_is, alpha=1e-8).fit(features, values)


# Starts and clocks


def _has_start(data: Dataset) -> bool:
    """Whether the start of every trajectory is known as one number per output."""
    return data.initial is not None and data.initial.shape[1] == data.num_outputs


def _clock(times: np.ndarray, is_elapsed: bool) -> np.ndarray:
    """Return times, or the time since the start of each trajectory."""
    return times - times[:, :1] if is_elapsed else times


def _has_common_clock(train: Dataset) -> bool:
    """Whether times mean the same in all trajectories, or count from the start of each."""
    begin = train.times[:, 0]
    return bool(np.ptp(begin) <= COMMON_CLOCK * np.median(np.ptp(train.times, axis=1)))


def _members(test: Dataset, num_samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return (sample, condition): the trajectory of the condition whose start a sample takes, in turn."""
    columns = []
    for condition in range(test.num_conditions):
        own = rng.permutation(np.flatnonzero(test.condition == condition))
        columns.append(own[np.arange(num_samples) % len(own)])
    return np.stack(columns, axis=1)
