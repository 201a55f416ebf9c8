"""Tables with one row per reading and quantity (`time, variable, value`), made into one column per quantity."""

import dataclasses

import numpy as np

from langenode.data.columns.record import Columns
from langenode.data.names import base_name, natural_key
from langenode.data.tables import Table

_QUANTITIES = frozenset(
    ("variable", "parameter", "param", "quantity", "analyte", "measurand", "channel", "signal", "metric", "property")
)
_VALUES = frozenset(
    ("value", "values", "val", "reading", "result", "measurement", "wert", "messwert", "valeur", "valor")
)
_MOST_QUANTITIES = 12


def without_quantities(table: Table, given: Columns) -> Table:
    """Return the table with a column per quantity where one names quantities and another has their values.

    They are known by their names (`variable` and `value`, or `analyte` and `result`). Nothing is done where one of them
    was given a role, or a quantity has two values in one row otherwise alike.
    """
    named = {name for _, name in given.named()}
    quantity = _only(table, _QUANTITIES, "text")
    value = _only(table, _VALUES, "numbers")
    if quantity is None or value is None or {quantity, value} & named or "" in table.cells[quantity]:
        return table
    levels = sorted(set(table.cells[quantity]), key=natural_key)
    keys = [name for name in table.names if name not in (quantity, value, *levels)]
    if not 2 <= len(levels) <= _MOST_QUANTITIES:
        return table
    rows = list(zip(*(map(str, table.cells[name]) for name in keys), strict=True))
    number = {row: place for place, row in enumerate(dict.fromkeys(rows))}
    codes = np.array([number[row] for row in rows])
    places = np.array([levels.index(cell) for cell in table.cells[quantity]])
    if len(set(zip(codes.tolist(), places.tolist(), strict=True))) < table.num_rows:
        return table
    columns = np.full((len(levels), len(number)), np.nan)
    columns[places, codes] = table.numbers(value)
    first = np.unique(codes, return_index=True)[1]
    long = table.take(first)
    cells = {name: long.cells[name] for name in keys} | dict(zip(levels, columns, strict=True))
    note = {"quantities": f"one column per level of {quantity!r}, with numbers from {value!r}"}
    return dataclasses.replace(long, cells=cells, notes={**table.notes, **note}, _parsed={}, _stamped={}, _groups={})


def _only(table: Table, names: frozenset[str], kind: str) -> str | None:
    """Return the only column of one of some names that holds text, or numbers."""
    found = [name for name in table.names if base_name(name) in names and table.kind(name) == kind]
    return found[0] if len(found) == 1 and not (kind == "numbers" and table.is_faulty(found[0])) else None
