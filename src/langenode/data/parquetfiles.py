"""Parquet files, read into a `Table`."""

from typing import Any

import numpy as np

from langenode.data.checks import DataError, listed
from langenode.data.tables import Table

_MOST_CELLS = 500_000_000


def parquet_table(content: bytes) -> Table:
    """Read the table in a Parquet file; nested and binary columns are left unread."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError("Parquet needs the pyarrow package; it is not installed; pip install pyarrow") from error
    if not (content.startswith(b"PAR1") and content.endswith(b"PAR1")):
        raise DataError(
            f"a Parquet file must begin and end with PAR1; found {content[:4]!r} and {content[-4:]!r}; "
            "write or copy it again"
        )
    file = pq.ParquetFile(pa.BufferReader(content))
    shape = file.metadata.num_rows, file.metadata.num_columns
    # A few compressed bytes can expand to any number of cells.
    if shape[0] * shape[1] > _MOST_CELLS:
        raise DataError(f"a table must have at most {_MOST_CELLS} cells; the file declares {shape}; keep fewer rows")
    read = file.read()
    names = [str(name) for name in read.column_names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"column names must differ; found {listed(twice)} more than once; rename them")
    if read.num_rows == 0 or not names:
        raise DataError("a Parquet file must have rows; found none; add data")
    columns = {name: _cells(read.column(name)) for name in names}
    return Table(
        {name: cells for name, cells in columns.items() if cells is not None},
        np.arange(1, read.num_rows + 1),
        unread={
            name: f"of type {str(read.column(name).type)[:40]}" for name, cells in columns.items() if cells is None
        },
    )


def _cells(column: Any) -> Any:
    """Return a column as numbers, time stamps or text, by its type; None for any other type."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return ["" if cell is None else cell for cell in column.to_pylist()]
    if types.is_timestamp(kind) or types.is_date(kind):
        return np.asarray(column.to_numpy(), dtype="datetime64[ns]")
    if types.is_null(kind) or types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif types.is_duration(kind):
        return np.asarray(column.to_numpy(), dtype="timedelta64[ns]") / np.timedelta64(1, "s")
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        return None
    values = np.asarray(column.to_numpy())
    return values if values.dtype.kind in "iu" else values.astype(np.float64)
