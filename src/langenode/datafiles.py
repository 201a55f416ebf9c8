"""The file formats of a data set: NetCDF, NPZ and tidy CSV; used through `save_data` and `load_data`."""

import csv
import difflib
import importlib.util
import io
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from langenode.data import DataError, Dataset

__all__ = ["Columns", "read", "write"]

_FORMAT = 1
_DIMS = {
    "times": ("traj", "time"),
    "inputs": ("traj", "time", "in"),
    "outputs": ("traj", "time", "out"),
    "mask": ("traj", "time", "out"),
    "initial": ("traj", "state"),
    "condition": ("traj",),
    "unit": ("traj",),
}
_NAMES = ("input_names", "output_names", "condition_names", "unit_names")
_HEADER = "langenode"


class Columns(NamedTuple):
    """Which column (or variable) of a file plays which part; None is found by its default name."""

    trajectory: str | None = None
    time: str | None = None
    inputs: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    initial: Sequence[str] | None = None
    condition: str | None = None
    unit: str | None = None


def write(data: Dataset, path: Path) -> None:
    """Write to a temporary file beside `path` and move it there: no half-written file is ever seen."""
    writer = _of_suffix(path, _WRITERS)
    if data.num_trajectories == 0:
        raise DataError(f"a data file needs at least one trajectory; there is none to write to {path}; skip it")
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        writer(data, partial)
        partial.replace(path)
    except OSError as error:
        raise DataError(f"{path} must be writable; {error}; choose another folder") from error
    finally:
        partial.unlink(missing_ok=True)


def read(path: Path, columns: Columns) -> Dataset:
    """Read the data set in `path` by its suffix; every fault of the file is a `DataError`."""
    reader = _of_suffix(path, _READERS)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} must be a readable file; {error.strerror or error}; check the path") from error
    if not content.strip():
        raise DataError(f"{path} must hold data; the file is empty; write it again")
    try:
        return reader(content, columns)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # A damaged file makes the libraries raise almost anything.
        raise DataError(
            f"{path} must be a whole {path.suffix} file; reading it failed with {type(error).__name__}: "
            f"{error}; write or copy it again"
        ) from error


def _of_suffix(path: Path, table: Mapping[str, Callable]) -> Callable:
    suffix = path.suffix.lower()
    if suffix not in table:
        raise DataError(f"a data file must end in {', '.join(table)}; got '{path.name}'; rename or convert it")
    return table[suffix]


