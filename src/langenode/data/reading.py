"""Build a data set from a table and the roles of its columns, and record what was understood."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from langenode.data.cells import plain_cells
from langenode.data.checks import DataError, is_constant, listed, settled
from langenode.data.columns import Columns, can_be_made, guess_columns, own_labels, separators, without_quantities
from langenode.data.dataset import Dataset
from langenode.data.limits import MOST_BINARY_CELLS, MOST_CELLS
from langenode.data.names import OWN_LABELS, without_prefix
from langenode.data.tables import Groups, Table, elapsed_times
from langenode.data.units import split_unit

# Replicates found only by a column's name share the union of their times, unless that is much larger than each.
_MOST_GROWTH = 2.0


class Reading(NamedTuple):
    """A data set, the columns it was read from, the reason for each, and facts about the table."""

    data: Dataset
    columns: Columns
    reasons: dict[str, str]
    table_facts: dict[str, Any]


def read_table(table: Table, given: Columns, *, outputs_may_be_absent: bool = False) -> Reading:
    """Guess the columns that are not given and build the data set; a `DataError` carries the facts so far."""
    facts: dict[str, Any] = {"rows": table.num_rows, "files": len(table.files), "columns_found": table.names}
    try:
        if outputs_may_be_absent:
            table, given = _of_new_data(table, given)
        table = without_quantities(plain_cells(table, given.time), given)
        guess = guess_columns(table, given)
        columns, reasons, left_out, table = guess.columns, guess.reasons, guess.left_out, guess.table
        reasons |= dict(table.notes)
        facts |= {"columns": plain_columns(columns), "reasons": reasons, "left_out": left_out}
        facts["doubts"] = [doubt._asdict() for doubt in guess.doubts]
        groups = table.groups(columns.trajectory)
        facts |= _facts_of_rows(table, columns, groups)
        is_sure = columns.condition in (given.condition, *OWN_LABELS)
        try:
            growth = None if is_sure else _MOST_GROWTH
            data = table_dataset(table, columns, most_growth=growth, is_reading=guess.is_reading)
        except DataError as error:
            if is_sure:
                raise
            # A guess from a name must not prevent a good table from loading.
            if not any(name.startswith(f"{columns.condition}=") for name in columns.inputs or ()):
                left_out[str(columns.condition)] = "not a condition, though named like one"
            reasons["condition"] = f"not column {columns.condition!r}: {str(error).split(';')[0]}"
            columns = columns._replace(condition=None)
            facts["columns"] = plain_columns(columns)
            data = table_dataset(table, columns, is_reading=guess.is_reading)
        return Reading(data, columns, reasons, facts)
    except DataError as error:
        raise DataError(str(error), facts) from error


def _of_new_data(table: Table, given: Columns) -> tuple[Table, Columns]:
    """Return a table for predictions: outputs may be missing, and it may be one trajectory without a label."""
    is_long = given.trajectory is None or "*" not in given.trajectory or given.trajectory in table.names
    table = table.with_missing(given.outputs or ()) if is_long else table
    labels = {part: getattr(given, part) for part in ("trajectory", "condition", "unit")}
    absent = {part: None for part, name in labels.items() if name is None or not can_be_made(table, name)}
    return table, given._replace(**absent)


def table_dataset(
    table: Table,
    columns: Columns,
    *,
    most_growth: float | None = None,
    is_reading: np.ndarray | None = None,
) -> Dataset:
    """Build the data set of a table; each trajectory's rows are in order of time, trajectories may be interleaved.

    A condition is refused if the union of its replicates' times is more than `most_growth` times the longest of them.
    Rows that are no reading have no outputs.
    """
    groups = table.groups(columns.trajectory)
    times = _checked_times(table, columns, groups)
    blocks = {part: _block(table, getattr(columns, part)) for part in ("inputs", "outputs", "initial")}
    blocks["inputs"] = _with_constants_filled(blocks["inputs"], groups)
    if is_reading is not None:
        blocks["outputs"] = np.where(is_reading[:, None], blocks["outputs"], np.nan)
    _check_blocks(table, columns, blocks)
    for index, name in enumerate(columns.initial or ()):
        _check_same(blocks["initial"][:, index], name, groups)
    labels, first = _labels(table, columns, groups), groups.order[groups.starts]
    _check_size(times, groups, labels["condition"], sum(block.shape[1] for block in blocks.values()), most_growth)
    # The rows of every trajectory; padding repeats its last row.
    placed = _Placed.of(groups)
    names: dict[str, Any] = {
        "input_names": tuple(without_prefix(name) for name in columns.inputs or ()),
        "output_names": tuple(without_prefix(name) for name in columns.outputs or ()),
        "units": _units(table, columns),
    }
    initial = blocks["initial"][first] if columns.initial else None
    if labels["condition"] is not None and not _times_agree(placed(times), labels["condition"]):
        paths = [
            {"times": times[r], "inputs": blocks["inputs"][r], "outputs": blocks["outputs"][r]} for r in groups.split()
        ]
        extras = {"initial": initial, **labels}
        for index, path in enumerate(paths):
            path |= {part: values[index] for part, values in extras.items() if values is not None}
        return dataclasses.replace(Dataset.from_list(paths, **names), labels=own_labels(table, columns, groups))
    outputs = placed(blocks["outputs"])
    mask = settled(~np.isnan(outputs) & placed.is_within[..., None])
    arrays = {"inputs": placed(blocks["inputs"]), "mask": mask, "initial": initial}
    del blocks
    data = Dataset.from_arrays(placed(times), outputs, **arrays, **labels, **names)
    return dataclasses.replace(data, labels=own_labels(table, columns, groups))


class _Placed(NamedTuple):
    """Places of rows in rectangular arrays, (traj, time); the padding of a trajectory repeats its last row."""

    rows: np.ndarray | None  # None where the table is rectangular already
    is_within: np.ndarray

    @classmethod
    def of(cls, groups: Groups) -> "_Placed":
        """The rows of every trajectory."""
        lengths = np.bincount(groups.codes)
        within = np.arange(lengths.max())
        is_within = within < lengths[:, None]
        if is_within.all() and np.all(groups.codes[1:] >= groups.codes[:-1]):
            return cls(None, is_within)
        return cls(groups.order[groups.starts[:, None] + np.minimum(within, lengths[:, None] - 1)], is_within)

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Arrange the values of all rows."""
        is_plain = self.rows is None
        return settled(values.reshape(*self.is_within.shape, *values.shape[1:]) if is_plain else values[self.rows])


