"""NetCDF and NPZ files: those written by Langenode, with a JSON header, and others, read by their variables."""

import importlib.util
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from langenode.data.checks import DataError, StatedColumnsError
from langenode.data.columns import Columns
from langenode.data.dataset import Dataset
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
_MOST_BYTES = 4_000_000_000


def write_netcdf(data: Dataset, path: Path) -> None:
    """Write NetCDF-3, which needs no HDF5."""
    import xarray as xr

    arrays, header = _pack(data)
    variables = {}
    for name, values in arrays.items():
        dims = _DIMS.get(name) or ("traj", *(f"{name}_axis{axis}" for axis in range(1, values.ndim)))
        # NetCDF-3 has neither 64-bit integers nor Booleans.
        values = values.astype({"b": np.int8, "i": np.int32}.get(values.dtype.kind, np.float64))
        variables[name] = xr.Variable(dims, values, encoding={"_FillValue": None})
    for index, name in enumerate(data.attributes):
        if f"attribute_{index}" in variables:
            variables[f"attribute_{index}"].attrs["long_name"] = name
    labels = {"out": list(data.output_names)} | ({"in": list(data.input_names)} if data.num_inputs else {})
    dataset = xr.Dataset(variables, coords=labels, attrs={_HEADER: header})
    dataset.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


def read_netcdf(content: bytes, columns: Columns, *, outputs_may_be_absent: bool = False) -> Reading:
    """Read NetCDF-3, or NetCDF-4 where h5netcdf is installed."""
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
    variables = {str(name): variable for name, variable in dataset.variables.items()}
    if _HEADER in dataset.attrs:
        arrays = {name: variable.to_numpy() for name, variable in variables.items()}
        return _own_reading(_unpack(arrays, dataset.attrs[_HEADER], columns))
    time = columns.time or find_time({name: variable.to_numpy() for name, variable in variables.items()})
    axes = variables[time].dims if time in variables else ()
    for name, variable in variables.items():
        # Named axes distinguish (time, trajectory) from (trajectory, time).
        if variable.ndim == 2 and axes and variable.dims[0] == axes[-1]:
            variables[name] = variable.transpose()
    arrays = {name: variable.to_numpy() for name, variable in variables.items()}
    return read_variables(arrays, columns, outputs_may_be_absent=outputs_may_be_absent)


def write_npz(data: Dataset, path: Path) -> None:
    """Write NumPy's format, with the header as a text array."""
    arrays, header = _pack(data)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **(arrays | {_HEADER: np.array(header)}))


def read_npz(content: bytes, columns: Columns, *, outputs_may_be_absent: bool = False) -> Reading:
    """Read NumPy's format; pickled objects are refused."""
    if not content.startswith(b"PK"):
        raise DataError(f"an NPZ file must begin with PK; found {content[:4]!r}; write or copy it again")
    # A few compressed bytes can expand to any number of zeros.
    size = sum(member.file_size for member in zipfile.ZipFile(io.BytesIO(content)).infolist())
    if size > _MOST_BYTES:
        raise DataError(f"an NPZ file must unpack to at most {_MOST_BYTES} bytes; it declares {size}; store less in it")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    if _HEADER in arrays:
        return _own_reading(_unpack(arrays, str(arrays.pop(_HEADER)), columns))
    return read_variables(arrays, columns, outputs_may_be_absent=outputs_may_be_absent)


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
    # An axis of length 0 has a special meaning in NetCDF-3, so only the shape of an empty array is stored.
    header["empty"] = {name: list(values.shape) for name, values in arrays.items() if values.size == 0}
    return {name: values for name, values in arrays.items() if values.size}, json.dumps(header)


def _unpack(arrays: Mapping[str, np.ndarray], header_text: str, columns: Columns) -> Dataset:
    """The inverse of `_pack`, for arrays in the types of any format."""
    if any(part is not None for part in columns):
        raise StatedColumnsError(
            "a file written by Langenode already states its columns; columns were named; name none"
        )
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
