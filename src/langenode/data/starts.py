"""Where trajectories start: from their first readings, for data that does not say it."""

import dataclasses

import numpy as np

from langenode.data.checks import DataError, is_constant
from langenode.data.dataset import Dataset
from langenode.data.scaling import moments


def with_observed_start(data: Dataset) -> Dataset:
    """The data with the first reading of every output as `initial`, and those cells masked.

    They are conditioned on, so neither fitted nor scored. Where an output is missing at the first time its
    next reading serves; where a trajectory has none, the mean of the other trajectories' starts does. Data that
    has a start is returned as it is.
    """
    if data.initial is not None:
        return data
    readings, seen, first = _first_readings(data)
    unknown = [name for index, name in enumerate(data.output_names) if not seen[:, index].any()]
    if data.num_trajectories and unknown:
        raise DataError(
            f"the start of a trajectory must be known; output {unknown[0]!r} is never observed; give the outputs at "
            "the first time, or the start with --initial"
        )
    for column in range(data.num_outputs):
        known = readings[seen[:, column], column]
        readings[~seen[:, column], column] = moments(known)[0]
    mask = data.mask.copy()
    np.put_along_axis(mask, first[:, None, :], False, axis=1)
    return dataclasses.replace(data, initial=readings, mask=mask)


def from_first_complete_row(data: Dataset) -> Dataset:
    """The data without the rows before the first in which every output was read: there the start is known.

    Without it a start would have to be taken from a later reading. Left whole are trajectories with a given start,
    replicates (which share their times), and those without a complete row in their first half.
    """
    if data.initial is not None or data.num_trajectories == 0:
        return data
    lengths = data.lengths
    complete = np.asarray(data.mask.all(axis=2))
    shift = complete.argmax(axis=1)
    alone = np.bincount(data.condition)[data.condition] == 1
    shift = np.where(alone & np.any(complete, axis=1) & (2 * shift < lengths), shift, 0)
    source = np.arange(data.num_times)[None, :] + shift[:, None]
    is_valid = source < lengths[:, None]
    source = np.minimum(source, lengths[:, None] - 1)  # padding repeats the last row
    rows = np.arange(data.num_trajectories)[:, None]
    moved = dataclasses.replace(
        data,
        times=data.times[rows, source],
        inputs=data.inputs[rows, source],
        outputs=data.outputs[rows, source],
        mask=data.mask[rows, source] & is_valid[..., None],
    )
    return moved.select(slice(None))


def starts_agree(data: Dataset, tolerance: float | int = 0.2) -> bool:
    """Whether the first readings of replicates scatter by less than `tolerance` of their output's deviation.

    Judged in every condition with several members by the standard deviation of their first readings. If not,
    trajectories of equal times and inputs are hardly replicates: see `separate_by_start`.
    """
    readings, seen, _ = _first_readings(data)
    for column in range(data.num_outputs):
        values = data.outputs[..., column][data.mask[..., column]]
        if is_constant(values):
            continue
        shift, scale = moments(values)
        for label in range(data.num_conditions):
            members = readings[(data.condition == label) & seen[:, column], column]
            if len(members) > 1 and np.std((members - shift) / scale, ddof=1) >= tolerance:
                return False
    return True


def separate_by_start(data: Dataset) -> Dataset:
    """The same data with every trajectory a condition of its own, named like its unit where units tell them apart."""
    names = tuple(data.unit_names[i] for i in data.unit) if data.num_units == data.num_trajectories else ()
    return dataclasses.replace(data, condition=np.arange(data.num_trajectories), condition_names=names)


def _first_readings(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first observed value of every output, whether there is one, and its index: each (traj, out)."""
    if data.num_trajectories == 0:
        shape = (0, data.num_outputs)
        return np.zeros(shape), np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
    first = data.mask.argmax(axis=1)
    readings = np.take_along_axis(data.outputs, first[:, None, :], axis=1)[:, 0]
    return readings, np.asarray(data.mask.any(axis=1)), first
