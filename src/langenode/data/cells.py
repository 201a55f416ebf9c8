"""Cells as people and instruments write them, rewritten as plain numbers and ISO-8601 time stamps.

Dates in other orders, times of the day, percent signs, thousands separators, TRUE and FALSE, readings below a limit and
codes for missing ones. A column is rewritten only if all its filled cells are of one kind: a single odd cell is a
fault, which is reported later with its row.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from langenode.data.dates import clock_cells, date_cells, joined_stamps
from langenode.data.doubts import Doubt
from langenode.data.names import is_label_name, may_be_date_name
from langenode.data.tables import Table, is_missing
from langenode.data.texts import Texts
from langenode.data.units import is_unit

_TRUTH = {"true": "1", "false": "0"}
_WITH_UNIT = re.compile(r"([+-]?\d*\.?\d+(?:[eE][+-]?\d+)?)\s*(\D.*)")
_PLAIN = re.compile(r"[+-]?\d*\.?\d+(?:[eE][+-]?\d+)?")
_WITH_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?")
_WITH_GAPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:[ '’\u00a0\u202f]\d{3})+(?:\.\d+)?")
_WITH_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?|[+-]?\d+")
_LIMIT = re.compile(r"[<>≤≥]=?\s*[+-]?\d*[.,]?\d+(?:[eE][+-]?\d+)?")
# Numbers of nines alone are codes where they stand beyond all others by more than their range, at least twice; of the
# others there must be several.
_CODES = tuple(float(sign * (10**digits - 1)) for digits in range(2, 8) for sign in (-1, 1))
_FEWEST_CODES, _FEWEST_OTHERS = 2, 3


class Rewritten(NamedTuple):
    """The cells of a column in plain form, how they were read, its unit if they tell it, and what is in doubt."""

    cells: list[str]
    how: str
    unit: str | None = None
    doubt: Doubt | None = None


_Kind = Callable[[str, Sequence[str], Sequence[str]], Rewritten | None]


def plain_cells(table: Table, time: str | None = None) -> Table:
    """Return the table with its text columns in plain form where they are of one known kind.

    Dates and times of the day are looked for in the columns named like a time, and in the one given as `time`. A
    column of dates and one of times of the day are joined in another, `DATE/TIME`.
    """
    notes, units, doubts = [], dict(table.units), list(table.doubts)
    dates, clocks = [], []
    for name in table.names:
        is_time = name == time or may_be_date_name(name)
        found = _rewritten(table, name, is_time)
        if found is not None:
            table = table.with_column(name, found.cells)
            notes.append(f"{name}: {found.how}")
            doubts += [] if found.doubt is None else [found.doubt]
            units |= {} if found.unit is None else {name: found.unit}
            clocks += [name] if found.how.startswith("times of the day") else []
        if is_time and table.stamps(name, is_strict=False) is not None:
            dates.append(name)
        coded = _codes(table, name) if not is_label_name(name) and name != time else None
        if coded is not None:
            table, doubt = coded
            doubts.append(doubt)
    if len(dates) == len(clocks) == 1 and time not in (*dates, *clocks):
        stamps = joined_stamps(table.stamps(dates[0]), table.numbers(clocks[0]))
        name = f"{dates[0]}/{clocks[0]}"
        if stamps is not None and name not in table.names:
            table = table.with_column(name, stamps)
            option = f"--trajectory '{dates[0]}' --time '{clocks[0]}'"
            doubts.append(Doubt(name, "dates and times of the day, joined", "each date is a trajectory", option))
    noted = {"cells": "; ".join(notes)} if notes else {}
    return dataclasses.replace(table, notes={**table.notes, **noted}, units=units, doubts=tuple(doubts))


def _rewritten(table: Table, name: str, is_time: bool) -> Rewritten | None:
    """Return a column of text in plain form; None if it is plain already, or of no kind that is known."""
    cells = table.cells[name]
    if isinstance(cells, np.ndarray) or not table.is_faulty(name):
        return None
    if is_time and table.stamps(name, is_strict=False) is not None:
        return None
    kinds: list[_Kind] = [_truths, _with_unit, _thousands]
    kinds += [_decimal_commas, _limits]
    if is_time:
        kinds = [_clocks, _dates, *kinds]
    # A kind that the distinct texts are not of, the cells are not of either.
    if isinstance(cells, Texts) and _of_a_kind(name, cells.levels, kinds) is None:
        return None
    return _of_a_kind(name, cells, kinds)


def _of_a_kind(name: str, cells: Sequence[str], kinds: Sequence[_Kind]) -> Rewritten | None:
    """Return cells in the plain form of the first kind that all of them are of."""
    filled = [cell.strip() for cell in cells if not is_missing(cell)]
    found = (kind(name, cells, filled) for kind in kinds)
    return next((one for one in found if one is not None), None)


def _each(cells: Sequence[str], change: Callable[[str], str]) -> list[str]:
    return ["" if is_missing(cell) else change(cell.strip()) for cell in cells]


def _truths(name: str, cells: Sequence[str], filled: Sequence[str]) -> Rewritten | None:
    if not all(cell.lower() in _TRUTH for cell in filled):
        return None
    return Rewritten(_each(cells, lambda cell: _TRUTH[cell.lower()]), "true is 1, false is 0")


def _with_unit(name: str, cells: Sequence[str], filled: Sequence[str]) -> Rewritten | None:
    """Remove a unit behind each number, which must be the same throughout."""
    first = _WITH_UNIT.fullmatch(filled[0])
    if first is None or not is_unit(first[2]):
        return None
    found = [_WITH_UNIT.fullmatch(cell) for cell in filled]
    if not all(one is not None and one[2] == first[2] for one in found):
        return None
    return Rewritten(
        _each(cells, lambda cell: cell.removesuffix(first[2]).strip()), f"numbers with {first[2]}", first[2]
    )


def _thousands(name: str, cells: Sequence[str], filled: Sequence[str]) -> Rewritten | None:
    """Remove thousands separators: groups of three digits throughout."""
    for pattern, marks in ((_WITH_COMMAS, ","), (_WITH_GAPS, " '’\u00a0\u202f")):
        grouped = [cell for cell in filled if pattern.fullmatch(cell)]
        plain = [cell for cell in filled if _PLAIN.fullmatch(cell)]
        if not grouped or len(grouped) + len(plain) < len(filled):
            continue
        is_sure = marks != "," or bool(plain) or any("." in cell or cell.count(",") > 1 for cell in grouped)
        doubt = None
        if not is_sure:
            taken = f"{grouped[0]!r} is read as {grouped[0].replace(',', '')}, with a thousands separator"
            doubt = Doubt(name, taken, "it is a decimal comma", "decimal points in the file")
        removed = dict.fromkeys(map(ord, marks))
        return Rewritten([cell.translate(removed) for cell in _each(cells, str)], "thousands separators", doubt=doubt)
    return None


def _decimal_commas(name: str, cells: Sequence[str], filled: Sequence[str]) -> Rewritten | None:
    if not all(_WITH_DECIMAL_COMMA.fullmatch(cell) for cell in filled):
        return None
    return Rewritten(_each(cells, lambda cell: cell.replace(",", ".")), "decimal commas")


def _limits(name: str, cells: Sequence[str], filled: Sequence[str]) -> Rewritten | None:
    """Leave out readings below or above a limit: what they are is not known."""
    limits = [cell for cell in filled if _LIMIT.fullmatch(cell)]
    plain = [cell for cell in filled if _PLAIN.fullmatch(cell)]
    if not limits or not plain or len(limits) + len(plain) < len(filled):
        return None
    taken = f"{len(limits)} cells like {limits[0]!r} are read as missing"
    other = "a number is to stand for them, such as half of the limit"
    doubt = Doubt(name, taken, other, "that number in the file")
    return Rewritten(_each(cells, lambda cell: "" if _LIMIT.fullmatch(cell) else cell), taken, doubt=doubt)


def _clocks(name: str, cells: Sequence[str], filled: Sequence[str]) -> Rewritten | None:
    seconds = clock_cells(filled)
    if seconds is None:
        return None
    doubt = None
    if all(cell.count(":") == 1 and cell[-1:].isdigit() for cell in filled):
        taken = f"{filled[0]!r} is read as hours and minutes"
        doubt = Doubt(name, taken, "it is minutes and seconds", f"three parts in the file, 0:{filled[0]}")
    found = iter(seconds)
    plain = ["" if is_missing(cell) else next(found) for cell in cells]
    return Rewritten(plain, "times of the day or durations, in seconds", "s", doubt)


def _dates(name: str, cells: Sequence[str], filled: Sequence[str]) -> Rewritten | None:
    dates = date_cells(filled)
    if dates is None:
        return None
    doubt = None
    if dates.other is not None:
        taken = f"{filled[0]!r} is read as {dates.order}"
        doubt = Doubt(name, taken, f"it is {dates.other}", "ISO-8601 dates in the file, like 2024-05-31")
    found = iter(dates.stamps)
    plain = ["" if is_missing(cell) else next(found) for cell in cells]
    return Rewritten(plain, f"dates, read as {dates.order}", doubt=doubt)


def _codes(table: Table, name: str) -> tuple[Table, Doubt] | None:
    """Return the table with codes of missing readings as such (-999, -9999); None where a column has none."""
    if table.is_faulty(name):
        return None
    values = table.numbers(name)
    seen = values[np.isfinite(values)]
    if not seen.size or not {seen.min(), seen.max()} & set(_CODES):
        return None
    for code in (float(seen.min()), float(seen.max())):
        rest = seen[seen != code]
        num = len(seen) - len(rest)
        if code not in _CODES or num < _FEWEST_CODES or len(np.unique(rest)) < _FEWEST_OTHERS:
            continue
        if np.abs(rest - code).min() <= np.ptp(rest):
            continue
        taken = f"{code:g} in {num} cells is read as missing, since it is far from all other numbers"
        doubt = Doubt(name, taken, "it was measured", f"another number in the file, like {code + 0.5:g}")
        return table.with_column(name, np.where(values == code, np.nan, values)), doubt
    return None
