"""Checks on the arrays of a data set, and their error messages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from langenode._types import Bool


class DataError(ValueError):
    """What must hold of the data, what was found and what to do, in one line.

    `facts` is what had been understood of a file before the fault, to be shown with the message.
    """

    def __init__(self, message: str, facts: Mapping[str, Any] | None = None):
        super().__init__(" ".join(message.split()))
        self.facts = dict(facts or {})


class StatedColumnsError(DataError):
    """Columns were named for a file that states its own."""


def listed(names: Sequence[str], limit: int = 20) -> str:
    """List names for a message; those beyond `limit` are only counted."""
    shown = ", ".join(repr(str(name)[:60]) for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown


def shortened(value: Any, longest: int = 60) -> str:
    """Show a value in a message, quoted and cut."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[:longest]}..."


def is_constant(values: np.ndarray) -> bool:
    """Whether finite values differ by rounding only; halves are compared, so that differences cannot overflow."""
    if values.size == 0:
        return True
    high, low = values.max(), values.min()
    return bool(high / 2 - low / 2 <= 4 * np.finfo(np.float64).eps * float(max(abs(high), abs(low))))


def rectangular(values: Any, name: str) -> np.ndarray:
    """Convert to a NumPy array; raise unless it is rectangular."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a rectangular array; {error}; pad it or use from_list") from error


def is_settled(array: np.ndarray) -> bool:
    """Whether an array has its own memory and nobody writes to it, as those of a data set: it need not be copied."""
    return bool(array.flags.owndata and not array.flags.writeable)


def settled(array: np.ndarray) -> np.ndarray:
    """Return a fresh array made read-only, so that a data set takes it as it is."""
    array = array if array.flags.owndata else array.copy()
    array.setflags(write=False)
    return array


def numbers(values: Any, name: str) -> np.ndarray:
    """Return float64 numbers that nobody else writes to, a copy where needed; raise unless these are real numbers."""
    array = rectangular(values, name)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must be real numbers; found {array.dtype} values; convert them first")
    return array.astype(np.float64, copy=not is_settled(array))


def integers(values: Any, name: str) -> np.ndarray:
    """Return int64 numbers, a copy where needed; raise unless these have an integer type."""
    array = rectangular(values, name)
    if array.dtype.kind not in "iu" and array.size:
        raise DataError(f"{name} must be whole numbers; found {array.dtype} values; use from_arrays for labels")
    return array.astype(np.int64, copy=not is_settled(array))


def booleans(values: Any, name: str) -> np.ndarray:
    """Return Booleans, a copy where needed; raise unless these are Booleans."""
    array = rectangular(values, name)
    if array.dtype.kind != "b" and array.size:
        raise DataError(f"{name} must be True or False; found {array.dtype} values; convert it with astype(bool)")
    return array.astype(bool, copy=not is_settled(array))


def valid_cells(times: np.ndarray) -> Bool[np.ndarray, "traj time"]:
    """Return where a trajectory has a time point of its own: up to the first time that does not increase."""
    increases = times > -np.inf
    increases[:, 1:] &= times[:, 1:] > times[:, :-1]
    return np.logical_and.accumulate(increases, axis=1)


def store(record: Any, values: Mapping[str, Any]) -> None:
    """Set fields of a frozen record during construction; its arrays become read-only."""
    for name, value in values.items():
        for array in value.values() if isinstance(value, Mapping) else (value,):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        object.__setattr__(record, name, value)


def checked_arrays(
    *, times: Any, inputs: Any, outputs: Any, mask: Any, initial: Any, condition: Any, unit: Any
) -> dict[str, np.ndarray]:
    """Return the arrays of a data set, checked and its own; without `initial` if it is None."""
    arrays = {"times": numbers(times, "times"), "inputs": numbers(inputs, "inputs")}
    arrays |= {"outputs": numbers(outputs, "outputs"), "mask": booleans(mask, "mask")}
    arrays |= {"condition": integers(condition, "condition"), "unit": integers(unit, "unit")}
    if initial is not None:
        arrays["initial"] = numbers(initial, "initial")
    _check_shapes(arrays)
    _check_times(arrays["times"])
    padding = ~valid_cells(arrays["times"])
    _check_inputs(arrays["inputs"], padding)
    if "initial" in arrays:
        _check_initial(arrays["initial"])
    _check_outputs(arrays["outputs"], arrays["mask"], padding)
    _check_labels(arrays)
    _check_conditions(arrays)
    # A NaN in a masked cell would give NaN gradients through `where(mask, ...)`, so none is kept.
    if np.any(arrays["outputs"][~arrays["mask"]]):
        arrays["outputs"] = np.where(arrays["mask"], arrays["outputs"], 0.0)
    return arrays


def checked_names(names: Sequence[str], count: int, field: str, prefix: str = "") -> tuple[str, ...]:
    """Return `count` distinct names, by default the numbers."""
    names = tuple(names) or tuple(f"{prefix}{i}" for i in range(count))
    if len(names) != count:
        raise DataError(f"{field} must have {count} names; found {len(names)}; name each one once")
    if len(set(names)) != count or not all(isinstance(name, str) and name for name in names):
        raise DataError(f"{field} must be distinct and not empty; found {list(names)[:8]}; rename them")
    odd = next((name for name in names if not is_text(name)), None)
    if odd is not None:
        raise DataError(f"{field} must be UTF-8 text; found {odd[:60]!a}; rename it")
    return names


def is_text(name: str) -> bool:
    """Whether a name can be written; Python keeps bytes that are not UTF-8 as lone surrogates."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def checked_attributes(attributes: Mapping[str, Any], num: int) -> dict[str, np.ndarray]:
    """Return fresh copies of the attributes; raise unless each has one entry per trajectory."""
    checked = {name: numbers(values, f"attribute {name}") for name, values in attributes.items()}
    for name, values in checked.items():
        if values.ndim == 0 or len(values) != num:
            raise DataError(
                f"attribute {name} must have one entry for each of {num} trajectories; "
                f"found shape {values.shape}; reshape it"
            )
    return checked


