"""Parquet files, read into a `Table`."""

import sys
from typing import Any

import numpy as np

from langenode.data.checks import DataError
from langenode.data.limits import MOST_LETTERS, check_distinct, check_size
from langenode.data.tables import Table
from langenode.data.texts import Texts


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
    declared = pq.ParquetFile(pa.BufferReader(content))
    # A few compressed bytes can expand to any number of cells.
    check_size(declared.metadata.num_rows, declared.metadata.num_columns, is_binary=True)
    schema = declared.schema_arrow
    names = [str(name) for name in schema.names]
    check_distinct(names)
    if declared.metadata.num_rows == 0 or not names:
        raise DataError("a Parquet file must have rows; found none; add data")
    known = [field.name for field in schema if _is_known(field.type)]
    # Texts stay in a dictionary: a long one that is repeated in every row is stored once.
    texts = [name for name in known if _is_text(schema.field(name).type)]
    read = pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts).read(columns=known, use_threads=False)
    return Table(
        {name: _cells(read.column(name)) for name in known},
        np.arange(1, read.num_rows + 1),
        unread={field.name: f"of type {str(field.type)[:40]}" for field in schema if field.name not in known},
    )


def give_back_memory() -> None:
    """Give memory of tables that are gone back to the system: Arrow keeps it otherwise."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_known(kind: Any) -> bool:
    """Whether a column of this type can be read as numbers, time stamps or text."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_known(kind.value_type)
    tests = (types.is_timestamp, types.is_date, types.is_null, types.is_decimal, types.is_boolean, types.is_duration)
    return _is_text(kind) or types.is_integer(kind) or types.is_floating(kind) or any(test(kind) for test in tests)


def _cells(column: Any) -> Any:
    """Return a column as numbers, time stamps or text, by its type."""
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_dictionary(kind) and _is_text(kind.value_type):
        return _texts(column)
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if _is_text(kind):
        return _texts(column.dictionary_encode())
    if types.is_timestamp(kind) or types.is_date(kind):
        return np.asarray(column.to_numpy(), dtype="datetime64[ns]")
    if types.is_null(kind) or types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif types.is_duration(kind):
        return np.asarray(column.to_numpy(), dtype="timedelta64[ns]") / np.timedelta64(1, "s")
    values = np.asarray(column.to_numpy())
    return values if values.dtype.kind in "iu" else values.astype(np.float64, copy=False)


def _texts(column: Any) -> Texts:
    """Return the texts of a column that is stored as a dictionary in each of its chunks."""
    numbers: dict[str, int] = {}
    codes, num_letters = [np.zeros(0, dtype=np.int32)], 0
    for chunk in column.chunks:
        known = ["" if text is None else text for text in chunk.dictionary.to_pylist()] + [""]
        num_letters += sum(len(text) for text in known if text not in numbers)
        if num_letters > MOST_LETTERS:
            raise DataError(f"a column must have at most {MOST_LETTERS} letters; one has more; leave it out")
        new = np.array([numbers.setdefault(text, len(numbers)) for text in known], dtype=np.int32)
        indices = chunk.indices.to_numpy(zero_copy_only=False)
        if chunk.indices.null_count:  # then they are floating, with NaN
            indices = np.where(np.isnan(indices), len(known) - 1, indices).astype(np.int64)
        codes.append(new[indices])
    return Texts.of(list(numbers), np.concatenate(codes))
