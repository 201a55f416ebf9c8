"""Convert user input to the arrays of a data set: columns, labels, and lists of trajectories of any lengths."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from langenode.data.checks import DataError, booleans, numbers, rectangular

_KEYS = ("times", "outputs", "inputs", "mask", "initial", "condition", "unit", "attributes")


def with_columns(array: np.ndarray, name: str) -> np.ndarray:
    """Give a (traj, time) array a trailing axis of one column."""
    if array.ndim == 2:
        return array[..., None]
    if array.ndim != 3:
        raise DataError(f"{name} must be (traj, time, column) or (traj, time); found shape {array.shape}; reshape it")
    return array


def broadcast(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Broadcast the array along the axes that it lacks."""
    try:
        return array if array.shape == shape else np.broadcast_to(array, shape)
    except ValueError as error:
        raise DataError(f"{name} must fit the shape {shape} of the outputs; found {array.shape}; reshape it") from error


def number_labels(labels: Any, num: int, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Number labels compactly in sorted order; return the numbers and the labels as text."""
    array = rectangular(labels, name)
    if array.dtype.kind in "OT":
        if not all(isinstance(label, str) for label in array.flat):
            raise DataError(f"{name} must be labels, all text or all numbers; found a mixture; convert them first")
        array = array.astype(str)
    if array.shape != (num,):
        raise DataError(f"{name} must be one label per trajectory, shape ({num},); found {array.shape}; reshape it")
    if array.dtype.kind not in "iuUfb" or (array.dtype.kind == "f" and not np.all(np.isfinite(array))):
        raise DataError(f"{name} must be text or finite numbers; found {array.dtype} values; label all trajectories")
    # Text such as "2" and "10" (from a file) is sorted as numbers.
    if array.dtype.kind == "U" and num and all(_is_whole(text) for text in array):
        array = array.astype(np.int64)
    values, codes = np.unique(array, return_inverse=True)
    return codes, tuple(str(value) for value in values)


def _is_whole(text: str) -> bool:
    # Longer numbers do not fit 64 bits.
    return len(text) < 19 and text.isdecimal() and str(int(text)) == text


def number_conditions(times: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Assign one condition to each distinct pair of times and inputs, in order of appearance."""
    seen: dict[bytes, int] = {}
    pairs = zip(times, inputs, strict=True)
    # Adding 0.0 turns -0.0 into 0.0: equal numbers must have equal bytes.
    digests = (hashlib.sha256((row + 0.0).tobytes() + (path + 0.0).tobytes()).digest() for row, path in pairs)
    return np.array([seen.setdefault(digest, len(seen)) for digest in digests], dtype=np.int64)


def stack_trajectories(trajectories: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the padded arrays of a list of trajectories, as arguments of `Dataset.from_arrays`."""
    records = [_record(raw, index) for index, raw in enumerate(trajectories)]
    if not records:
        raise DataError("a data set needs at least one trajectory; the list is empty; add a trajectory")
    _check_same_keys(records)
    if "condition" in records[0]:
        records = _on_union_grids(records)
    columns: dict[str, Any] = {key: [record[key] for record in records] for key in records[0]}
    attributes = columns["attributes"]
    columns["attributes"] = {name: _stack([values[name] for values in attributes], name) for name in attributes[0]}
    for key in ("times", "inputs"):
        columns[key] = _padded(columns[key], key, "edge")
    for key in ("outputs", "mask"):
        columns[key] = _padded(columns[key], key, "constant")
    if "initial" in columns:
        columns["initial"] = _stack(columns["initial"], "initial")
    return columns


def _record(raw: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return one trajectory of a list with its arrays in full: times, outputs, mask, inputs and attributes."""
    if not {"times", "outputs"} <= set(raw) <= set(_KEYS):
        raise DataError(
            f"a trajectory must have times and outputs, and may have {', '.join(_KEYS[2:])}; "
            f"trajectory {index} has {', '.join(map(str, raw))}; rename its keys"
        )
    record = {key: value for key, value in raw.items() if value is not None}
    times = numbers(raw["times"], f"times of trajectory {index}")
    if times.ndim != 1 or len(times) == 0 or not np.all(times[1:] > times[:-1]):
        raise DataError(
            f"times must increase strictly along one axis; in trajectory {index}, of shape {times.shape}, "
            "they do not; sort the rows and drop repeated times"
        )
    outputs = numbers(raw["outputs"], f"outputs of trajectory {index}")
    record |= {"times": times, "outputs": outputs}
    record["inputs"] = numbers(record.get("inputs", np.zeros((len(times), 0))), f"inputs of trajectory {index}")
    record["mask"] = booleans(record["mask"], "mask") if "mask" in record else ~np.isnan(outputs)
    for key in ("outputs", "mask", "inputs"):
        record[key] = record[key][:, None] if record[key].ndim == 1 else record[key]
        if record[key].ndim != 2 or len(record[key]) != len(times):
            raise DataError(
                f"{key} must be (time, column) with {len(times)} rows; trajectory {index} has shape "
                f"{record[key].shape}; reshape it"
            )
    record["attributes"] = {name: numbers(value, name) for name, value in record.get("attributes", {}).items()}
    if "initial" in record:
        record["initial"] = np.atleast_1d(numbers(record["initial"], "initial"))
    return record


def _check_same_keys(records: Sequence[Mapping[str, Any]]) -> None:
    for index, record in enumerate(records):
        for part, first in ((record, records[0]), (record["attributes"], records[0]["attributes"])):
            if set(part) != set(first):
                wrong = sorted(set(part).symmetric_difference(first))
                raise DataError(f"all trajectories must have the same keys; {index} and 0 differ in {wrong}; add them")


def _stack(rows: Sequence[np.ndarray], name: str) -> np.ndarray:
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        raise DataError(f"{name} must have the same shape in all trajectories; found {shapes}; make them equal")
    return np.stack(rows)


def _padded(rows: Sequence[np.ndarray], name: str, mode: Any) -> np.ndarray:
    """Stack arrays of unequal length; the tail repeats the last row ("edge") or is zero ("constant")."""
    longest = max(len(row) for row in rows)
    widths = [[(0, longest - len(row))] + [(0, 0)] * (row.ndim - 1) for row in rows]
    return _stack([np.pad(row, width, mode=mode) for row, width in zip(rows, widths, strict=True)], name)


def _on_union_grids(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put the replicates of each condition on the union of their times; outputs are missing where not observed."""
    groups: dict[Any, list[int]] = {}
    for index, record in enumerate(records):
        groups.setdefault(record["condition"], []).append(index)
    placed = [dict(record) for record in records]
    for members in groups.values():
        grid = np.unique(np.concatenate([records[i]["times"] for i in members]))
        if all(len(records[i]["times"]) == len(grid) for i in members):
            continue
        inputs = _inputs_on_union(records, members, grid)
        for i in members:
            rows = np.searchsorted(grid, records[i]["times"])
            placed[i] |= {"times": grid, "inputs": inputs}
            for key in ("outputs", "mask"):
                values = records[i][key]
                placed[i][key] = np.zeros((len(grid), values.shape[1]), dtype=values.dtype)
                placed[i][key][rows] = values
    return placed


def _inputs_on_union(records: Sequence[Mapping[str, Any]], members: Sequence[int], grid: np.ndarray) -> np.ndarray:
    """Return the inputs of a condition on the union of its replicates' times, if the replicates agree on them."""
    width = _stack([records[i]["inputs"][0] for i in members], "inputs").shape[1]
    inputs = np.full((len(grid), width), np.nan)
    if width == 0:
        return inputs
    for i in members:
        rows = np.searchsorted(grid, records[i]["times"])
        known = ~np.isnan(inputs[rows]).any(axis=1)
        wrong = known & np.any(inputs[rows] != records[i]["inputs"], axis=1)
        if wrong.any():
            raise DataError(
                f"replicates of a condition must have the same inputs at the same time; trajectory {i} in "
                f"condition {records[i]['condition']} differs at time {grid[rows][wrong][0]}; "
                "give it another condition"
            )
        inputs[rows] = records[i]["inputs"]
    # Without shared times the values could come from different loadings, so the interpolated paths must agree too.
    tolerance = 0.01 * np.ptp(inputs, axis=0)
    for i in members:
        times, own = records[i]["times"], records[i]["inputs"]
        inside = (grid >= times[0]) & (grid <= times[-1])
        path = np.stack([np.interp(grid[inside], times, column) for column in own.T], axis=-1)
        if np.any(np.abs(path - inputs[inside]) > tolerance):
            raise DataError(
                f"replicates of a condition must follow the same inputs; trajectory {i} in condition "
                f"{records[i]['condition']} is over 1 % off the others between its time points; "
                "give inputs on a common grid or another condition"
            )
    return inputs
