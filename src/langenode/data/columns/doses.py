"""Doses and other events in a table: amounts at times, as pharmacometric programs write them (AMT, RATE, EVID, MDV).

Until a model takes events as they are, it sees them as inputs:

- `total AMT`, the amount given so far, for doses that act at once. A hidden state that follows the total at some rate
  has taken up each dose and forgets it at that rate, so nothing is lost by the sum.
- `infusion RATE`, the rate of what is being infused, from the beginning of an infusion to its end at AMT / RATE.

A row that only records an event is no reading; one with the time of a reading is merged with it. Inputs are linear
between two times, so each jump gets a row of its own just before it, and one at its time where there is none.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from langenode.data.checks import DataError
from langenode.data.names import base_name
from langenode.data.tables import Groups, Table, elapsed_times

_NAMES = {
    "amount": ("amt", "amount", "dose", "bolus", "dosis", "dose_amt", "dose_amount"),
    "rate": ("rate", "infusion_rate", "inf_rate", "infusion"),
    "event": ("evid",),
    "silent": ("mdv",),
    "compartment": ("dvid", "cmt"),
    "more": ("addl",),
    "interval": ("ii",),
    "steady": ("ss",),
}
_READING = "dv"
TOTAL, INFUSION = "total ", "infusion "
# The row before a jump is this part of the longest duration earlier, or half of the gap before it; the end of an
# infusion is taken to be at the time of a row or of another dose that is as near.
_JUMP = 1e-4
_DOSED, _RESET = (1.0, 4.0), (3.0, 4.0)


class Doses(NamedTuple):
    """A table with inputs in the place of doses.

    `inputs` are the names of the new columns, `used` the columns that they were made from, `is_reading` tells rows with
    readings, `outputs` are the columns of readings if their name says so, and `notes` say what was not understood.
    """

    table: Table
    trajectory: str | None
    inputs: tuple[str, ...]
    used: tuple[str, ...]
    is_reading: np.ndarray
    outputs: tuple[str, ...]
    notes: tuple[str, ...]


class _Steps(NamedTuple):
    """A quantity that is 0 at first and changes by `change` at a time, in each trajectory."""

    trajectory: np.ndarray
    time: np.ndarray
    change: np.ndarray

    def jumps(self, trajectory: int) -> np.ndarray:
        """Return the times of a trajectory at which the changes do not cancel."""
        own = self.trajectory == trajectory
        times, codes = np.unique(self.time[own], return_inverse=True)
        net = np.bincount(codes, weights=self.change[own], minlength=len(times))
        size = np.bincount(codes, weights=np.abs(self.change[own]), minlength=len(times))
        return times[np.abs(net) > 1e-6 * size]

    def at(self, codes: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return the quantity just after each of some times of some trajectories."""
        values = np.zeros(len(times))
        for trajectory in np.unique(self.trajectory):
            own, here = self.trajectory == trajectory, codes == trajectory
            order = np.argsort(self.time[own], kind="stable")
            total = np.append(0.0, np.cumsum(self.change[own][order]))
            values[here] = total[np.searchsorted(self.time[own][order], times[here], side="right")]
        return np.where(np.abs(values) > 1e-9 * np.abs(self.change).max(initial=0.0), values, 0.0)


def event_columns(table: Table, wanted: Sequence[str] = ()) -> dict[str, str]:
    """Return the columns of doses and events by what they mean; none unless the table has doses at some of its times.

    It has where there is an event number or a flag of missing readings, or a column of amounts that is empty in some
    rows or mostly zero, or one of amounts and one of rates; or where `wanted` inputs are made from doses.
    """
    found: dict[str, str] = {}
    for part, names in _NAMES.items():
        of_name = [n for name in names for n in table.names if base_name(n) == name and table.kind(n) == "numbers"]
        if of_name and not table.is_faulty(of_name[0]):
            found[part] = of_name[0]
    if {"event", "silent"} & set(found) or any(name.startswith((TOTAL, INFUSION)) for name in wanted):
        return found
    return found if "amount" in found and _are_events(table, found) else {}


def _are_events(table: Table, found: Mapping[str, str]) -> bool:
    """Whether amounts are given at some times, not held: empty, or zero after each; rates beside them say so too."""
    values = table.numbers(found["amount"])
    given = values > 0
    if not given.any() or given.all() or np.any(values < 0):
        return False
    is_alone = given[:-1] & ~given[1:]
    return bool(np.isnan(values).any() or "rate" in found or is_alone.sum() >= 0.5 * given.sum())


