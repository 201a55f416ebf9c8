"""Starts of trajectories, taken from their first readings where the data gives none."""

import dataclasses

import numpy as np

from langenode.data.checks import DataError, is_constant
from langenode.data.dataset import Dataset
from langenode.data.outliers import robust_spread
from langenode.data.scaling import moments

# The attribute that says at which time point the start of every output was read; -1 where it was not.
_START_READ_AT = "start_read_at"
# Of at least so many first readings this share is equal where they are exact.
_FEWEST_EXACT, _LEAST_EXACT = 3, 2 / 3


def with_observed_start(data: Dataset) -> Dataset:
    """Return the data with the first reading of every output as `initial`, and those cells masked.

    The first readings are conditioned on, so they are neither fitted nor scored. Where an output is missing at the
    first time, its next reading is used; where a trajectory has no reading of it, the mean of the other
    trajectories' starts. Data that has a start is returned unchanged.
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
    attributes = {**data.attributes, _START_READ_AT: np.where(seen, first, -1)}
    return dataclasses.replace(data, initial=readings, mask=mask, attributes=attributes)


def all_readings(data: Dataset) -> np.ndarray:
    """Return every reading, (traj, time, out), those that became starts among them; NaN where there is none."""
    readings = np.where(data.mask, data.outputs, np.nan)
    read_at = data.attributes.get(_START_READ_AT)
    if read_at is not None and data.initial is not None:
        is_whole = read_at.shape == data.initial.shape == (len(readings), data.num_outputs)
        if not is_whole or not np.all(np.isin(read_at, np.arange(-1, data.num_times))):
            raise DataError(
                f"{_START_READ_AT} must be a time point of every output; the data are damaged; read them again"
            )
        row, column = np.nonzero(read_at >= 0)
        readings[row, read_at[row, column].astype(int), column] = data.initial[row, column]
    return readings


def revealed_start(data: Dataset) -> Dataset:
    """Return the data with the readings that became starts among the outputs again; unchanged where starts were given.

    For models that fit a start like other readings (`with_observed_start` undone).
    """
    if _START_READ_AT not in data.attributes or data.initial is None:
        return data
    readings = all_readings(data)
    seen = np.isfinite(readings)
    attributes = {name: values for name, values in data.attributes.items() if name != _START_READ_AT}
    outputs = np.where(seen, readings, 0.0)
    return dataclasses.replace(data, outputs=outputs, mask=seen, initial=None, attributes=attributes)


def from_first_complete_row(data: Dataset) -> Dataset:
    """Drop the rows before the first one in which every output was observed, so that the start is known.

    Otherwise the start would have to be taken from a later reading. Unchanged are trajectories with a given start,
    replicates (which share their times), and trajectories without a complete row in their first half.
    """
    if data.initial is not None or data.num_trajectories == 0:
        return data
    lengths = data.lengths
    complete = np.asarray(data.mask.all(axis=2))
    shift = complete.argmax(axis=1)
    alone = np.bincount(data.condition)[data.condition] == 1
    shift = np.where(alone & np.any(complete, axis=1) & (2 * shift < lengths), shift, 0)
    if not shift.any() and lengths.max() == data.num_times:
        return data
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
    """Whether the starts of replicates agree: their spread is below `tolerance` times that of the output.

    Spreads are robust (`robust_spread`), so that no single reading decides; that of the starts is of the first
    readings, in every condition with several members. If starts disagree, trajectories with equal times and inputs are
    probably not replicates: see `separate_by_start`.
    """
    readings, seen, _ = _first_readings(data)
    counts = np.bincount(data.condition)
    of_several = np.flatnonzero(counts[data.condition] > 1)
    of_several = of_several[np.argsort(data.condition[of_several], kind="stable")]
    by_condition = np.split(of_several, np.cumsum(counts[counts > 1])[:-1]) if of_several.size else []
    for column in range(data.num_outputs):
        values = data.outputs[..., column][data.mask[..., column]]
        if is_constant(values):
            continue
        scale = robust_spread(values)
        for rows in by_condition:
            members = readings[rows, column][seen[rows, column]]
            if len(members) > 1 and robust_spread(members) >= tolerance * scale:
                return False
    return True


def starts_are_exact(data: Dataset) -> bool:
    """Whether first readings are known without noise: the same in two of three trajectories, such as a 0 at dosing.

    Noise would not repeat a number. That does not count where later readings often have the same value, too, as whole
    numbers of few values have.
    """
    readings, seen, first = _first_readings(data)
    if data.num_trajectories < _FEWEST_EXACT or not seen.all():
        return False
    for column in range(data.num_outputs):
        values, counts = np.unique(readings[:, column], return_counts=True)
        later = data.mask[..., column].copy()
        np.put_along_axis(later, first[:, None, column], False, axis=1)
        share = counts.max() / len(readings)
        repeated = float(np.mean(data.outputs[..., column][later] == values[counts.argmax()])) if later.any() else 1.0
        if share < _LEAST_EXACT or repeated > share / 2:
            return False
    return True


def separate_by_start(data: Dataset) -> Dataset:
    """Make every trajectory a condition of its own, named after its unit where each trajectory has its own unit."""
    names = tuple(data.unit_names[i] for i in data.unit) if data.num_units == data.num_trajectories else ()
    return dataclasses.replace(data, condition=np.arange(data.num_trajectories), condition_names=names)


def _first_readings(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first observed value of every output, whether it exists, and its time index: each (traj, out)."""
    if data.num_trajectories == 0:
        shape = (0, data.num_outputs)
        return np.zeros(shape), np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
    first = data.mask.argmax(axis=1)
    readings = np.take_along_axis(data.outputs, first[:, None, :], axis=1)[:, 0]
    return readings, np.asarray(data.mask.any(axis=1)), first
