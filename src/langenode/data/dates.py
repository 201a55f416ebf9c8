"""Dates and times of the day in the orders that people write them, as ISO-8601 text and seconds."""

import datetime
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from langenode.data.units import is_time_unit

_CLOCK = re.compile(
    r"(?:(\d+)(?:\s*days?\s+|[d.]\s*))?(\d{1,5}):([0-5]\d)(?::([0-5]\d(?:[.,]\d+)?))?(?:\s*([AaPp])\.?[Mm]\.?)?"
)
_DATE = re.compile(r"(\d{1,4})([./ -])([A-Za-z]{3,9}|\d{1,2})\2(\d{1,4})(?:[T ,]+(\S.*))?")
_DURATION = re.compile(r"\d+(?:\.\d+)?\s*([A-Za-z]+)")
_MONTH = re.compile(r"(\d{4})[-/](\d{1,2})")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY = 86400.0
_YEAR_FIRST, _DAY_FIRST, _MONTH_FIRST = "year, month, day", "day, month, year", "month, day, year"
# Years of two digits are those of this century up to here, as in POSIX.
_LAST_SHORT_YEAR = 68


class Dates(NamedTuple):
    """Dates as ISO-8601 text, the order in which they were written, and the other order if it is possible, too."""

    stamps: list[str]
    order: str
    other: str | None = None


def clock_cells(cells: Sequence[str]) -> list[str] | None:
    """Return times of the day or durations (14:30, 2:30 PM, 36:00:00, 1 day 02:03:04) in seconds; None for others."""
    seconds = []
    for cell in cells:
        found = _clock(cell)
        if found is None:
            return None
        seconds.append(f"{found:.10g}")
    return seconds or None


def date_cells(cells: Sequence[str]) -> Dates | None:
    """Return dates, which may have times of the day behind them, in ISO-8601; None unless all are written alike.

    A year of four digits may come first; points mean that the day does. Otherwise a number above 12 tells the day from
    the month; where there is none, the order in which the dates go back less often is taken, which leaves a doubt.
    """
    if cells and all(_MONTH.fullmatch(cell) for cell in cells):
        years, months = zip(*(cell.replace("/", "-").split("-") for cell in cells), strict=True)
        stamps = _stamps([(int(y), int(m), 1, 0.0) for y, m in zip(years, months, strict=True)])
        return None if stamps is None else Dates(stamps, "year, month")
    parts = []
    for cell in cells:
        found = _DATE.fullmatch(cell)
        time = 0.0 if found is None or found[5] is None else _clock(found[5])
        if found is None or time is None or time >= _DAY:
            return None
        parts.append((found[1], found[2], found[3], found[4], time))
    return _in_order(parts) if parts else None


def looks_like_time(text: str) -> bool:
    """Whether a text, such as the name of a column, is a date, or a number with a unit of time."""
    number = _DURATION.fullmatch(text.strip())
    return _DATE.fullmatch(text.strip()) is not None or (number is not None and is_time_unit(number[1]))


def joined_stamps(days: np.ndarray | None, seconds: np.ndarray) -> np.ndarray | None:
    """Return the time stamps of dates and times of the day; None unless they are such."""
    if days is None or np.any(days != days.astype("datetime64[D]")) or np.any(np.isnan(seconds)):
        return None
    if np.any(seconds >= _DAY):
        return None
    return days.astype("datetime64[us]") + np.round(seconds * 1e6).astype("timedelta64[us]")


def _in_order(parts: Sequence[tuple[str, str, str, str, float]]) -> Dates | None:
    """Return dates in the order of day, month and year that their numbers allow."""
    ways = {
        _YEAR_FIRST: [(first, second, third, time) for first, _, second, third, time in parts],
        _DAY_FIRST: [(third, second, first, time) for first, _, second, third, time in parts],
        _MONTH_FIRST: [(third, first, second, time) for first, _, second, third, time in parts],
    }
    if all(len(first) == 4 for first, *_ in parts):
        ways = {_YEAR_FIRST: ways[_YEAR_FIRST]}
    else:
        del ways[_YEAR_FIRST]
    if parts[0][1] == ".":
        ways.pop(_MONTH_FIRST, None)
    numbers = {order: [_numbers(*one) for one in way] for order, way in ways.items()}
    able = {order: found for order, way in numbers.items() if (found := _stamps(way)) is not None}
    if not able:
        return None
    best = min(able, key=lambda order: sum(b < a for a, b in zip(able[order], able[order][1:], strict=False)))
    others = [order for order in able if order != best and able[order] != able[best]]
    return Dates(able[best], best, next(iter(others), None))


def _numbers(year: str, month: str, day: str, time: float) -> tuple[int, int, int, float]:
    """Return a date in numbers; the month is 0 where it is none."""
    number = int(year)
    if len(year) <= 2:
        number += 2000 if number <= _LAST_SHORT_YEAR else 1900
    if month.isdecimal():
        return number, int(month), int(day) if day.isdecimal() else 0, time
    named = month[:3].lower()
    return number, _MONTHS.index(named) + 1 if named in _MONTHS else 0, int(day) if day.isdecimal() else 0, time


def _stamps(dates: Sequence[tuple[int, int, int, float]]) -> list[str] | None:
    """Return dates as ISO-8601 text; None if one is no date."""
    try:
        days = [datetime.datetime(year, month, day) for year, month, day, _ in dates]
    except ValueError:
        return None
    times = [day + datetime.timedelta(seconds=date[3]) for day, date in zip(days, dates, strict=True)]
    has_times = any(date[3] for date in dates)
    return [time.isoformat() if has_times else time.date().isoformat() for time in times]


def _clock(text: str) -> float | None:
    """Return a time of the day or a duration in seconds."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds, half = found.groups()
    hour = int(hours)
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half.lower() == "p" else 0)
    return int(days or 0) * _DAY + hour * 3600.0 + int(minutes) * 60.0 + float((seconds or "0").replace(",", "."))