def with_doses(table: Table, time: str, trajectory: str | None, named: Mapping[str, str]) -> Doses | None:
    """Return the table with doses as inputs; None where there is none, or an amount is that of a whole trajectory."""
    values = {part: np.nan_to_num(table.numbers(name)) for part, name in named.items()}
    has_flags = bool({"event", "silent"} & set(named))
    if "event" in values and np.isin(values["event"], _RESET).any():
        table, trajectory = _after_resets(table, trajectory, values["event"])
    groups = table.groups(trajectory)
    if not has_flags and groups.are_constant(values["amount"]):
        return None
    times = elapsed_times(table, time, groups)[0]
    if not groups.increase(times, or_equal=True):
        return None
    is_dose = values.get("amount", np.zeros(table.num_rows)) > 0
    if "event" in values:
        is_dose &= np.isin(values["event"], _DOSED)
    is_reading = _readings(values, is_dose, groups, times)
    table, is_reading, outputs = _split_readings(table, named, groups, times, is_reading)
    inputs = _inputs(values, named, is_dose, times, groups)
    rows, new_times, is_kept = _expanded(list(inputs.values()), times, groups, is_reading)
    long = table.take(rows).with_column(time, new_times)
    for name, steps in inputs.items():
        long = long.with_column(name, steps.at(groups.codes[rows], new_times))
    used = (*named.values(), *_given_with_doses(table, time, is_dose))
    used += tuple(n for n in table.names if base_name(n) == _READING) if len(outputs) > 1 else ()
    return Doses(long, trajectory, tuple(inputs), used, is_kept, outputs, _not_understood(values, named))


def _given_with_doses(table: Table, time: str, is_dose: np.ndarray) -> list[str]:
    """Return the numeric columns that are empty wherever there is no dose: they describe it."""
    numeric = [n for n in table.names if n != time and table.kind(n) == "numbers" and not table.is_faulty(n)]
    return [name for name in numeric if not is_dose.all() and np.all(np.isnan(table.numbers(name)[~is_dose]))]


def _not_understood(values: Mapping[str, np.ndarray], named: Mapping[str, str]) -> tuple[str, ...]:
    notes = []
    if values.get("steady", np.zeros(1)).any():
        notes.append(f"{named['steady']}: doses at steady state are taken as single doses")
    at, amount = values.get("compartment"), values.get("amount")
    if at is not None and amount is not None and len(set(at[amount > 0].tolist())) > 1:
        notes.append(f"{named['compartment']}: doses into all compartments are added up")
    if (values.get("rate", np.zeros(1)) < 0).any():
        notes.append(f"{named['rate']}: a negative rate (a modelled duration) is taken as a dose that acts at once")
    return tuple(notes)


def _after_resets(table: Table, trajectory: str | None, event: np.ndarray) -> tuple[Table, str]:
    """Label what follows a reset as a trajectory of its own."""
    groups = table.groups(trajectory)
    is_reset = np.isin(event, _RESET)
    is_reset[groups.order[groups.starts]] = False
    count = np.zeros(table.num_rows, dtype=np.int64)
    for rows in groups.split():
        count[rows] = np.cumsum(is_reset[rows])
    labels = [groups.labels[code] for code in groups.codes]
    parts = [label if n == 0 else f"{label} after reset {n}" for label, n in zip(labels, count, strict=True)]
    name = trajectory or "trajectory"
    return table.with_column(name, parts), name


def _inputs(
    values: Mapping[str, np.ndarray],
    named: Mapping[str, str],
    is_dose: np.ndarray,
    times: np.ndarray,
    groups: Groups,
) -> dict[str, _Steps]:
    """Return the inputs that all doses make, also those that a row announces (ADDL further ones, II apart)."""
    rows = np.flatnonzero(is_dose)
    if not len(rows):
        return {}
    every = values.get("interval", np.zeros(len(times)))[rows]
    more = np.where(every > 0, values.get("more", np.zeros(len(times)))[rows].clip(0), 0).astype(np.int64)
    number = np.concatenate([np.arange(n + 1) for n in more])
    rows, every = np.repeat(rows, more + 1), np.repeat(every, more + 1)
    code, begin, amount = groups.codes[rows], times[rows] + number * every, values["amount"][rows]
    rate = values.get("rate", np.zeros(len(times)))[rows]
    at_once, infused = rate <= 0, rate > 0
    inputs = {}
    if at_once.any():
        inputs[f"{TOTAL}{named['amount']}"] = _Steps(code[at_once], begin[at_once], amount[at_once])
    if infused.any():
        code, begin, rate = code[infused], begin[infused], rate[infused]
        end = _snapped(code, begin, begin + amount[infused] / rate, times, groups)
        both = (np.concatenate(pair) for pair in ((code, code), (begin, end), (rate, -rate)))
        inputs[f"{INFUSION}{named['rate']}"] = _Steps(*both)
    return inputs