def _pack(data: Dataset) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a data set by name and a JSON header with all that is no array."""
    arrays = {name: getattr(data, name) for name in _DIMS if getattr(data, name) is not None}
    arrays |= {f"attribute_{i}": values for i, values in enumerate(data.attributes.values())}
    header: dict[str, Any] = {name: list(getattr(data, name)) for name in _NAMES}
    header |= {"format": _FORMAT, "units": dict(data.units), "attributes": list(data.attributes)}
    # An axis of length 0 has a special meaning in NetCDF-3, so empty arrays are kept as their shapes.
    header["empty"] = {name: list(values.shape) for name, values in arrays.items() if values.size == 0}
    return {name: values for name, values in arrays.items() if values.size}, json.dumps(header)


def _unpack(arrays: Mapping[str, np.ndarray], header_text: str, columns: Columns) -> Dataset:
    """The inverse of `_pack`, for arrays in the types of any format."""
    if any(part is not None for part in columns):
        raise DataError("a file of ours says itself what its columns are; columns were named; name none")
    header = json.loads(header_text)
    if header["format"] != _FORMAT:
        raise DataError(f"the file's format must be {_FORMAT}; found {header['format']}; update langenode")
    arrays = dict(arrays) | {name: np.zeros(shape) for name, shape in header["empty"].items()}
    types = {"mask": bool, "condition": np.int64, "unit": np.int64}
    fields: dict[str, Any] = {n: arrays[n].astype(types.get(n, np.float64)) for n in _DIMS if n in arrays}
    fields |= {name: tuple(header[name]) for name in _NAMES}
    fields.setdefault("initial", None)
    attributes = {name: arrays[f"attribute_{i}"] for i, name in enumerate(header["attributes"])}
    return Dataset(**fields, units=header["units"], attributes=attributes)


def _from_variables(variables: Mapping[str, np.ndarray], columns: Columns) -> Dataset:
    """A data set from a foreign file of whole arrays, by the names of its variables."""
    if columns.trajectory is not None:
        raise DataError(
            "the trajectory is the first axis of the variables of a .nc or .npz file; "
            f"'{columns.trajectory}' was named as its column; leave it out"
        )
    if columns.outputs is None:
        raise DataError(f"outputs must be named for a file that is not ours; it holds {sorted(variables)}; name them")
    inputs, outputs, initial = (_listed(part) for part in (columns.inputs, columns.outputs, columns.initial))
    parts = (columns.time or "time", *inputs, *outputs, *initial, columns.condition, columns.unit)
    _check_present([name for name in parts if name is not None], list(variables))

    def stacked(names: Sequence[str], axes: int) -> np.ndarray | None:
        """The variables as columns; one over (time,) is shared by all trajectories."""
        arrays = [variables[name] for name in names]
        arrays = [array[None] if axes == 2 and array.ndim == 1 else array for array in arrays]
        return np.stack(np.broadcast_arrays(*arrays), axis=-1) if arrays else None

    values = stacked(outputs, 2)
    assert values is not None
    return Dataset.from_arrays(
        variables[columns.time or "time"],
        values,
        inputs=stacked(inputs, 2),
        initial=stacked(initial, 1),
        condition=None if columns.condition is None else variables[columns.condition],
        unit=None if columns.unit is None else variables[columns.unit],
        input_names=inputs,
        output_names=outputs,
    )


def _write_netcdf(data: Dataset, path: Path) -> None:
    import xarray as xr

    arrays, header = _pack(data)
    variables = {}
    for name, values in arrays.items():
        dims = _DIMS.get(name) or ("traj", *(f"{name}_axis{axis}" for axis in range(1, values.ndim)))
        # NetCDF-3 knows no 64-bit integers and no Booleans.
        values = values.astype({"b": np.int8, "i": np.int32}.get(values.dtype.kind, np.float64))
        variables[name] = xr.Variable(dims, values, encoding={"_FillValue": None})
    for index, name in enumerate(data.attributes):
        if f"attribute_{index}" in variables:
            variables[f"attribute_{index}"].attrs["long_name"] = name
    dataset = xr.Dataset(variables, attrs={_HEADER: header})
    dataset = dataset.assign_coords({"out": list(data.output_names)})
    if data.num_inputs:
        dataset = dataset.assign_coords({"in": list(data.input_names)})
    dataset.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


def _read_netcdf(content: bytes, columns: Columns) -> Dataset:
    import xarray as xr

    if content.startswith(b"CDF"):
        engine = "scipy"
    elif content.startswith(b"\x89HDF"):
        engine = "h5netcdf"
        if importlib.util.find_spec(engine) is None:
            raise DataError("NetCDF-4 needs the h5netcdf package; it is not installed; pip install h5netcdf")
    else:
        raise DataError(f"a NetCDF file must begin with CDF or HDF; found {content[:4]!r}; write or copy it again")
    dataset = xr.load_dataset(io.BytesIO(content), engine=engine, decode_times=False)
    variables = {str(name): variable.to_numpy() for name, variable in dataset.variables.items()}
    if _HEADER in dataset.attrs:
        return _unpack(variables, dataset.attrs[_HEADER], columns)
    return _from_variables(variables, columns)


def _write_npz(data: Dataset, path: Path) -> None:
    arrays, header = _pack(data)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **(arrays | {_HEADER: np.array(header)}))


def _read_npz(content: bytes, columns: Columns) -> Dataset:
    if not content.startswith(b"PK"):
        raise DataError(f"an NPZ file must begin with PK; found {content[:4]!r}; write or copy it again")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if _HEADER in arrays:
        return _unpack(arrays, str(arrays.pop(_HEADER)), columns)
    return _from_variables(arrays, columns)


def _write_csv(data: Dataset, path: Path) -> None:
    import pandas as pd

    valid = np.arange(data.num_times) < data.lengths[:, None]
    trajectory = np.nonzero(valid)[0]
    outputs = np.where(data.mask, data.outputs, np.nan)[valid]
    initial = np.zeros((data.num_trajectories, 0)) if data.initial is None else data.initial
    columns = {"trajectory": trajectory, "time": data.times[valid]}
    columns |= {f"x:{name}": data.inputs[valid][:, i] for i, name in enumerate(data.input_names)}
    columns |= {f"y:{name}": outputs[:, i] for i, name in enumerate(data.output_names)}
    columns |= {f"h0:{i}": initial[trajectory, i] for i in range(initial.shape[1])}
    columns["condition"] = np.array(data.condition_names)[data.condition[trajectory]]
    columns["unit"] = np.array(data.unit_names)[data.unit[trajectory]]
    pd.DataFrame(columns).to_csv(path, index=False, lineterminator="\n")


def _read_csv(content: bytes, columns: Columns) -> Dataset:
    text = _csv_columns(content)
    found = _csv_roles(columns, list(text))
    assert found.time is not None
    inputs, outputs, initial = (_listed(part) for part in (found.inputs, found.outputs, found.initial))
    labels = [name for name in (found.trajectory, found.condition, found.unit) if name is not None]
    table = {name: _csv_numbers(text[name], name) for name in (found.time, *inputs, *outputs, *initial)}
    table |= {name: _csv_labels(text[name], name) for name in labels}
    rows = len(table[found.time])
    names, groups = np.array(["0"]), [np.arange(rows)]
    if found.trajectory is not None:
        names, first, codes = np.unique(table[found.trajectory], return_index=True, return_inverse=True)
        # Trajectories keep the order of their first rows; their rows may be interleaved.
        order = np.argsort(first)
        by_code = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        names, groups = names[order], [by_code[i] for i in order]
    for name in (*initial, *(label for label in (found.condition, found.unit) if label)):
        _check_constant(table[name], name, names, groups)
    stacks = {
        key: np.stack([table[name] for name in part], axis=-1) if part else np.zeros((rows, 0))
        for key, part in (("inputs", inputs), ("outputs", outputs), ("initial", initial))
    }
    trajectories = []
    for group in groups:
        record = {"times": table[found.time][group], **{k: stacks[k][group] for k in ("inputs", "outputs")}}
        record |= {"initial": stacks["initial"][group[0]]} if initial else {}
        record |= {"condition": str(table[found.condition][group[0]])} if found.condition else {}
        record |= {"unit": str(table[found.unit][group[0]])} if found.unit else {}
        trajectories.append(record)
    return Dataset.from_list(
        trajectories,
        input_names=_bare(inputs, "x:", columns.inputs),
        output_names=_bare(outputs, "y:", columns.outputs),
    )


def _csv_columns(content: bytes) -> dict[str, tuple[str, ...]]:
    """The text of every column by its name, of a table whose rows all have the same number of cells."""
    # pandas would fill up a row that was cut short with missing values.
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    header = rows[0]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"column names must differ; found {twice} more than once; rename them")
    widths = np.fromiter(map(len, rows), dtype=np.int64)
    wrong = np.flatnonzero((widths != len(header)) & (widths > 0))
    if wrong.size:
        raise DataError(
            f"every row must have {len(header)} cells; row {wrong[0] + 1} has {widths[wrong[0]]}; "
            "the file may be cut short: write or copy it again"
        )
    cells = list(zip(*filter(None, rows[1:]), strict=True))
    if not cells:
        raise DataError("a CSV file must have rows below its header; found none; add data")
    return dict(zip(header, cells, strict=True))


def _csv_roles(columns: Columns, header: Sequence[str]) -> Columns:
    """Fill in the columns that were not named, by the names that `save_data` writes."""
    named = [columns.trajectory, columns.time or "time", columns.condition, columns.unit]
    lists = [_listed(part) for part in (columns.inputs, columns.outputs, columns.initial)]
    _check_present([name for name in named if name] + [name for part in lists for name in part], header)
    outputs = columns.outputs
    if outputs is None:
        outputs = [name for name in header if name.startswith("y:")]
    if not outputs:
        raise DataError(f"a data file must have outputs; no column begins with y: in {list(header)}; name the outputs")

    def default(given: str | None, name: str) -> str | None:
        return given or (name if name in header else None)

    def prefixed(given: Sequence[str] | None, prefix: str) -> Sequence[str]:
        return [name for name in header if name.startswith(prefix)] if given is None else given

    return Columns(
        trajectory=default(columns.trajectory, "trajectory"),
        time=columns.time or "time",
        inputs=prefixed(columns.inputs, "x:"),
        outputs=outputs,
        initial=prefixed(columns.initial, "h0:"),
        condition=default(columns.condition, "condition"),
        unit=default(columns.unit, "unit"),
    )


def _csv_numbers(cells: Sequence[str], name: str) -> np.ndarray:
    """The numbers of a column, NaN where the cell is empty."""
    try:
        return np.fromiter(map(_number, cells), dtype=np.float64, count=len(cells))
    except ValueError as error:
        row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
        raise DataError(
            f"column '{name}' must hold numbers; row {row + 2} has '{cells[row]}'; "
            "correct it, or leave it empty if it is missing"
        ) from error


def _number(cell: str) -> float:
    """A cell's number to the last bit; pandas' fast parser rounds some."""
    try:
        # Python would also read 1_000, which no other reader of the file does.
        return float(cell) if "_" not in cell else float("?")
    except ValueError:
        if cell.strip() in ("", "NA", "N/A"):
            return math.nan
        raise


def _is_number(cell: str) -> bool:
    try:
        _number(cell)
    except ValueError:
        return False
    return True


def _csv_labels(cells: Sequence[str], name: str) -> np.ndarray:
    """The labels of a column, none of them empty."""
    if "" in cells:
        raise DataError(f"column '{name}' must be filled in every row; row {cells.index('') + 2} is empty; fill it")
    return np.array(cells)


def _check_constant(values: np.ndarray, name: str, trajectories: np.ndarray, groups: Sequence[np.ndarray]) -> None:
    for trajectory, group in zip(trajectories, groups, strict=True):
        if np.any(values[group] != values[group[0]]):
            raise DataError(
                f"column '{name}' must be the same in all rows of a trajectory; it varies in trajectory "
                f"'{trajectory}'; correct it"
            )


def _check_present(names: Sequence[str], available: Sequence[str]) -> None:
    for name in names:
        if name not in available:
            near = difflib.get_close_matches(name, available, n=1, cutoff=0.0)
            raise DataError(
                f"column '{name}' must be in the file; found {list(available)}; "
                f"did you mean '{near[0] if near else ''}'?"
            )


def _listed(names: Sequence[str] | None) -> tuple[str, ...]:
    """Names as a tuple; a single name may be given bare."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def _bare(names: Sequence[str], prefix: str, given: Sequence[str] | None) -> tuple[str, ...]:
    """Names without the prefix they were found by; a name that the caller gave stays as it is."""
    return tuple(name.removeprefix(prefix) if given is None else name for name in names)


_WRITERS = {".nc": _write_netcdf, ".npz": _write_npz, ".csv": _write_csv}
_READERS = {".nc": _read_netcdf, ".npz": _read_npz, ".csv": _read_csv}