def checked_labels(labels: Mapping[str, tuple[str, ...]], num: int) -> dict[str, tuple[str, ...]]:
    """Return a copy of the labels; raise unless each column has one per trajectory."""
    for name, values in labels.items():
        if len(values) != num:
            raise DataError(
                f"column {name!r} must have one label for each of {num} trajectories; found {len(values)}; correct it"
            )
    return dict(labels)


def _check_shapes(arrays: Mapping[str, np.ndarray]) -> None:
    if arrays["outputs"].ndim != 3 or arrays["inputs"].ndim != 3:
        raise DataError(
            f"inputs and outputs must be (traj, time, column); found {arrays['inputs'].shape} and "
            f"{arrays['outputs'].shape}; reshape them"
        )
    num, steps, width = arrays["outputs"].shape
    if width == 0 or (steps == 0 and num > 0):
        raise DataError(f"data needs an output column and a time point; outputs are {(num, steps, width)}; add them")
    wanted = {
        "times": (num, steps),
        "inputs": (num, steps, arrays["inputs"].shape[2]),
        "mask": (num, steps, width),
        "condition": (num,),
        "unit": (num,),
    }
    if "initial" in arrays:
        wanted["initial"] = (num, arrays["initial"].shape[-1] if arrays["initial"].ndim else 0)
    for name, shape in wanted.items():
        if arrays[name].shape != shape:
            raise DataError(
                f"{name} must have shape {shape} to match outputs of {(num, steps, width)}; "
                f"found {arrays[name].shape}; reshape it"
            )


def _check_times(times: np.ndarray) -> None:
    wrong = ~np.isfinite(times)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise DataError(f"times must be finite; trajectory {i} has {times[i, j]} at index {j}; drop that row")
    valid = valid_cells(times)
    wrong = ~valid[:, 1:] & (times[:, 1:] != times[:, :-1])
    if wrong.any():
        i = np.argwhere(wrong)[0, 0]
        j = valid[i].sum()
        raise DataError(
            f"times must increase strictly within a trajectory; trajectory {i} has {times[i, j]} after "
            f"{times[i, j - 1]} at index {j}; sort the rows and drop repeated times"
        )


def _check_inputs(inputs: np.ndarray, padding: np.ndarray) -> None:
    wrong = ~np.isfinite(inputs)
    if wrong.any():
        i, j, k = np.argwhere(wrong)[0]
        raise DataError(
            f"inputs must be known at every time; trajectory {i} has {inputs[i, j, k]} in input {k} at index "
            f"{j}; fill the gap or drop the row"
        )
    # The padding equals the last valid row if each of its rows equals the row before it.
    wrong = padding[:, 1:] & np.any(inputs[:, 1:] != inputs[:, :-1], axis=2)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise DataError(
            "inputs must repeat the last valid row where the last time is repeated (padding); trajectory "
            f"{i} does not at index {j + 1}; drop repeated times or use from_list"
        )


def _check_initial(initial: np.ndarray) -> None:
    wrong = ~np.isfinite(initial)
    if wrong.any():
        i = np.argwhere(wrong)[0, 0]
        raise DataError(f"initial must be finite; trajectory {i} has {initial[i]}; fill it or leave it out")


def _check_outputs(outputs: np.ndarray, mask: np.ndarray, padding: np.ndarray) -> None:
    wrong = mask & ~np.isfinite(outputs)
    if wrong.any():
        i, j, k = np.argwhere(wrong)[0]
        raise DataError(
            f"observed outputs must be finite; trajectory {i} has {outputs[i, j, k]} in output {k} at index "
            f"{j}; set its mask to False"
        )
    wrong = padding & mask.any(axis=2)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        raise DataError(
            f"a repeated last time is padding and must be masked; trajectory {i} has an output at index {j}; "
            "drop the repeated time or set its mask to False"
        )


def _check_labels(arrays: Mapping[str, np.ndarray]) -> None:
    for name in ("condition", "unit"):
        found = np.unique(arrays[name])
        if not np.array_equal(found, np.arange(len(found))):
            raise DataError(
                f"{name} must use every number from 0 to its highest; found {found[:5]}...; "
                "renumber them, or give them as labels to from_arrays"
            )


def _check_conditions(arrays: Mapping[str, np.ndarray]) -> None:
    condition = arrays["condition"]
    _, first = np.unique(condition, return_index=True)
    if len(first) == len(condition):
        return
    for name in ("times", "inputs"):
        differs = arrays[name] != arrays[name][first[condition]]
        wrong = np.flatnonzero(differs.any(axis=tuple(range(1, differs.ndim))))
        if wrong.size:
            i, label = wrong[0], condition[wrong[0]]
            raise DataError(
                f"trajectories of one condition must share times and inputs; the {name} of trajectory {i} in "
                f"condition {label} differ from those of trajectory {first[label]}; "
                "give it another condition or use from_list"
            )