def _snapped(code: np.ndarray, begin: np.ndarray, end: np.ndarray, times: np.ndarray, groups: Groups) -> np.ndarray:
    """Return ends of infusions, at the nearest row or beginning of a dose where that differs by rounding only."""
    near = _JUMP * _longest(times, groups)
    end = end.copy()
    for trajectory in np.unique(code):
        own = code == trajectory
        marks = np.union1d(times[groups.codes == trajectory], begin[own])
        after = np.minimum(np.searchsorted(marks, end[own]), len(marks) - 1)
        before = np.maximum(after - 1, 0)
        nearest = np.where(end[own] - marks[before] < marks[after] - end[own], marks[before], marks[after])
        # Not to the beginning itself: a short infusion must not vanish.
        is_near = (np.abs(nearest - end[own]) <= near) & (nearest > begin[own])
        end[own] = np.where(is_near, nearest, end[own])
    return end


def _longest(times: np.ndarray, groups: Groups) -> float:
    return max((float(times[rows].max() - times[rows].min()) for rows in groups.split()), default=0.0)


def _readings(values: Mapping[str, np.ndarray], is_dose: np.ndarray, groups: Groups, times: np.ndarray) -> np.ndarray:
    """Return which rows are readings: by the flags where there are any, else all (an empty cell says it is none)."""
    is_reading = np.ones(len(is_dose), dtype=bool)
    if "event" in values:
        is_reading &= values["event"] == 0
    if "silent" in values:
        is_reading &= values["silent"] == 0
    if "event" in values or "silent" in values:
        return is_reading
    # Without flags, a dose row that shares its time with another row is an event alone.
    order, shares = groups.order, np.zeros(len(is_dose), dtype=bool)
    repeats = (times[order][1:] == times[order][:-1]) & (groups.codes[order][1:] == groups.codes[order][:-1])
    shares[order[1:][repeats]] = shares[order[:-1][repeats]] = True
    return is_reading & ~(is_dose & shares)


def _split_readings(
    table: Table, named: Mapping[str, str], groups: Groups, times: np.ndarray, is_reading: np.ndarray
) -> tuple[Table, np.ndarray, tuple[str, ...]]:
    """Return the columns of readings: that named DV, or one for each compartment where its readings are of several."""
    output = next((n for n in table.names if base_name(n) == _READING and table.kind(n) == "numbers"), None)
    if output is None:
        return table, is_reading, ()
    kind, readings = named.get("compartment"), table.numbers(output)
    kinds = np.zeros(table.num_rows) if kind is None else np.nan_to_num(table.numbers(kind))
    found = np.unique(kinds[is_reading & ~np.isnan(readings)])
    if len(found) < 2:
        return table, is_reading, (output,)
    order = np.lexsort((~is_reading, times, groups.codes))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(times[order]) != 0) | (np.diff(groups.codes[order]) != 0)
    first = np.empty(len(order), dtype=np.int64)  # the row that stands for all of one time
    first[order] = order[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]]
    names = []
    for value in found:
        rows = np.flatnonzero(is_reading & (kinds == value) & ~np.isnan(readings))
        again = np.flatnonzero(np.bincount(first[rows])[first[rows]] > 1)
        if again.size:
            raise DataError(
                f"a time must have one reading of each kind; {table.place(int(rows[again[1]]))} repeats one of "
                f"{kind} {value:g}; average them, or shift the time"
            )
        column = np.full(table.num_rows, np.nan)
        column[first[rows]] = readings[rows]
        names.append(f"{output} {kind}={value:g}")
        table = table.with_column(names[-1], column)
    return table, is_reading & (first == np.arange(table.num_rows)), tuple(names)


def _expanded(
    inputs: Sequence[_Steps], times: np.ndarray, groups: Groups, is_reading: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for every row of the new table the row it copies, its time, and whether it is a reading."""
    longest = _longest(times, groups)
    source, new_times, kept = [], [], []
    for code, rows in enumerate(groups.split()):
        at = times[rows]
        jumps = np.unique(np.concatenate([np.zeros(0), *(steps.jumps(code) for steps in inputs)]))
        jumps = jumps[(jumps > at[0]) & (jumps <= at[-1])]
        # Events at the time of a reading are merged into it; two readings at one time are left to be refused.
        is_first = np.append(True, np.diff(at) > 0)
        own = rows[np.where(np.isin(at, at[is_reading[rows]]), is_reading[rows], is_first)]
        own_times = times[own]
        here = jumps[~np.isin(jumps, own_times)]
        grid = np.union1d(own_times, here)
        before = np.maximum(jumps - _JUMP * longest, (jumps + grid[np.searchsorted(grid, jumps) - 1]) / 2)
        added = np.concatenate([here, before])
        last = own[np.maximum(np.searchsorted(own_times, added, side="right") - 1, 0)]
        order = np.argsort(np.concatenate([own_times, added]), kind="stable")
        source.append(np.concatenate([own, last])[order])
        new_times.append(np.concatenate([own_times, added])[order])
        kept.append(np.concatenate([is_reading[own], np.zeros(len(added), dtype=bool)])[order])
    return np.concatenate(source), np.concatenate(new_times), np.concatenate(kept)