def _units(table: Table, columns: Columns) -> dict[str, str]:
    """Return the physical units that the names of columns or the table state; that of the time is called time."""
    named = {}
    for name in (*(columns.inputs or ()), *(columns.outputs or ())):
        named[without_prefix(name)] = split_unit(without_prefix(name))[1] or table.units.get(name)
    time = columns.time or "time"
    named["time"] = split_unit(time)[1] or table.units.get(time)
    return {name: unit for name, unit in named.items() if unit is not None}


def _with_constants_filled(block: np.ndarray, groups: Groups) -> np.ndarray:
    """Return inputs with gaps filled in columns that are constant within each trajectory and differ between them."""
    if not np.isnan(block).any():
        return block
    block = block.copy()
    for column in block.T:
        is_setting = np.isnan(column).any() and groups.are_constant(column) and len(groups.labels) > 1
        if is_setting and not is_constant(column[~np.isnan(column)]):
            known = np.flatnonzero(~np.isnan(column))
            value = np.full(len(groups.labels), np.nan)
            value[groups.codes[known]] = column[known]
            column[:] = np.where(np.isnan(column), value[groups.codes], column)
    return block


def _labels(table: Table, columns: Columns, groups: Groups) -> dict[str, list[str] | None]:
    """Return the condition and the unit of every trajectory."""
    # Without units the trajectory labels are used, so that messages can name trajectories.
    labels: dict[str, list[str] | None] = {"condition": None, "unit": list(groups.labels)}
    for part in labels:
        if (name := getattr(columns, part)) is not None:
            every = table.labels(name)
            _check_same(every.codes, name, groups)
            labels[part] = [every[row] for row in groups.order[groups.starts]]
    return labels


def _times_agree(times: np.ndarray, condition: list[str]) -> bool:
    """Whether the trajectories of every condition have the same times."""
    _, first, codes = np.unique(np.array(condition), return_index=True, return_inverse=True)
    return np.array_equal(times, times[first[codes]])


def plain_columns(columns: Columns) -> dict[str, Any]:
    """Return the columns as plain JSON values."""
    return {part: list(names) if isinstance(names, tuple) else names for part, names in columns._asdict().items()}


def _facts_of_rows(table: Table, columns: Columns, groups: Groups) -> dict[str, Any]:
    """Count what may be wrong with a table, before anything is refused."""
    times = elapsed_times(table, columns.time or "time", groups)[0]
    num_same = 0
    if not groups.increase(times):
        order = np.lexsort((times, groups.codes))
        times, codes = times[order], groups.codes[order]
        num_same = int(((times[1:] == times[:-1]) & (codes[1:] == codes[:-1])).sum())
    quantities = {name: table.numbers(name) for name in (*(columns.inputs or ()), *(columns.outputs or ()))}
    seen = {name: values[np.isfinite(values)] for name, values in quantities.items()}
    return {
        "trajectories": len(groups.labels),
        "duplicated_times": num_same,
        "missing_cells": int(sum(np.isnan(values).sum() for values in quantities.values())),
        "constant_columns": [name for name, values in seen.items() if values.size and is_constant(values)],
    }


