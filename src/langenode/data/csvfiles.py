"""Tidy CSV files, one row a time point: columns trajectory, time, x:INPUT, y:OUTPUT, h0:NUMBER, condition, unit."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from langenode.data.checks import DataError, valid_cells
from langenode.data.columns import Columns
from langenode.data.dataset import Dataset


def write_csv(data: Dataset, path: Path) -> None:
    """Write the valid part of every trajectory; a missing value is an empty cell."""
    import pandas as pd

    valid = valid_cells(data.times)
    trajectory = np.nonzero(valid)[0]
    outputs = np.where(data.mask, data.outputs, np.nan)[valid]
    columns = {"trajectory": trajectory, "time": data.times[valid]}
    columns |= {f"x:{name}": data.inputs[valid][:, i] for i, name in enumerate(data.input_names)}
    columns |= {f"y:{name}": outputs[:, i] for i, name in enumerate(data.output_names)}
    if data.initial is not None:
        columns |= {f"h0:{i}": column[trajectory] for i, column in enumerate(data.initial.T)}
    columns["condition"] = np.array(data.condition_names)[data.condition[trajectory]]
    columns["unit"] = np.array(data.unit_names)[data.unit[trajectory]]
    pd.DataFrame(columns).to_csv(path, index=False, lineterminator="\n")


def read_csv(content: bytes, columns: Columns) -> Dataset:
    """Read a table in which the rows of a trajectory are in order of time, those of several may be interleaved."""
    text = _table(content)
    roles = _roles(columns, list(text))
    times = _numbers(text, roles.time or "time")
    inputs, outputs, initial = (_block(text, names or ()) for names in (roles.inputs, roles.outputs, roles.initial))
    # What is one for a trajectory: its start and its labels.
    single = {name: initial[:, i] for i, name in enumerate(roles.initial or ())}
    single |= {name: _labels(text, name) for name in (roles.condition, roles.unit) if name is not None}
    labels = ["0"] * len(times) if roles.trajectory is None else _labels(text, roles.trajectory).tolist()
    groups: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        groups.setdefault(label, []).append(row)
    trajectories = []
    for label, rows in groups.items():
        for name, values in single.items():
            if np.any(values[rows] != values[rows[0]]):
                raise DataError(
                    f"column '{name}' must be the same in all rows of a trajectory; it varies in trajectory "
                    f"'{label}'; correct it"
                )
        record: dict[str, Any] = {"times": times[rows], "inputs": inputs[rows], "outputs": outputs[rows]}
        record["initial"] = initial[rows[0]] if roles.initial else None
        record["condition"] = str(single[roles.condition][rows[0]]) if roles.condition else None
        record["unit"] = str(single[roles.unit][rows[0]]) if roles.unit else None
        trajectories.append(record)
    return Dataset.from_list(
        trajectories,
        input_names=_without_prefix(roles.inputs, "x:") if columns.inputs is None else columns.inputs,
        output_names=_without_prefix(roles.outputs, "y:") if columns.outputs is None else columns.outputs,
    )


def _table(content: bytes) -> dict[str, tuple[str, ...]]:
    """The text of every column by its name, of a table whose rows all have the same number of cells."""
    # pandas would fill up a row that was cut short with missing values.
    rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    header = rows[0]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"column names must differ; found {twice} more than once; rename them")
    for number, row in enumerate(rows, start=1):
        if row and len(row) != len(header):
            raise DataError(
                f"every row must have {len(header)} cells; row {number} has {len(row)}; "
                "the file may be cut short: write or copy it again"
            )
    cells = list(zip(*filter(None, rows[1:]), strict=True))
    if not cells:
        raise DataError("a CSV file must have rows below its header; found none; add data")
    return dict(zip(header, cells, strict=True))


def _roles(columns: Columns, header: Sequence[str]) -> Columns:
    """Fill in the columns that were not named, by the names that `write_csv` gives them."""
    defaults = {name: name for name in ("trajectory", "condition", "unit") if name in header} | {"time": "time"}
    prefixes = {"inputs": "x:", "outputs": "y:", "initial": "h0:"}
    defaults |= {part: tuple(name for name in header if name.startswith(prefix)) for part, prefix in prefixes.items()}
    given = {part: names for part, names in columns._asdict().items() if names is not None}
    roles = columns._replace(**(defaults | given))
    roles.check_present(header)
    if not roles.outputs:
        raise DataError(f"a data file must have outputs; no column begins with y: in {list(header)}; name the outputs")
    return roles


def _numbers(text: Mapping[str, Sequence[str]], name: str) -> np.ndarray:
    """The numbers of a column, NaN where the cell is empty."""
    values = []
    for row, cell in enumerate(text[name]):
        try:
            values.append(_number(cell))
        except ValueError as error:
            raise DataError(
                f"column '{name}' must hold numbers; row {row + 2} has '{cell}'; "
                "correct it, or leave it empty if it is missing"
            ) from error
    return np.array(values)


def _number(cell: str) -> float:
    """A cell's number to the last bit; pandas' fast parser rounds some."""
    if cell.strip() in ("", "NA", "N/A"):
        return math.nan
    # Python would also read 1_000, which no other reader of the file does.
    return float(cell.replace("_", "?"))


def _block(text: Mapping[str, Sequence[str]], names: Sequence[str]) -> np.ndarray:
    """The numbers of several columns, (row, column)."""
    num_rows = len(next(iter(text.values())))
    return np.array([_numbers(text, name) for name in names]).reshape(len(names), num_rows).T


def _labels(text: Mapping[str, Sequence[str]], name: str) -> np.ndarray:
    """The labels of a column, none of them empty."""
    cells = text[name]
    if "" in cells:
        raise DataError(f"column '{name}' must be filled in every row; row {cells.index('') + 2} is empty; fill it")
    return np.array(cells)


def _without_prefix(names: Sequence[str] | None, prefix: str) -> tuple[str, ...]:
    return tuple(name.removeprefix(prefix) for name in names or ())
