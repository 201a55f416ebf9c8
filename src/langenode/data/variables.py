"""Array files not written by Langenode: guess the role of each variable, and build the data set."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from langenode.data.checks import DataError, is_constant, listed
from langenode.data.columns import Columns
from langenode.data.dataset import Dataset
from langenode.data.names import base_name, condition_rank, is_input_name, time_rank, unit_rank
from langenode.data.reading import Reading, plain_columns

_STARTS = ("initial", "initial_state", "h0", "x0", "y0")


def find_time(variables: Mapping[str, np.ndarray]) -> str | None:
    """Return the variable whose name looks most like the time."""
    ranks = {
        name: time_rank(name) for name, values in variables.items() if _is_number(values) and values.ndim in (1, 2)
    }
    known = {name: rank for name, rank in ranks.items() if rank is not None}
    return min(known, key=lambda name: (known[name], name != name.lower()), default=None)


def read_variables(
    variables: Mapping[str, np.ndarray], given: Columns, *, outputs_may_be_absent: bool = False
) -> Reading:
    """Build a data set from variables over (trajectory, time), or (time,) where shared; a third axis holds columns.

    What is not given is guessed: the time and the inputs by name, `mask` if it is Boolean; numbers over the
    trajectories only are constant inputs; all other numbers are outputs.
    """
    facts: dict[str, Any] = {"rows": 0, "files": 0, "columns_found": sorted(variables)}
    try:
        if given.trajectory is not None:
            raise DataError(
                "the trajectory is the first axis of the variables of a .nc or .npz file; "
                f"{given.trajectory!r} was named as its column; leave it out"
            )
        time = given.time or find_time(variables)
        if time is None:
            raise DataError(
                f"a data file must have a time variable; none of {listed(sorted(variables))} looks like one; "
                "name it with --time NAME"
            )
        absent = [n for n in given.outputs or () if n not in variables] if outputs_may_be_absent else []
        present = given._replace(time=time, outputs=tuple(n for n in given.outputs or () if n not in absent))
        present.check_present(list(variables))
        shape = _shape(variables, time)
        variables = {**variables, **{name: np.full(shape, np.nan) for name in absent}}
        columns, reasons, left_out = _guess(variables, given._replace(time=time), shape)
        reasons["time"] = "given" if given.time else f"variable {time!r}, by its name"
        facts |= {"rows": shape[0] * shape[1], "trajectories": shape[0], "columns": plain_columns(columns)}
        facts |= {"reasons": reasons, "left_out": left_out}
        return Reading(_dataset(variables, columns, shape), columns, reasons, facts)
    except DataError as error:
        raise DataError(str(error), facts) from error


def _shape(variables: Mapping[str, np.ndarray], time: str) -> tuple[int, int]:
    """Return the numbers of trajectories and times: from a time variable with both axes, else from what fits it."""
    times = variables[time]
    if not _is_number(times) or times.ndim not in (1, 2) or times.size == 0:
        raise DataError(
            f"times must be numbers over (trajectory, time) or (time,); variable {time!r} has {times.dtype} values of "
            f"shape {times.shape}; name another with --time"
        )
    if times.ndim == 2:
        return times.shape
    others = [v for name, v in variables.items() if name != time and v.ndim in (2, 3) and v.shape[1] == len(times)]
    return max((len(values) for values in others), default=1), len(times)


def _guess(
    variables: Mapping[str, np.ndarray], given: Columns, shape: tuple[int, int]
) -> tuple[Columns, dict[str, str], dict[str, str]]:
    """Return the role of every variable that was not given, and the reason."""
    taken = {name for _, name in given.named()}
    kinds = {name: _kind(name, values, shape) for name, values in variables.items() if name not in taken}
    if given.outputs is None and given.inputs is None and "output" not in kinds.values():
        kinds = {name: "output" if kind == "input" else kind for name, kind in kinds.items()}
    wanted = {"inputs": ("input", "setting"), "outputs": ("output",), "initial": ("initial",)}
    reasons = {part: "given" for part, names in given._asdict().items() if names is not None}
    found: dict[str, Any] = {}
    for part, parts in wanted.items():
        if getattr(given, part) is None:
            found[part] = tuple(name for name, kind in kinds.items() if kind in parts)
            how = "all other numeric variables" if part == "outputs" else "by name or by shape"
            reasons[part] = f"{how}: {', '.join(found[part])}" if found[part] else "none found"
    for part in ("condition", "unit"):
        if getattr(given, part) is None:
            found[part] = next((name for name, kind in kinds.items() if kind == part), None)
            reasons[part] = "none found" if found[part] is None else f"variable {found[part]!r}, by its name"
    columns = given._replace(**found)
    reasons["trajectory"] = "the first axis" if shape[0] > 1 else "one"
    if not columns.outputs:
        shapes = listed([f"{name} {values.shape}" for name, values in sorted(variables.items())])
        raise DataError(
            f"outputs must be numbers over (trajectory, time), here {shape}; none found among {shapes}; "
            "name them with --outputs"
        )
    used = {name for _, name in columns.named()}
    whys: dict[str, str] = dict.fromkeys(("input", "setting", "output"), "not among the named ones")
    left_out = {name: whys.get(kind, kind) for name, kind in kinds.items() if name not in used and kind != "mask"}
    return columns, {part: reasons[part] for part in Columns._fields}, left_out


def _kind(name: str, values: np.ndarray, shape: tuple[int, int]) -> str:
    """Return the role of a variable by its name, type and shape, or the reason why it has none."""
    num, steps = shape
    if name.lower() == "mask" and values.dtype.kind in "biu" and np.isin(values, (0, 1)).all():
        return "mask"
    if values.shape == (num,) and num != steps:
        if unit_rank(name) is not None and not _is_fraction(values):
            return "unit"
        if condition_rank(name, values.dtype.kind not in "fiub") is not None and not _is_fraction(values):
            return "condition"
    if not _is_number(values):
        return f"of type {values.dtype}"
    if base_name(name) in _STARTS and values.shape[:1] == (num,) and values.ndim <= 2 and values.shape != shape:
        return "initial"
    if values.shape == (num,) and num != steps and num > 1:
        return "constant" if is_constant(values[np.isfinite(values)]) else "setting"
    is_path = values.ndim in (2, 3) and values.shape[:2] == shape and values.size > 0
    if not is_path and values.shape != (steps,):
        return f"of shape {values.shape}, not (trajectory, time)"
    if is_constant(values[np.isfinite(values)]) and steps * num > 1:
        return "constant"
    # A variable that several trajectories share can only be an input.
    return "input" if is_input_name(name) or (num > 1 and not is_path) else "output"


def _dataset(variables: Mapping[str, np.ndarray], columns: Columns, shape: tuple[int, int]) -> Dataset:
    inputs, input_names = _paths(variables, columns.inputs or (), shape)
    outputs, output_names = _paths(variables, columns.outputs or (), shape)
    starts = [_checked(variables, name) for name in columns.initial or ()]
    starts = [start[:, None] if start.ndim == 1 else start for start in starts]
    return Dataset.from_arrays(
        variables[columns.time or "time"],
        outputs,
        inputs=inputs if input_names else None,
        mask=_mask(variables, columns, shape),
        initial=np.concatenate(starts, axis=1) if starts else None,
        condition=None if columns.condition is None else variables[columns.condition],
        unit=None if columns.unit is None else variables[columns.unit],
        input_names=input_names,
        output_names=output_names,
    )


def _mask(variables: Mapping[str, np.ndarray], columns: Columns, shape: tuple[int, int]) -> np.ndarray | None:
    """Return the variable called mask, if it is a mask and has no other role."""
    used = {name for _, name in columns.named()}
    for name, values in variables.items():
        if name not in used and _kind(name, values, shape) == "mask":
            return np.broadcast_to(values, shape).astype(bool) if values.ndim == 1 else values.astype(bool)
    return None


def _paths(
    variables: Mapping[str, np.ndarray], names: Sequence[str], shape: tuple[int, int]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return variables as columns over (trajectory, time, column), and a name for each column."""
    blocks, labels = [np.zeros((*shape, 0))], []
    for name in names:
        values = _checked(variables, name)
        if values.ndim < 3:
            # A variable over trajectories only is constant in time; one over time only is shared.
            by_trajectory = values.shape == (shape[0],) and shape[0] != shape[1]
            values = values[:, None, None] if by_trajectory else values[..., None]
        leading = (1,) * (3 - values.ndim) + values.shape[:-1]
        if values.ndim > 3 or any(size not in (1, wanted) for size, wanted in zip(leading, shape, strict=True)):
            raise DataError(
                f"variable {name!r} must be over (trajectory, time), here {shape}, or one of these axes; found "
                f"{variables[name].shape}; name another or reshape it"
            )
        width = values.shape[-1]
        blocks.append(np.broadcast_to(values, (*shape, width)))
        labels += [name] if width == 1 else [f"{name}_{index}" for index in range(width)]
    return np.concatenate(blocks, axis=-1), tuple(labels)


def _checked(variables: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    if not _is_number(variables[name]) or variables[name].ndim == 0:
        raise DataError(
            f"variable {name!r} must be an array of real numbers; found {variables[name].dtype} values of shape "
            f"{variables[name].shape}; name another or convert it"
        )
    return variables[name].astype(np.float64)


def _is_number(values: np.ndarray) -> bool:
    return values.dtype.kind in "fiu"


def _is_fraction(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" and bool(np.any(values != np.round(values)))
