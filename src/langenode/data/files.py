"""Data sets on disk: the suffix chooses the format, files are written whole, every fault is a `DataError`."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from langenode.data.arrayfiles import read_netcdf, read_npz, write_netcdf, write_npz
from langenode.data.checks import DataError
from langenode.data.columns import Columns
from langenode.data.csvfiles import csv_table, folder_table, write_csv
from langenode.data.dataset import Dataset
from langenode.data.limits import MOST_BYTES
from langenode.data.parquetfiles import give_back_memory, parquet_table
from langenode.data.reading import Reading, read_table

_NONE_GIVEN = Columns()
_WRITERS = {".nc": write_netcdf, ".npz": write_npz, ".csv": write_csv}


def save_data(data: Dataset, path: str | Path) -> None:
    """Write a data set to `path`, whole or not at all; the suffix .nc, .npz or .csv chooses the format.

    NetCDF (version 3) and NPZ keep everything bit for bit. CSV keeps names and numbers, one row per time point, in the
    columns trajectory, time, x:INPUT, y:OUTPUT, h0:NUMBER, condition, unit; it omits physical units and attributes.
    """
    path = Path(path)
    writer = _of_suffix(path, _WRITERS)
    if data.num_trajectories == 0:
        raise DataError(f"a data file needs at least one trajectory; there is none to write to {path}; add one")
    # A temporary file is moved into place, so that no half-written file is ever visible.
    # What a killed process leaves is known by its name (`storage.writing.TEMPORARY`).
    partial = path.with_name(f".{path.name[:60]}.{uuid.uuid4().hex}.tmp")
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
    """Read a data set from a file that `save_data` wrote, or from a table or arrays of your own.

    A table (.csv, .tsv, .parquet) has one row per time point and an empty cell where a value is missing; a folder has
    one CSV file per trajectory. In other .nc or .npz files the names are those of variables over (trajectory, time), or
    (time,) where shared; start, condition and unit are over (trajectory,). Columns not named here are guessed (see
    `guess_columns`); `read_data` also returns the reasons.
    """
    columns = Columns(trajectory, time, _listed(inputs), _listed(outputs), _listed(initial), condition, unit)
    return read_data(path, columns).data


def read_data(path: str | Path, columns: Columns = _NONE_GIVEN, *, outputs_may_be_absent: bool = False) -> Reading:
    """Read a data set as `load_data` does; return it with the columns used and the reason for each.

    With `outputs_may_be_absent`, for predictions at new inputs, named outputs that the file lacks are missing
    throughout. A `DataError` carries in `facts` what had been understood before the fault.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return read_table(folder_table(path), columns, outputs_may_be_absent=outputs_may_be_absent)
        reader = _of_suffix(path, _READERS)
        if reader in (csv_table, parquet_table):  # the bytes are not kept while the table is looked at
            reading = read_table(reader(read_whole(path)), columns, outputs_may_be_absent=outputs_may_be_absent)
            give_back_memory()
            return reading
        return reader(read_whole(path), columns, outputs_may_be_absent=outputs_may_be_absent)
    except DataError as error:
        raise error if str(path) in str(error) else type(error)(f"{path}: {error}", error.facts) from error
    except Exception as error:  # Libraries may raise almost anything on a damaged file.
        raise DataError(
            f"{path} must be a whole {path.suffix} file; reading it failed with {type(error).__name__}: "
            f"{str(error)[:300]}; write or copy it again"
        ) from error


def read_whole(path: Path) -> bytes:
    """Return the bytes of a regular file that is neither empty nor too large."""
    try:
        # A device or a pipe may never end.
        if path.exists() and not path.is_file():
            raise DataError(f"{path} must be a readable file or a folder; found something else; check the path")
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} must have at most {MOST_BYTES} bytes; it has more; keep the rows you need")
        content = path.read_bytes()
    except DataError:
        raise
    except (OSError, ValueError) as error:  # A zero byte in the path raises ValueError.
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{path} must be a readable file; {why}; check the path") from error
    if not content.strip():
        raise DataError(f"{path} must hold data; the file is empty; write it again")
    return content


# Of array formats a reader gives a `Reading`, of text and Parquet a `Table`.
_READERS: dict[str, Callable] = {
    ".nc": read_netcdf,
    ".npz": read_npz,
    ".csv": csv_table,
    ".tsv": csv_table,
    ".txt": csv_table,
    ".dat": csv_table,
    ".parquet": parquet_table,
    ".pq": parquet_table,
}


def _of_suffix(path: Path, table: Mapping[str, Callable]) -> Callable:
    suffix = path.suffix.lower()
    if suffix not in table:
        raise DataError(
            f"a data file must end in {', '.join(table)}; found '{path.name}'; convert it (a spreadsheet to .csv)"
        )
    return table[suffix]


def _listed(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names as a tuple; a single name may be given as plain text."""
    if names is None:
        return None
    return (names,) if isinstance(names, str) else tuple(names)
