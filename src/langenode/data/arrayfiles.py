"""NetCDF and NPZ files: those written by Langenode, with a JSON header, and others, read by their variables."""

import importlib.util
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from langenode.data.checks import DataError, StatedColumnsError, shortened
from langenode.data.columns import Columns
from langenode.data.dataset import Dataset
from langenode.data.hdf5 import Variable, read_in_a_process
from langenode.data.limits import MOST_BYTES, MOST_CELLS, check_cells
from langenode.data.reading import Reading
from langenode.data.variables import find_time, read_variables

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


def write_netcdf(data: Dataset, path: Path) -> None:
    """Write NetCDF-3, which needs no HDF5; by SciPy, which is imported in a fraction of the time of xarray."""
    from scipy.io import netcdf_file

    arrays, header = _pack(data)
    labels = {"out": list(data.output_names)} | ({"in": list(data.input_names)} if data.num_inputs else {})
    with netcdf_file(path, "w", version=2) as file:
        setattr(file, _HEADER, header.encode())
        for name, values in arrays.items():
            dims = _DIMS.get(name) or ("traj", *(f"{name}_axis{axis}" for axis in range(1, values.ndim)))
            # NetCDF-3 has neither 64-bit integers nor Booleans.
            kind = {"b": np.int8, "i": np.int32}.get(values.dtype.kind, np.float64)
            _write_variable(file, name, dims, values.astype(kind, copy=False))
        for index, name in enumerate(data.attributes):
            if f"attribute_{index}" in arrays:
                file.variables[f"attribute_{index}"].long_name = name.encode()
        for axis, names in labels.items():
            letters = np.array([name.encode() for name in names])
            letters = letters[:, None].view("S1")
            _write_variable(file, axis, (axis, f"string{letters.shape[1]}"), letters)
            file.variables[axis]._Encoding = b"utf-8"  # by which xarray makes text of letters


def _write_variable(file: Any, name: str, dims: Sequence[str], values: np.ndarray) -> None:
    for axis, size in zip(dims, values.shape, strict=True):
        if axis not in file.dimensions:
            file.createDimension(axis, size)
    file.createVariable(name, values.dtype, dims)[:] = values


def read_netcdf(content: bytes, columns: Columns, *, outputs_may_be_absent: bool = False) -> Reading:
    """Read NetCDF-3, or NetCDF-4 where h5netcdf is installed."""
    if content.startswith(b"CDF"):
        variables, attributes = _netcdf_3(content)
    elif content.startswith(b"\x89HDF"):
        if importlib.util.find_spec("h5netcdf") is None:
            raise DataError("NetCDF-4 needs the h5netcdf package; it is not installed; pip install h5netcdf")
        variables, attributes = read_in_a_process(content)
    else:
        raise DataError(f"a NetCDF file must begin with CDF or HDF; found {content[:4]!r}; write or copy it again")
    arrays = {name: variable.values for name, variable in variables.items()}
    if _HEADER in attributes:
        return _own_reading(_unpack(arrays, str(attributes[_HEADER]), columns))
    time = columns.time or find_time(arrays)
    axes = variables[time].dims if time in variables else ()
    for name, variable in variables.items():
        # Named axes distinguish (time, trajectory) from (trajectory, time).
        if len(variable.dims) == 2 and axes and variable.dims[0] == axes[-1]:
            arrays[name] = variable.values.T
    return read_variables(arrays, columns, outputs_may_be_absent=outputs_may_be_absent)


def _netcdf_3(content: bytes) -> tuple[dict[str, Variable], dict[str, Any]]:
    import xarray as xr

    # Nothing is read before the declared sizes have been checked.
    with xr.open_dataset(io.BytesIO(content), engine="scipy", decode_times=False) as dataset:
        check_cells(sum(int(variable.size) for variable in dataset.variables.values()), is_binary=True)
        found = {str(name): Variable(v.dims, v.to_numpy()) for name, v in dataset.variables.items()}
        return found, dict(dataset.attrs)


def write_npz(data: Dataset, path: Path) -> None:
    """Write NumPy's format, with the header as a text array."""
    arrays, header = _pack(data)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **(arrays | {_HEADER: np.array(header)}))


def read_npz(content: bytes, columns: Columns, *, outputs_may_be_absent: bool = False) -> Reading:
    """Read NumPy's format; pickled objects are refused."""
    if not content.startswith(b"PK"):
        raise DataError(f"an NPZ file must begin with PK; found {content[:4]!r}; write or copy it again")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        arrays = _members(archive)
    if _HEADER in arrays:
        return _own_reading(_unpack(arrays, str(arrays.pop(_HEADER)), columns))
    return read_variables(arrays, columns, outputs_may_be_absent=outputs_may_be_absent)


