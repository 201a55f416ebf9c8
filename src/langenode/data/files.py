"""A data set on disk: the format by the suffix, whole files only, every fault a `DataError`."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from langenode.data.arrayfiles import read_netcdf, read_npz, write_netcdf, write_npz
from langenode.data.checks import DataError
from langenode.data.columns import Columns
from langenode.data.csvfiles import read_csv, write_csv
from langenode.data.dataset import Dataset

_WRITERS = {".nc": write_netcdf, ".npz": write_npz, ".csv": write_csv}
_READERS = {".nc": read_netcdf, ".npz": read_npz, ".csv": read_csv}


def save_data(data: Dataset, path: str | Path) -> None:
    """Write a data set to `path`, whole or not at all; the suffix .nc, .npz or .csv chooses the format.

    NetCDF (version 3) and NPZ keep everything bit for bit. CSV keeps names and numbers, one row a time point,
    in the columns trajectory, time, x:INPUT, y:OUTPUT, h0:NUMBER, condition, unit; physical units and
    attributes are not in it.
    """
    path = Path(path)
    writer = _of_suffix(path, _WRITERS)
    if data.num_trajectories == 0:
        raise DataError(f"a data file needs at least one trajectory; there is none to write to {path}; skip it")
    # A temporary file is moved into place: no half-written file is ever seen.
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        writer(data, partial)
        partial.replace(path)
    except OSError as error:
        raise DataError(f"{path} must be writable; {error}; choose another folder") from error
    finally:
        partial.unlink(missing_ok=True)


def load_data(
    path: str | Path,
    *,
    trajectory: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    initial: Sequence[str] | None = None,
    condition: str | None = None,
    unit: str | None = None,
) -> Dataset:
    """Read a data set from a .nc, .npz or .csv file that `save_data` wrote or whose columns are named here.

    A CSV file has one row a time point and an empty cell where a value is missing. Columns not named here are
    found by the names that `save_data` writes; without a trajectory column the file is one trajectory. In a
    foreign .nc or .npz file the names are of variables over (trajectory, time), or (time,) where shared;
    those of the start, condition and unit are over (trajectory,).
    """
    columns = Columns(trajectory, time, _listed(inputs), _listed(outputs), _listed(initial), condition, unit)
    path = Path(path)
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


def _listed(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names as a tuple; a single name may be given bare."""
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)