def _checked_times(table: Table, columns: Columns, groups: Groups) -> np.ndarray:
    """Return the times, if they increase strictly within every trajectory."""
    name = columns.time or "time"
    times = elapsed_times(table, name, groups)[0]
    infinite = np.flatnonzero(np.isinf(times)).tolist()
    if infinite:
        raise DataError(f"times must be finite; {table.place(infinite[0])} has {times[infinite[0]]}; drop that row")
    wrong = groups.not_increasing(times)
    if not wrong.size:
        return times
    row = int(groups.order[wrong[0]])
    if np.isnan(times[row]):
        raise DataError(
            f"times must be known and increase strictly; column {name!r} is empty in {table.place(row)}; "
            "fill it or drop the row"
        )
    before = groups.order[wrong[0] - 1]
    found = f"{table.place(row)} has {times[row]:g} after {times[before]:g}"
    must = f"times must increase strictly within a trajectory; {found}"
    mend = "average or drop repeated readings" if times[row] == times[before] else "sort the rows"
    if len(groups.labels) > 1:
        raise DataError(
            f"{must} in trajectory {groups.labels[groups.codes[row]]!r}; {mend}, "
            "or name the column of trajectory labels with --trajectory NAME"
        )
    able = separators(table, name, [name])
    hint = f" (candidates: {listed(able, 5)})" if able else ""
    raise DataError(
        f"{must}; if there are several trajectories, name the column of their labels with --trajectory "
        f"NAME{hint}, else {mend}"
    )


def _block(table: Table, names: tuple[str, ...] | None) -> np.ndarray:
    """Return the numbers of several columns, (row, column)."""
    return np.array([table.numbers(name) for name in names or ()]).reshape(len(names or ()), table.num_rows).T


def _check_blocks(table: Table, columns: Columns, blocks: Mapping[str, np.ndarray]) -> None:
    """Raise, naming column and row, where a number is missing or infinite that must not be."""
    must = {
        "inputs": ("inputs must be known at every time", "fill the gap or drop the row"),
        "outputs": ("observed outputs must be finite", "leave the cell empty if it is missing"),
        "initial": ("the start must be known", "fill it or leave the column out"),
    }
    for part, (rule, remedy) in must.items():
        values = blocks[part]
        wrong = np.argwhere(np.isinf(values) if part == "outputs" else ~np.isfinite(values))
        if wrong.size:
            row, column = wrong[0]
            found = "nothing" if np.isnan(values[row, column]) else f"{values[row, column]}"
            name = getattr(columns, part)[column]
            raise DataError(f"{rule}; column {name!r} has {found} in {table.place(row)}; {remedy}")


def _check_same(values: np.ndarray, name: str, groups: Groups) -> None:
    wrong = np.flatnonzero(values != values[groups.first_rows()])
    if wrong.size:
        raise DataError(
            f"column {name!r} must be the same in all rows of a trajectory; it varies in trajectory "
            f"{groups.labels[groups.codes[wrong[0]]]!r}; correct it"
        )


def _check_size(
    times: np.ndarray, groups: Groups, condition: list[str] | None, num_columns: int, most_growth: float | None
) -> None:
    """Raise before allocating arrays that no machine can hold: all trajectories are padded to the longest."""
    longest = int(np.bincount(groups.codes).max())
    grid = longest
    if condition is not None:
        codes = np.unique(np.array(condition), return_inverse=True)[1][groups.codes]
        order = np.lexsort((times, codes))
        times, codes = times[order], codes[order]
        is_new = np.append(True, (times[1:] != times[:-1]) | (codes[1:] != codes[:-1]))
        grid = max(grid, int(np.bincount(codes[is_new]).max()))
    if most_growth is not None and grid > most_growth * longest:
        raise DataError(
            f"replicates must share most of their times; found {grid} in all, at most {longest} in one; share times"
        )
    # A large table may be padded to twice its size.
    most = max(MOST_CELLS, min(MOST_BINARY_CELLS, 2 * len(times) * (num_columns + 1)))
    if len(groups.labels) * grid * (num_columns + 1) > most:
        raise DataError(
            f"trajectories padded to the longest must have at most {most} cells; found {len(groups.labels)} "
            f"trajectories of up to {grid} times and {num_columns + 1} columns; thin out or cut up long trajectories"
        )