def _members(archive: zipfile.ZipFile) -> dict[str, np.ndarray]:
    """The arrays of an archive. A few compressed bytes can expand to any number of zeros, so sizes are added up."""
    members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
    check_cells(len(members))
    num_cells, arrays = 0, {}
    for member in members:
        with archive.open(member) as file:
            shape, num_bytes = _declared(file)
        num_cells += math.prod(shape)
        check_cells(num_cells)
        if num_bytes > min(member.file_size, MOST_BYTES):
            raise DataError(
                f"an array must be as large as it says and at most {MOST_BYTES} bytes; {member.filename!r} declares "
                f"{num_bytes} of the {member.file_size} it has; write the file again"
            )
        with archive.open(member) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
        arrays[member.filename.removesuffix(".npy")] = array
    return arrays


def _declared(file: Any) -> tuple[tuple[int, ...], int]:
    """The shape and the bytes that the header of an array declares."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise DataError("an NPZ file must hold plain arrays; it holds objects (pickle); convert them to numbers")
    return shape, math.prod(shape) * dtype.itemsize


def _own_reading(data: Dataset) -> Reading:
    """Return the reading of a file that Langenode wrote, whose columns need no guess."""
    facts = {"rows": int(data.lengths.sum()), "files": 0, "trajectories": data.num_trajectories, "left_out": {}}
    return Reading(data, Columns(), dict.fromkeys(Columns._fields, "stored in the file, which Langenode wrote"), facts)


def _pack(data: Dataset) -> tuple[dict[str, np.ndarray], str]:
    """Return the arrays of a data set by name, and a JSON header with everything else."""
    arrays = {name: getattr(data, name) for name in _DIMS if getattr(data, name) is not None}
    arrays |= {f"attribute_{i}": values for i, values in enumerate(data.attributes.values())}
    header: dict[str, Any] = {name: list(getattr(data, name)) for name in _NAMES}
    header |= {"format": _FORMAT, "units": dict(data.units), "attributes": list(data.attributes)}
    header["labels"] = {name: list(values) for name, values in data.labels.items()}
    # An axis of length 0 has a special meaning in NetCDF-3, so only the shape of an empty array is stored.
    header["empty"] = {name: list(values.shape) for name, values in arrays.items() if values.size == 0}
    return {name: values for name, values in arrays.items() if values.size}, json.dumps(header)


def _unpack(arrays: Mapping[str, np.ndarray], header_text: str, columns: Columns) -> Dataset:
    """The inverse of `_pack`, for arrays in the types of any format."""
    if any(part is not None for part in columns):
        raise StatedColumnsError(
            "a file written by Langenode already states its columns; columns were named; name none"
        )
    header = _checked_header(header_text)
    arrays = dict(arrays) | {name: np.zeros(shape) for name, shape in header["empty"].items()}
    types = {"mask": bool, "condition": np.int64, "unit": np.int64}
    fields: dict[str, Any] = {n: arrays[n].astype(types.get(n, np.float64)) for n in _DIMS if n in arrays}
    fields |= {name: tuple(header[name]) for name in _NAMES}
    fields.setdefault("initial", None)
    attributes = {name: arrays[f"attribute_{i}"] for i, name in enumerate(header["attributes"])}
    labels = {name: tuple(values) for name, values in header.get("labels", {}).items()}
    return Dataset(**fields, units=header["units"], attributes=attributes, labels=labels)


def _checked_header(text: str) -> dict[str, Any]:
    """The header of a file of ours, in which every value has its type."""
    header = json.loads(text)
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        found = shortened(header.get("format")) if isinstance(header, dict) else "no format"
        raise DataError(f"the file's format must be {_FORMAT}; found {found}; update langenode")
    for name in (*_NAMES, "attributes"):
        if not (isinstance(header.get(name), list) and all(isinstance(word, str) for word in header[name])):
            raise DataError(f"{name} in the header must be a list of names; the file is damaged; write it again")
    units, empty = header.get("units"), header.get("empty")
    if not (isinstance(units, dict) and all(isinstance(unit, str) for unit in units.values())):
        raise DataError("units in the header must be text; the file is damaged; write it again")
    labels = header.get("labels", {})
    texts = list(labels.values()) if isinstance(labels, dict) else [None]
    if not all(isinstance(values, list) and all(isinstance(text, str) for text in values) for values in texts):
        raise DataError("labels in the header must be lists of text; the file is damaged; write it again")
    if not (isinstance(empty, dict) and all(_is_empty_shape(shape) for shape in empty.values())):
        raise DataError("empty arrays in the header must be empty; the file is damaged; write it again")
    return header


def _is_empty_shape(shape: Any) -> bool:
    """Whether these are the sizes of an array without numbers."""
    is_shape = isinstance(shape, list) and all(isinstance(size, int) and 0 <= size <= MOST_CELLS for size in shape)
    return is_shape and 0 in shape and len(shape) <= 8
