"""The role of each column of a file: as given, else guessed from its numbers and from common names."""

import numpy as np

from langenode.data.checks import DataError, listed
from langenode.data.columns import doses, labels, wide
from langenode.data.columns.quantities import find_quantities
from langenode.data.columns.record import Columns, Guess
from langenode.data.columns.search import Search
from langenode.data.dates import looks_like_time
from langenode.data.doubts import Doubt
from langenode.data.names import INITIAL_PREFIX, INPUT_PREFIXES, OUTPUT_PREFIX, unit_rank
from langenode.data.tables import Groups, Table, elapsed_times

# Rows are sorted where at least this share of the steps goes back in time, given this minimum number of steps.
_DISORDERED, _FEWEST_SORTED = 0.25, 10
_OWN = (*INPUT_PREFIXES, OUTPUT_PREFIX, INITIAL_PREFIX)


def guess_columns(table: Table, given: Columns) -> Guess:
    """Find the columns that were not given, and make the columns that the table only implies.

    The names that `save_data` writes come first. Then: a table with one column per trajectory is made long; the time,
    the trajectory, the condition and the unit are found by name, the trajectory also by the order of the times; doses
    become inputs; numbers and categories that are constant within every trajectory but differ between trajectories are
    inputs; of the numbers that vary, inputs are found by evidence (see `roles`), and all others are outputs. Row
    numbers, repeated labels, constants and other text are left out.
    """
    long = wide.make_long(table, given)
    if long is not None:
        table, given = long.table, long.columns
    search = Search(table, given)
    if long is not None:
        search.reasons["trajectory"], search.doubts = long.why, list(long.doubts)
    time = given.time or search.take("time", labels.find_time(table, search.taken), "none") or _time_by_order(search)
    given = given._replace(time=time)
    for part in labels.parts_of_time(table, time) if time in table.names else ():
        search.left_out[part] = f"part of the time, {time!r}"
        search.taken.add(part)
    if time not in table.names:
        given.check_present(table.names)
    trajectory = _find_trajectories(search, time)
    _leave_out_row_numbers(search, trajectory)
    trajectory = _take_doses(search, time, trajectory)
    search.name_levels()
    search.given._replace(time=time, trajectory=trajectory).check_present(search.table.names)
    _sort(search, time, trajectory)
    groups = search.table.groups(trajectory)
    if elapsed_times(search.table, time, groups)[1]:
        search.reasons["time"] += "; time stamps, converted to seconds since each trajectory's first row"
    _find_labels(search, groups)
    initial, inputs, outputs = find_quantities(search, groups, time)
    columns = search.given._replace(trajectory=trajectory, time=time, inputs=inputs, outputs=outputs, initial=initial)
    reasons = {part: search.reasons[part] for part in Columns._fields}
    doubts = [doubt for doubt in table.doubts if doubt.about not in search.left_out]
    if trajectory is not None:  # then dates are no trajectories
        doubts = [doubt for doubt in doubts if not labels.parts_of_time(table, doubt.about)]
    return Guess(columns, reasons, search.left_out, search.table, (*doubts, *search.doubts), search.is_reading)


def _time_by_order(search: Search) -> str:
    """Return the only column that increases along every trajectory; raise where there is none, or are several."""
    table = search.table
    able = labels.increasing(table, search.taken)
    if len(able) != 1:
        looks = [name for name in table.names if looks_like_time(name)]
        hint = "; the header holds times: transpose the table, so that each row has one" if len(looks) > 3 else ""
        found = f", though {listed(able)} increase along trajectories" if able else ""
        raise DataError(
            f"a table must have a time column; none of {listed(table.names)} looks like one{found}; "
            f"name it with --time NAME{hint}"
        )
    search.taken.add(able[0])
    search.reasons["time"] = f"column {able[0]!r}, the only one that increases along every trajectory"
    doubt = Doubt(able[0], "read as the time, since it alone increases throughout", "another is", "--time NAME")
    search.doubts.append(doubt)
    return able[0]


def _find_trajectories(search: Search, time: str) -> str | None:
    given, table = search.given, search.table
    if labels.is_pair(table, given.trajectory):
        assert given.trajectory is not None
        search.table, _ = labels.joined(table, given.trajectory)
    elif given.trajectory is None:
        may_repeat = bool(doses.event_columns(table, given.inputs or ()))
        found = labels.find_trajectories(table, time, search.taken, may_repeat=may_repeat)
        search.reasons["trajectory"] = found.why
        search.doubts += found.doubts
        search.table = found.table
        search.given = given._replace(trajectory=found.name)
        search.taken.update([] if found.name is None else [found.name])
    else:
        given._replace(inputs=None).check_present([*table.names, *(given.outputs or ())])
    name = search.given.trajectory
    if name is not None and name not in table.names and labels.is_pair(table, name):
        parts = labels.labels_of_pair(table, name)
        for part, column in (("unit", parts.unit), ("condition", parts.condition)):
            if getattr(search.given, part) is None and column is not None:
                search.given = search.given._replace(**{part: column})
                search.take(part, column, "")
    return name


def _leave_out_row_numbers(search: Search, trajectory: str | None) -> None:
    """Leave out row numbers while the rows are still those of the file."""
    table = search.table
    if trajectory is not None and trajectory not in table.names:
        return
    groups = table.groups(trajectory)
    found = [n for n in table.names if n not in search.taken and not n.startswith(_OWN)]
    found = [name for name in found if labels.is_row_number(table, groups, name)]
    search.left_out |= dict.fromkeys(found, "row numbers")
    search.taken.update(found)


def _sort(search: Search, time: str, trajectory: str | None) -> None:
    """Sort rows that are in no order of time; where few are out of order these are faults, to be reported."""
    table = search.table
    groups = table.groups(trajectory)
    times = elapsed_times(table, time, groups)[0]
    num_wrong, num_steps = groups.not_increasing(times).size, len(times) - len(groups.labels)
    if num_wrong == 0:
        return
    order = np.lexsort((times, groups.codes))
    is_repeated = (np.diff(times[order]) == 0) & (np.diff(groups.codes[order]) == 0)
    if search.is_reading is not None or num_steps < _FEWEST_SORTED or is_repeated.any() or np.isnan(times).any():
        return
    if num_wrong < _DISORDERED * num_steps:
        return
    search.table = table.take(order)
    search.reasons["time"] += "; the rows were in no order of time and are sorted"
    if trajectory is None and not table.files:
        taken = "the rows are in no order of time and are read as one trajectory, sorted"
        search.doubts.append(Doubt(time, taken, "they are of several", "--trajectory with their label"))


def _take_doses(search: Search, time: str, trajectory: str | None) -> str | None:
    """Make inputs of doses, if there are any; the trajectory may be divided where the process was reset."""
    given = search.given
    named = doses.event_columns(search.table, given.inputs or ())
    named = {part: name for part, name in named.items() if name not in search.taken}
    found = doses.with_doses(search.table, time, trajectory, named) if named else None
    if found is None:
        return trajectory
    search.table, search.is_reading, search.dose_inputs = found.table, found.is_reading, found.inputs
    search.readings = found.outputs
    search.left_out |= dict.fromkeys(found.used, "doses and events, read as such")
    search.taken.update(found.used)
    for note in found.notes:
        search.doubts.append(Doubt("doses", note, "that matters", "--inputs with columns of your own"))
    return found.trajectory


def _find_labels(search: Search, groups: Groups) -> None:
    """Find the condition and the unit."""
    table, given = search.table, search.given
    shared = "none found: trajectories with equal times and inputs share a condition"
    ranks = {"condition": labels.condition_rank_in(table), "unit": unit_rank}
    alone = {"condition": shared, "unit": "none found: every trajectory is its own unit"}
    for part, rank in ranks.items():
        if getattr(given, part) is None:
            name = search.take(part, labels.find_label(table, groups, search.taken, rank), alone[part])
            search.given = search.given._replace(**{part: name})
