"""Columns read as a scientist would: units, roles by evidence, labels, categories, wide tables, doses, windows."""

import dataclasses
import itertools
import shlex
from pathlib import Path

import numpy as np
import pytest

from datasets import assert_same, refused
from langenode.config import read_toml
from langenode.data import (
    Columns,
    DataError,
    Dataset,
    cut_into_windows,
    find_outliers,
    num_windows,
    read_data,
    robust_spread,
    starts_agree,
)
from langenode.data.names import base_name, time_rank
from langenode.data.units import is_unit, split_unit
from langenode.fitting import choose, choose_target
from langenode.fitting.plan import plan_file
from test_badinput import command
from test_owndata import write

TIMES = np.arange(40) * 0.5


def csv_of(columns):
    """Return the text of a table; numbers with ten digits, text as it is."""
    rows = zip(*columns.values(), strict=True)
    cells = [",".join(c if isinstance(c, str) else f"{c:.10g}" for c in row) for row in rows]
    return "\n".join([",".join(columns), *cells]) + "\n"


def stacked(parts, label="test"):
    """Return the columns of several trajectories below each other, with a label."""
    labels = [f"T{i}" for i, part in enumerate(parts) for _ in next(iter(part.values()))]
    return {label: labels} | {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def held(rng, levels):
    """Return a path that moves between levels at random times."""
    num = len(TIMES)
    changes = rng.random(num) < 0.12
    changes[0] = True
    return rng.choice(levels, size=num)[np.maximum.accumulate(np.where(changes, np.arange(num), 0))]


def relaxed(drive, rate, start, step=0.5):
    """Return the response dy/dt = rate (drive - y) to a drive that is held between the times."""
    path = [start]
    for value in drive[:-1]:
        path.append(value + (path[-1] - value) * np.exp(-rate * step))
    return np.array(path)


# Names and units


@pytest.mark.parametrize(
    ("name", "base", "unit"),
    [
        ("temp_degC", "temp", "degC"),
        ("I [A]", "i", "A"),
        ("T [°C]", "t", "°C"),
        ("Current(A)", "current", "A"),
        ("Zeit [s]", "zeit", "s"),
        ("time_s", "time", "s"),
        ("elapsed time/s", "elapsed_time", "s"),
        ("t / s", "t", "s"),
        ("c_A / mol/L", "c", "mol/L"),
        ("flux [W m-2]", "flux", "W m-2"),
        ("acceleration (m/s^2)", "acceleration", "m/s^2"),
        ("Durée", "duree", None),
        ("x_A", "x", None),
        ("stress (mean)", "stress", None),
        ("RunID", "run_id", None),
    ],
)
def test_names_are_split_into_name_and_unit(name, base, unit):
    assert (base_name(name), split_unit(name)[1]) == (base, unit)


def test_units_and_what_only_looks_like_one():
    assert all(is_unit(text) for text in ("mg/L", "kN", "µm", "1/s", "kg·m²", "%", "mmHg"))
    assert not any(is_unit(text) for text in ("", "mean", "1", "/", "loading", "x" * 30))


@pytest.mark.parametrize(
    "name", ["Zeit [s]", "temps", "tiempo_s", "Tempo (h)", "czas", "время", "时间", "t [min]", "T [s]"]
)
def test_the_time_is_known_in_other_languages(name):
    assert time_rank(name) is not None
    assert time_rank("temps [°C]") is None and time_rank("t [°C]") is None


def test_units_are_kept_with_the_data(tmp_path):
    table = {"Zeit [s]": TIMES, "heater_W": np.arange(40.0) % 7, "T [°C]": np.sin(TIMES)}
    reading = read_data(write(tmp_path, csv_of(table)), Columns(inputs=("heater_W",)))
    assert reading.columns.time == "Zeit [s]"
    assert reading.data.units == {"time": "s", "heater_W": "W", "T [°C]": "°C"}


# Roles by evidence


def heated(rng, names=("time_s", "heater_W", "temp_degC")):
    drive = held(rng, [0.0, 25.0, 50.0])
    response = relaxed(20.0 + drive, 0.2, 20.0 + rng.normal()) + 0.2 * rng.normal(size=len(drive))
    return dict(zip(names, (TIMES, drive, np.round(response, 1)), strict=True))


def battery(rng, names):
    current = held(rng, [-2.0, 0.0, 1.0, 2.0]) + 0.01 * rng.normal(size=len(TIMES))
    charge = 0.8 - np.append(0.0, np.cumsum(current[:-1])) / 200
    slow = relaxed(0.06 * current, 0.3, 0.0)
    voltage = 3.5 + 0.6 * charge - 0.05 * current - slow + 0.002 * rng.normal(size=len(TIMES))
    temperature = relaxed(25.0 + current**2, 0.05, 25.0) + 0.03 * rng.normal(size=len(TIMES))
    return dict(zip(names, (TIMES, current, voltage, temperature), strict=True))


def roles_of(tmp_path, parts):
    reading = read_data(write(tmp_path, csv_of(stacked(parts))))
    return reading.columns.inputs, reading.columns.outputs, reading


@pytest.mark.parametrize("seed", range(5))
def test_what_moves_in_steps_and_leads_is_an_input(tmp_path, seed):
    rng = np.random.default_rng(seed)
    inputs, outputs, reading = roles_of(tmp_path, [heated(rng) for _ in range(6)])
    assert (inputs, outputs) == (("heater_W",), ("temp_degC",))
    assert "it moves in steps between 3 values, and temp_degC follows it" in reading.reasons["inputs"]
    assert reading.table_facts["doubts"] == []
    # The names do not decide: swapped, the numbers still do.
    parts = [heated(rng, ("time_s", "temp_degC", "heater_W")) for _ in range(6)]
    assert roles_of(tmp_path, parts)[:2] == (("temp_degC",), ("heater_W",))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "names",
    [("time", "Current(A)", "Voltage(V)", "Temperature(C)"), ("t", "I [A]", "U [V]", "T [°C]")],
)
def test_a_battery_is_driven_by_its_current(tmp_path, seed, names):
    rng = np.random.default_rng(seed)
    inputs, outputs, _ = roles_of(tmp_path, [battery(rng, names) for _ in range(6)])
    assert (inputs, outputs) == ((names[1],), names[2:])


@pytest.mark.parametrize("seed", range(3))
def test_states_of_one_process_are_all_outputs(tmp_path, seed):
    rng = np.random.default_rng(seed)
    angles = [TIMES + phase for phase in rng.uniform(0, 6, size=6)]
    noise = lambda: 0.05 * rng.normal(size=len(TIMES))  # noqa: E731
    parts = [{"t": TIMES, "position": np.sin(a) + noise(), "speed": np.cos(a) + noise()} for a in angles]
    assert roles_of(tmp_path, parts)[:2] == ((), ("position", "speed"))


def test_a_path_that_is_repeated_is_prescribed(tmp_path):
    rng = np.random.default_rng(0)
    path = np.cumsum(rng.normal(size=len(TIMES)))
    parts = [{"t": TIMES, "p": path, "q": relaxed(path, 0.3, rng.normal())} for _ in range(4)]
    inputs, outputs, reading = roles_of(tmp_path, parts)
    assert (inputs, outputs) == (("p",), ("q",))
    assert "same path in 4 trajectories" in reading.reasons["inputs"]


def test_a_doubtful_role_names_both_readings_and_the_option(tmp_path):
    rng = np.random.default_rng(0)
    parts = [
        {"t": TIMES, "p": np.sin(0.6 * TIMES + phase), "q": relaxed(np.sin(0.6 * TIMES + phase), 0.5, 0.0) + noise}
        for phase, noise in zip(rng.uniform(0, 6, size=5), 0.05 * rng.normal(size=(5, len(TIMES))), strict=True)
    ]
    inputs, outputs, reading = roles_of(tmp_path, parts)
    (doubt,) = reading.table_facts["doubts"]
    assert (inputs, outputs) == (("p",), ("q",)) and doubt["about"] == "p"
    assert "read as an input" in doubt["taken"] and doubt["other"] == "it is an output"
    words = shlex.split(doubt["option"])
    assert words == ["--inputs", "", "--outputs", "q,p"]
    settled = read_data(tmp_path / "table.csv", Columns(inputs=(), outputs=("q", "p")))
    assert settled.table_facts["doubts"] == [] and settled.data.num_inputs == 0


def test_surroundings_drive_where_nothing_else_does(tmp_path):
    rng = np.random.default_rng(0)
    weather = np.cumsum(rng.normal(size=(4, len(TIMES))), axis=1)
    parts = [{"time": TIMES, "T_indoor": relaxed(path, 0.3, 0.0), "T_outdoor": path} for path in weather]
    reading = read_data(write(tmp_path, csv_of(stacked(parts))))
    assert (reading.data.input_names, reading.data.output_names) == (("T_outdoor",), ("T_indoor",))


def test_what_has_gaps_is_no_input(tmp_path):
    rng = np.random.default_rng(0)
    table = stacked([heated(rng, ("t", "a", "b")) for _ in range(5)])
    table["a"] = ["" if i % 7 == 3 else f"{value:g}" for i, value in enumerate(table["a"])]
    assert read_data(write(tmp_path, csv_of(table))).columns.outputs == ("a", "b")


# Labels and row numbers


def growth(label, names, *, order=None, **more):
    """Return a table of growth curves, one row per reading, in the shape of many textbook tables."""
    rng = np.random.default_rng(0)
    rows = [(name, age, 10 + age * rng.uniform(1, 2)) for name in names for age in (1.0, 2.0, 4.0, 7.0)]
    number = np.arange(1, len(rows) + 1) if order is None else order(np.arange(1, len(rows) + 1))
    labels, ages, sizes = zip(*rows, strict=True)
    return {"rownames": number} | {label: labels, "age": ages, "size": sizes} | more


@pytest.mark.parametrize("label", ["Tree", "Chick", "Seed", "country", "Probe", "Subject", "ID", "Kürzel"])
def test_labels_of_trajectories_are_found_by_the_order_of_times(tmp_path, label):
    for names in (("7", "3", "11", "5"), ("ash", "oak", "elm", "fir")):
        reading = read_data(write(tmp_path, csv_of(growth(label, names))))
        assert reading.columns == Columns(label, "age", (), ("size",), ())
        assert reading.data.num_trajectories == 4
        assert reading.table_facts["left_out"] == {"rownames": "row numbers"}
    if label == "Kürzel":
        assert "since the time increases within each of its 4 values" in reading.reasons["trajectory"]


@pytest.mark.parametrize("name", ["rownames", "X1", "Zähler"])
def test_row_numbers_in_any_order_are_left_out(tmp_path, name):
    table = growth("Tree", ("a", "b", "c", "d"), order=np.random.default_rng(0).permutation)
    table[name] = table.pop("rownames")
    assert read_data(write(tmp_path, csv_of(table))).table_facts["left_out"] == {name: "row numbers"}


def test_a_second_label_a_counter_and_a_second_time_are_left_out(tmp_path):
    table = growth("Subject", ("a", "b", "c", "d"))
    table |= {"ID": np.repeat([4, 9, 2, 7], 4), "Occasion": np.tile(np.arange(1, 5), 4)}
    table["age_days"] = np.array(table["age"]) * 365
    left_out = read_data(write(tmp_path, csv_of(table))).table_facts["left_out"]
    assert left_out == {
        "rownames": "row numbers",
        "ID": "labels the trajectories once more",
        "Occasion": "row numbers",
        "age_days": "the time once more",
    }


def test_two_columns_together_where_one_is_not_enough(tmp_path):
    parts = [growth("Subject", ("1", "2", "3")) for _ in range(2)]
    table = {name: [*parts[0][name], *parts[1][name]] for name in ("Subject", "age", "size")}
    table["Brand"] = ["x"] * 12 + ["y"] * 12
    reading = read_data(write(tmp_path, csv_of(table)))
    assert reading.columns.trajectory == "Subject/Brand" and reading.columns.unit == "Subject"
    assert reading.columns.inputs == ("Brand=x", "Brand=y") and reading.data.num_trajectories == 6


def test_a_label_with_one_disordered_time_is_still_the_label(tmp_path):
    table = growth("Subject", ("a", "b", "c", "d"), Lot=[1, 1, 2, 2] * 4)
    table["age"] = [*table["age"][:6], 1.0, *table["age"][7:]]
    refused("row 8 has 1 after 2 in trajectory 'b'", read_data, write(tmp_path, csv_of(table)))


# Cells as people and instruments write them


def runs_text(cells, write_time=None, header="run,time,y", num=2):
    """Return a table of `num` runs with one cell per time; `write_time` writes the times 0, 1, ..."""
    rows = [
        f"{run},{k if write_time is None else write_time(k)},{cell}"
        for run in range(num)
        for k, cell in enumerate(cells)
    ]
    return "\n".join([header, *rows]) + "\n"


def first_times(tmp_path, text):
    reading = read_data(write(tmp_path, text))
    return reading.data.times[0], reading


@pytest.mark.parametrize(
    ("cells", "values", "how"),
    [
        (["90.5%", "8 %", "", "7%"], [90.5, 8, np.nan, 7], "numbers with %"),
        (["90.5 mg", "8 mg", "", "7mg"], [90.5, 8, np.nan, 7], "numbers with mg"),
        (["\u22121.5", "2", "\u22123", "4"], [-1.5, 2, -3, 4], ""),
        (['"1,200"', '"1,234,567.5"', "-", "900"], [1200, 1234567.5, np.nan, 900], "thousands"),
        (["1 200", "12 000", "900", "7"], [1200, 12000, 900, 7], "thousands"),
        (['"0,5"', '"12,25"', "3", "n.d."], [0.5, 12.25, 3, np.nan], "decimal commas"),
        (["TRUE", "false", "True", ""], [1, 0, 1, np.nan], "true is 1"),
        (["0.5", "<0.1", "< 0.1", "0.3"], [0.5, np.nan, np.nan, 0.3], "4 cells like '<0.1'"),
    ],
)
def test_numbers_with_signs_of_their_own(tmp_path, cells, values, how):
    reading = read_data(write(tmp_path, runs_text(cells)), Columns(outputs=("y",)))
    found = np.where(reading.data.mask, reading.data.outputs, np.nan)[0, :4, 0]
    np.testing.assert_array_equal(found, values)
    assert how in reading.reasons.get("cells", "")


def test_numbers_below_a_limit_are_missing_with_a_doubt(tmp_path):
    reading = read_data(write(tmp_path, runs_text(["0.5", "<0.1", "0.3", "0.2"])))
    (doubt,) = reading.table_facts["doubts"]
    assert doubt["about"] == "y" and "2 cells like '<0.1' are read as missing" in doubt["taken"]


def test_thousands_or_decimal_comma_is_a_doubt(tmp_path):
    reading = read_data(write(tmp_path, runs_text(['"1,200"', '"2,500"', '"3,100"'])))
    np.testing.assert_array_equal(reading.data.outputs[0, :, 0], [1200, 2500, 3100])
    (doubt,) = reading.table_facts["doubts"]
    assert doubt["other"] == "it is a decimal comma"


def test_points_that_separate_thousands_beside_decimal_commas(tmp_path):
    path = write(tmp_path, "t;y;z\n0;1.500,0;0,5\n1;999,5;1,5\n2;2.000;2,5\n")
    data = read_data(path).data
    np.testing.assert_array_equal(data.outputs[0], [[1500, 0.5], [999.5, 1.5], [2000, 2.5]])
    refused("same decimal sign", read_data, write(tmp_path, "t;y\n0;1.50\n1;999,5\n"))


def test_one_odd_cell_is_still_a_fault(tmp_path):
    refused("'y' is text", read_data, write(tmp_path, runs_text(["1%", "wet", "3%", "4%"])))
    refused("row 3 has '2%'", read_data, write(tmp_path, runs_text(["1", "2%", "3", "4"])))


@pytest.mark.parametrize(
    ("cells", "num_missing", "has_doubt"),
    [
        (["3.1", "-9999", "3.3", "-9999", "2.9", "3"], 2, True),
        (["3.1", "999", "3.3", "999.0", "2.9", "3"], 2, True),
        (["3.1", "-9999", "3.3", "3.2", "2.9", "3"], 0, False),  # one alone is an outlier, for a person to judge
        (["300", "-99", "-350", "-99", "290", "30"], 0, False),
        (["97", "98", "99", "99", "96", "95"], 0, False),
    ],
)
def test_codes_for_missing_readings(tmp_path, cells, num_missing, has_doubt):
    reading = read_data(write(tmp_path, runs_text(cells, num=1)))
    assert (~reading.data.mask).sum() == num_missing
    assert [doubt["other"] for doubt in reading.table_facts["doubts"]] == ["it was measured"] * has_doubt


def test_a_label_of_nines_is_a_label(tmp_path):
    rows = [f"{subject},{k},{k % 3 + subject % 2}" for subject in (1, 2, 3, 4, 9999) for k in range(5)]
    reading = read_data(write(tmp_path, "\n".join(["subject,time,y", *rows]) + "\n"))
    assert reading.data.num_trajectories == 5 and "9999" in reading.data.unit_names


@pytest.mark.parametrize(
    ("write_time", "step", "order"),
    [
        (lambda k: ("30.01.2021", "31.01.2021", "01.02.2021", "02.02.2021")[k], 86400.0, "day, month, year"),
        (lambda k: f"{13 + k}/02/2021", 86400.0, "day, month, year"),
        (lambda k: f"02/{13 + k}/2021 01:30:00 PM", 86400.0, "month, day, year"),
        (lambda k: f"{k + 1}-Mar-21", 86400.0, "day, month, year"),
        (lambda k: f"2021/2/{k + 1}", 86400.0, "year, month, day"),
        (lambda k: f"2021-0{2 * k + 1}", None, "year, month"),
        (lambda k: f"{k}:15:30", 3600.0, "seconds"),
        (lambda k: f"{23 + k}:15", 3600.0, "seconds"),
        (lambda k: f"{k} days 00:00:01.5", 86400.0, "seconds"),
        (lambda k: f"{k + 7}:00 AM", 3600.0, "seconds"),
    ],
)
def test_dates_and_clocks_as_people_write_them(tmp_path, write_time, step, order):
    times, reading = first_times(tmp_path, runs_text("4251", write_time))
    assert reading.columns.time == "time" and reading.columns.outputs == ("y",)
    assert np.all(np.diff(times) > 0) and order in reading.reasons["cells"]
    if step is not None:
        np.testing.assert_allclose(np.diff(times), step)


def test_a_day_that_may_be_a_month_is_a_doubt(tmp_path):
    text = runs_text("4251", lambda k: f"0{k + 1}/05/2021")
    reading = read_data(write(tmp_path, text))
    # Either reading goes forward in time: days of May, or the fifth of each month.
    (doubt,) = reading.table_facts["doubts"]
    assert {"day, month, year", "month, day, year"} == {
        doubt["taken"].rpartition("read as ")[2],
        doubt["other"].removeprefix("it is "),
    }
    forward, _ = first_times(tmp_path, runs_text("4251", lambda k: ("07/05", "08/05", "01/06", "02/06")[k] + "/2021"))
    np.testing.assert_allclose(np.diff(forward) / 86400, [1, 24, 1])


def test_a_date_and_a_time_of_the_day_are_one_time(tmp_path):
    rows = [f"2021-02-0{1 + k // 4},{6 * (k % 4):02d}:00,{(k * 7) % 5}" for k in range(12)]
    path = write(tmp_path, "\n".join(["Date,Time,y", *rows]) + "\n")
    reading = read_data(path)
    assert reading.columns == Columns(None, "Date/Time", (), ("y",), ())
    np.testing.assert_allclose(np.diff(reading.data.times[0]), 6 * 3600.0)
    assert reading.table_facts["left_out"] == dict.fromkeys(("Date", "Time"), "part of the time, 'Date/Time'")
    (doubt,) = reading.table_facts["doubts"]
    assert doubt["option"] == "--trajectory 'Date' --time 'Time'"
    assert read_data(path, Columns(trajectory="Date", time="Time")).data.num_trajectories == 3
    assert_same(read_data(path, reading.columns).data, reading.data)


def test_times_of_no_kind_that_is_known_are_named(tmp_path):
    text = runs_text("4251", lambda k: f"week {k} of May").replace("run,time,y", "run,time,age")
    refused(
        "times must be numbers, dates or time stamps.*row 2 of column 'time' has 'week 0 of May'",
        read_data,
        write(tmp_path, text),
    )


# Where a table begins


@pytest.mark.parametrize(
    ("above", "row"),
    [
        ("\ufeff# exported, by logger 4.1\n# site: X\n\n", 4),
        ("Device,X 12\nSerial,12345\nOperator,N. N.,second shift\n\n", 5),
        ("Report of a test\n", 2),
    ],
)
def test_lines_above_the_header_are_left_out(tmp_path, above, row):
    reading = read_data(write(tmp_path, above + "t,x,v\n" + "".join(f"{k},{k % 3},{k % 2 + 1}\n" for k in range(9))))
    assert reading.data.output_names == ("x", "v") and reading.data.num_times == 9
    assert reading.reasons["header"] == f"in row {row}, below lines that are left out"
    broken = above + "t,x,v\n" + "".join(f"{k},{k % 3},{k % 2 + 1}\n" for k in range(9)) + "9,1\n"
    refused(f"row {row + 10} has 2 .the header is row {row}.", read_data, write(tmp_path, broken))


def test_names_may_stand_in_a_comment(tmp_path):
    for header in ("# t,x", "# made by us\n# t,x"):
        reading = read_data(write(tmp_path, header + "\n0,1\n1,2\n2,4\n"), Columns(time="# t"))
        assert reading.data.output_names == ("x",) and reading.data.num_times == 3


def test_rows_without_a_filled_cell_are_left_out(tmp_path):
    for end in ("\n\n,,\n , ,\n", '\n"",,\n'):
        reading = read_data(write(tmp_path, "run,t,x\na,0,1\na,1,3\n,,\na,2,2" + end))
        assert reading.data.num_times == 3


def test_a_row_of_units_below_the_header(tmp_path):
    reading = read_data(write(tmp_path, "Specimen,Time,Strain,Stress\n,s,[-],(MPa)\n1,0,0,0.1\n1,1,.5,3\n1,2,.2,1\n"))
    assert reading.data.units == {"Stress": "MPa", "time": "s"} and reading.data.num_times == 3
    refused("row 2 has 'wet'", read_data, write(tmp_path, "t,x,y\n0,wet,1\n1,2,1\n2,3,4\n"))


def test_cells_separated_by_blanks(tmp_path):
    text = "  t   x  v\n" + "".join(f" {k}.0   {k % 3}  {k % 2 + 1}\n" for k in range(9))
    for name in ("table.csv", "table.dat", "table.txt"):
        assert read_data(write(tmp_path, text, name)).data.outputs.shape == (1, 9, 2)


def test_what_spreadsheets_write_for_no_number(tmp_path):
    cells = ["1", "#N/A", "#DIV/0!", "#NV", "NaN", "-", "--", "n.d.", "\u2013", "", "NULL", "2"]
    reading = read_data(write(tmp_path, runs_text(cells, num=1)))
    assert reading.data.mask[..., 0].tolist() == [[True, *[False] * 10, True]]


def test_rows_in_no_order_are_sorted(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{run},{k},{k + 10 * run}" for run in range(3) for k in range(8)]
    path = write(tmp_path, "\n".join(["run,time,y", *rng.permutation(rows)]) + "\n")
    reading = read_data(path)
    assert np.all(np.diff(reading.data.times) == 1) and np.all(np.diff(reading.data.outputs[..., 0]) == 1)
    assert reading.reasons["time"].endswith("the rows were in no order of time and are sorted")
    assert reading.table_facts["doubts"] == []
    alone = write(tmp_path, "\n".join(["time,y", *(f"{k},{k}" for k in range(20, 0, -1))]) + "\n")
    (doubt,) = read_data(alone).table_facts["doubts"]
    assert doubt["other"] == "they are of several"
    few = [*rows[:5], rows[6], rows[5], *rows[7:]]
    refused("row 8 has 5 after 6", read_data, write(tmp_path, "\n".join(["run,time,y", *few]) + "\n"))
    repeated = [rows[0], *rows]
    refused("average or drop repeated readings", read_data, write(tmp_path, "\n".join(["run,time,y", *repeated])))


def test_columns_without_a_name_that_are_empty(tmp_path):
    reading = read_data(write(tmp_path, "run,t,x,,\na,0,1,,\na,1,3,,\na,2,2, ,\n"))
    assert reading.table_facts["columns_found"] == ["run", "t", "x"]
    refused("found '' more than once", read_data, write(tmp_path, "run,t,x,,\na,0,1,,\na,1,3,5,4\n"))


def test_the_line_by_which_spreadsheets_know_the_separator(tmp_path):
    reading = read_data(write(tmp_path, "sep=;\nZeit;Wert\n0,1;2\n0,2;3\n0,3;1\n"))
    assert reading.columns.time == "Zeit" and reading.data.times.tolist() == [[0.1, 0.2, 0.3]]


def test_columns_that_may_be_trajectories_are_a_doubt(tmp_path):
    names = ["Italy", "France", "Spain", "Chile", "Peru"]
    path = write(tmp_path, wide_text(names))
    (doubt,) = read_data(path).table_facts["doubts"]
    assert doubt["other"] == "each column is a trajectory" and doubt["option"] == "--trajectory '*'"
    assert set(read_data(path, Columns(trajectory="*")).data.unit_names) == set(names)
    units = [f"{name} [{unit}]" for name, unit in zip(names, ("K", "Pa", "V", "A", "m"), strict=True)]
    assert read_data(write(tmp_path, wide_text(units))).table_facts["doubts"] == []


def test_one_row_per_reading_and_quantity(tmp_path):
    readings = np.random.default_rng(0).normal(20, 3, (2, 20, 2)).round(3)
    rows = [f"{'ab'[i]},{k},{'Tp'[j]},{value}" for (i, k, j), value in np.ndenumerate(readings)]
    path = write(tmp_path, "\n".join(["unit,time,parameter,value", *rows[:-1]]) + "\n")
    reading = read_data(path)
    assert reading.columns == Columns("unit", "time", (), ("p", "T"), ())
    np.testing.assert_array_equal(reading.data.outputs[0], readings[0, :, ::-1])
    assert reading.data.mask.sum() == 79 and "'parameter'" in reading.reasons["quantities"]
    assert_same(read_data(path, reading.columns).data, reading.data)
    new = write(tmp_path, "time,parameter,value\n0,T,20\n0,p,9\n1,T,\n", "new.csv")
    given = reading.columns._replace(trajectory=None)
    assert read_data(new, given, outputs_may_be_absent=True).data.mask.tolist() == [[[True, True], [False, False]]]
    twice = write(tmp_path, "\n".join(["unit,time,parameter,value", rows[0], *rows]) + "\n")
    refused("average or drop repeated", read_data, twice, Columns(trajectory="unit"))


def test_a_time_without_a_name_of_one(tmp_path):
    rows = "".join(f"{run},{2.5 * k},{(3 * k) % 5},{2 + (run == 'a')}\n" for run in "ab" for k in range(5))
    reading = read_data(write(tmp_path, "run,dpi,titer,weight\n" + rows))
    assert reading.columns == Columns("run", "dpi", ("weight",), ("titer",), ())
    (doubt,) = reading.table_facts["doubts"]
    assert doubt["about"] == "dpi" and doubt["option"] == "--time NAME"
    both = "".join(f"{run},{2.5 * k},{k**2},{(3 * k) % 5}\n" for run in "ab" for k in range(5))
    visits = "".join(f"{pid},{k + 1:02d}/15/2021,{40 + k},{(3 * k) % 5}\n" for pid in "ab" for k in range(5))
    stamped = read_data(write(tmp_path, "pid,visit_date,age_then,fev\n" + visits)).columns
    assert (stamped.trajectory, stamped.time) == ("pid", "visit_date")
    refused("'dpi', 'dose' increase along", read_data, write(tmp_path, "run,dpi,dose,titer\n" + both))
    dates = "country,3/1/20,3/2/20,3/3/20,3/4/20\nA,1,2,3,4\nB,1,2,3,4\n"
    refused("the header holds times: transpose the table", read_data, write(tmp_path, dates))
    hours = "Subject,0h,1h,2 h,24h\nA,1,2,3,4\nB,1,2,3,4\n"
    refused("the header holds times: transpose the table", read_data, write(tmp_path, hours))


# Numbers of parts, visits and repetitions, and flags


def test_numbers_of_cycles_and_steps_are_no_outputs(tmp_path):
    rng = np.random.default_rng(0)
    num = 80
    current = np.where(np.arange(num) // 10 % 2, 1.0, -1.0)
    table = {"Test_Time(s)": np.arange(num), "Cycle_Index": np.arange(num) // 20 + 1}
    table |= {"Step_Index": np.arange(num) // 10 % 2 + 1}
    driven = {"Current(A)": current, "Voltage(V)": 3.5 + 0.1 * current + rng.normal(0, 0.02, num)}
    path = write(tmp_path, csv_of(table | driven))
    reading = read_data(path)
    assert reading.data.output_names == ("Voltage(V)",) and reading.data.input_names == ("Current(A)",)
    assert set(reading.table_facts["left_out"]) == {"Cycle_Index", "Step_Index"}
    doubts = [doubt for doubt in reading.table_facts["doubts"] if "Index" in doubt["about"]]
    assert [doubt["option"] for doubt in doubts] == ["--trajectory Cycle_Index"]
    assert read_data(path, Columns(trajectory="Cycle_Index")).data.num_trajectories == 4


def test_visits_with_gaps_are_no_input(tmp_path):
    rows = [f"{p},{v},{30 * v},{(v * 7 + p) % 5}" for p in range(6) for v in range(1, 7) if (v + p) % 4]
    reading = read_data(write(tmp_path, "\n".join(["patient,Visit,day,score", *rows]) + "\n"))
    assert reading.columns == Columns("patient", "day", (), ("score",), ())
    assert reading.table_facts["left_out"] == {"Visit": "row numbers"}


def test_repetitions_are_neither_a_category_nor_an_amount(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        f"S{load}-{rep},{load},{rep},{k},{k * load + rng.normal():.3f}"
        for load in (20, 40, 60)
        for rep in (1, 2, 3)
        for k in range(6)
    ]
    path = write(tmp_path, "\n".join(["Specimen,Stress (MPa),Replicate,Time (s),Strain (%)", *rows]) + "\n")
    reading = read_data(path)
    assert reading.data.input_names == ("Stress (MPa)",) and reading.table_facts["doubts"] == []
    assert reading.table_facts["left_out"] == {"Replicate": "numbers repetitions"}


@pytest.mark.parametrize(("name", "flag"), [("BLQ", 1), ("below", 1), ("observed", 0)])
def test_flags_of_missing_readings_are_no_inputs(tmp_path, name, flag):
    cells = [("2.5", 1 - flag), ("", flag), ("1.5", 1 - flag), ("", flag), ("1.2", 1 - flag)]
    text = runs_text([f"{cell},{of}" for cell, of in cells], header=f"run,time,conc,{name}")
    reading = read_data(write(tmp_path, text))
    assert reading.columns == Columns("run", "time", (), ("conc",), ())
    assert reading.table_facts["left_out"] == {name: "tells where conc is empty"}


def test_text_that_changes_in_time_is_left_out_with_a_doubt(tmp_path):
    text = runs_text(["3,open", "4,open", "2,shut", "1,shut"], header="run,time,level,valve")
    path = write(tmp_path, text)
    reading = read_data(path)
    (doubt,) = reading.table_facts["doubts"]
    assert doubt["option"] == "--inputs 'valve'" and reading.data.num_inputs == 0
    assert read_data(path, Columns(inputs=("valve",))).data.input_names == ("valve=open", "valve=shut")


def test_a_category_that_is_no_condition_is_not_said_to_be_left_out(tmp_path):
    table = growth("Pot", [f"p{i}" for i in range(8)])
    table["Treatment"] = [level for i in range(8) for level in ["ab"[i % 2]] * 4]
    table["Soil"] = [level for i in range(8) for level in [("clay", "sand")[i // 4]] * 4]
    facts = read_data(write(tmp_path, csv_of(table))).table_facts
    assert facts["left_out"] == {"rownames": "row numbers"}


def test_wells_of_a_plate_and_a_column_beside_them(tmp_path):
    wells = [f"{row}{column}" for row in "AB" for column in range(1, 5)]
    rows = [f"{k}:15:00,37.{k % 3}," + ",".join(f"{k + i / 10}" for i in range(8)) for k in range(6)]
    reading = read_data(write(tmp_path, "\n".join([",".join(["Time", "T 600", *wells]), *rows]) + "\n"))
    assert reading.data.num_trajectories == 8 and set(reading.data.unit_names) == set(wells)
    assert reading.data.input_names == ("T 600",)


# Categories


def with_diets(tmp_path, levels, name="table.csv", column="Diet"):
    names = [f"c{i}" for i in range(len(levels))]
    table = growth("Chick", names)
    table[column] = [level for level in levels for _ in range(4)]
    return write(tmp_path, csv_of(table), name)


def test_text_that_is_constant_within_trajectories_is_a_category(tmp_path):
    reading = read_data(with_diets(tmp_path, ["b", "a", "b", "c", "a", "c"]))
    assert reading.columns.inputs == ("Diet=a", "Diet=b", "Diet=c") == reading.data.input_names
    np.testing.assert_array_equal(reading.data.inputs[:3, 0], [[0, 1, 0], [1, 0, 0], [0, 1, 0]])
    assert reading.data.num_conditions == 3 and "categories: Diet (3 levels)" in reading.reasons["inputs"]
    assert_same(read_data(tmp_path / "table.csv", reading.columns).data, reading.data)


def test_levels_of_new_data_must_be_known(tmp_path):
    columns = read_data(with_diets(tmp_path, ["b", "a", "b", "c", "a", "c"])).columns
    new = with_diets(tmp_path, ["c", "a"], "new.csv")
    data = read_data(new, columns, outputs_may_be_absent=True).data
    np.testing.assert_array_equal(data.inputs[:, 0], [[0, 0, 1], [1, 0, 0]])
    strange = with_diets(tmp_path, ["c", "d"], "strange.csv")
    refused("levels that are known, 'a', 'b', 'c'; row 6 has 'd'", read_data, strange, columns)
    without = with_diets(tmp_path, ["c", "d"], "without.csv", column="Food")
    refused("column 'Diet=a' must be in the file", read_data, without, columns)


def test_codes_are_a_category_and_can_be_an_amount(tmp_path):
    path = with_diets(tmp_path, ["1", "2", "3", "1", "2", "3"])
    reading = read_data(path)
    (doubt,) = reading.table_facts["doubts"]
    assert reading.data.input_names == ("Diet=1", "Diet=2", "Diet=3")
    assert "category of 3 levels" in doubt["taken"] and shlex.split(doubt["option"]) == ["--inputs", "Diet"]
    assert read_data(path, Columns(inputs=("Diet",))).data.input_names == ("Diet",)
    assert_same(read_data(path, Columns(inputs=("Diet=*",))).data, reading.data)
    for column, levels in (("Dose", "123123"), ("Diet", "124124"), ("Diet", "121212"), ("load_N", "123123")):
        found = read_data(with_diets(tmp_path, list(levels), column=column))
        assert found.data.input_names == (column,) and found.table_facts["doubts"] == []


def test_a_condition_that_nothing_else_shows_is_an_input_too(tmp_path):
    path = with_diets(tmp_path, ["1", "2", "3", "1", "2", "3"])
    reading = read_data(path, Columns(condition="Diet"))
    assert reading.data.input_names == ("Diet=1", "Diet=2", "Diet=3") and reading.data.num_conditions == 3
    doses = with_diets(tmp_path, ["10", "20", "40", "10", "20", "40"], column="Dose")
    assert read_data(doses, Columns(condition="Dose")).data.input_names == ("Dose",)
    # What the other inputs show already is not shown twice.
    table = growth("Chick", [f"c{i}" for i in range(4)])
    table |= {"food": np.repeat([0.5, 0.7, 0.5, 0.7], 4), "group": [g for g in "abab" for _ in range(4)]}
    assert read_data(write(tmp_path, csv_of(table))).data.input_names == ("food",)


def test_one_label_per_trajectory_is_no_category(tmp_path):
    reading = read_data(with_diets(tmp_path, ["a", "b", "c", "d"], column="remark"))
    assert reading.data.num_inputs == 0 and reading.table_facts["left_out"]["remark"] == "text"


# Wide tables and single records


def wide_text(names, num=12, seed=0):
    rng = np.random.default_rng(seed)
    values = 5 * np.exp(-0.2 * np.arange(num)[:, None] * rng.uniform(0.8, 1.2, size=len(names)))
    return csv_of({"week": np.arange(num) * 2.0} | dict(zip(names, values.T, strict=True)))


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["mouse1", "mouse2", "mouse3"], "mouse*"),
        (["Subject 1", "Subject 2", "Subject 10"], "Subject*"),
        (["1", "2", "3", "4"], "*"),
        (["S01", "S02", "S03"], "S*"),
        (["Tree01A", "Tree01B", "Tree02A"], "Tree*"),
    ],
)
def test_one_column_per_subject(tmp_path, names, pattern):
    path = write(tmp_path, wide_text(names))
    reading = read_data(path)
    assert reading.columns == Columns(pattern, "week", (), ("value",), ())
    assert reading.data.unit_names == tuple(sorted(names)) and reading.data.num_times == 12
    values = np.loadtxt(path, delimiter=",", skiprows=1)[:, 1:].T
    order = [names.index(reading.data.unit_names[unit]) for unit in reading.data.unit]
    np.testing.assert_array_equal(reading.data.outputs[..., 0], values[order])
    assert_same(read_data(path, reading.columns).data, reading.data)
    assert reading.table_facts["doubts"] == []


def test_numbered_outputs_of_one_record_or_one_column_per_trajectory_is_a_doubt(tmp_path):
    few = read_data(write(tmp_path, wide_text(["y1", "y2", "y3"])))
    assert few.data.output_names == ("y1", "y2", "y3") and few.data.num_trajectories == 1
    many = read_data(write(tmp_path, wide_text([f"y{i}" for i in range(6)])))
    (doubt,) = many.table_facts["doubts"]
    assert many.data.num_trajectories == 6 and "--outputs" in doubt["option"]
    named = shlex.split(doubt["option"])[1].split(",")
    assert read_data(tmp_path / "table.csv", Columns(outputs=tuple(named))).data.num_trajectories == 1
    pattern = Columns(trajectory="y*", outputs=("mass",))
    assert read_data(write(tmp_path, wide_text(["y1", "y2", "y3"])), pattern).data.output_names == ("mass",)


def test_other_columns_of_a_wide_table_are_shared(tmp_path):
    text = wide_text(["rat1", "rat2", "rat3"]).splitlines()
    rows = [f"{line},{'room' if i == 0 else 20 + (i % 5)}" for i, line in enumerate(text)]
    reading = read_data(write(tmp_path, "\n".join(rows) + "\n"))
    assert reading.data.input_names == ("room",) and reading.data.num_trajectories == 3
    assert np.all(reading.data.inputs == reading.data.inputs[:1])


def test_a_single_record_is_cut_into_windows():
    values = np.sin(0.1 * np.arange(203.0))
    data = Dataset.from_arrays(np.arange(203.0) + 5, values[None], units={"time": "h"})
    assert num_windows(data) == 10
    windows = cut_into_windows(data, 10)
    assert windows.num_trajectories == windows.num_conditions == 10 and windows.units == {"time": "h"}
    rows = [windows.times[i, : windows.lengths[i]] for i in range(10)]
    assert all(a[-1] == b[0] for a, b in itertools.pairwise(rows))
    assert (rows[0][0], rows[-1][-1]) == (5.0, 207.0)
    np.testing.assert_array_equal(windows.outputs[3, : len(rows[3]), 0], values[(rows[3] - 5).astype(int)])
    assert cut_into_windows(data, None) is data
    assert num_windows(data.select([0, 0, 0])) is None  # enough trajectories
    assert num_windows(Dataset.from_arrays(np.arange(10.0), values[None, :10])) is None
    refused("at least 3 time points; 102 windows", cut_into_windows, data, 102)


# Doses


def nonmem(*rows, header="ID,TIME,AMT,RATE,DV,MDV,EVID,WT"):
    lines = [f"{i},{row},{50 + i}" for i in (1, 2, 3) for row in rows]
    return "\n".join([header, *lines]) + "\n"


def cells(reading, row=0):
    data, length = reading.data, reading.data.lengths[row]
    outputs = np.where(data.mask[row], data.outputs[row], np.nan)
    return np.column_stack([data.times[row, :length], data.inputs[row, :length, 0], outputs[:length, 0]])


def test_doses_become_the_amount_given_so_far(tmp_path):
    rows = ("0,100,.,.,1,1", "0,.,.,0,0,0", "2,.,.,3,0,0", "10,50,.,.,1,1", "10,.,.,1,0,0", "12,.,.,4,0,0")
    reading = read_data(write(tmp_path, nonmem(*rows)))
    assert reading.columns == Columns("ID", "TIME", ("total AMT", "WT"), ("DV",), ())
    expected = [[0, 100, 0], [2, 100, 3], [10 - 12e-4, 100, np.nan], [10, 150, 1], [12, 150, 4]]
    np.testing.assert_allclose(cells(reading), expected, rtol=1e-12)
    assert reading.table_facts["left_out"]["AMT"] == "doses and events, read as such"
    assert_same(read_data(tmp_path / "table.csv", reading.columns).data, reading.data)


def test_doses_of_new_data_without_readings(tmp_path):
    rows = ("0,100,.,.,1,1", "0,.,.,0,0,0", "2,.,.,3,0,0", "10,50,.,.,1,1", "12,.,.,4,0,0")
    columns = read_data(write(tmp_path, nonmem(*rows))).columns
    new = "ID,TIME,AMT,EVID,WT\n9,0,80,1,60\n9,3,.,0,60\n9,5,.,0,60\n"
    reading = read_data(write(tmp_path, new, "new.csv"), columns, outputs_may_be_absent=True)
    assert reading.data.input_names == ("total AMT", "WT") and not reading.data.mask.any()
    np.testing.assert_array_equal(reading.data.inputs[0], [[80, 60]] * 3)


def test_an_infusion_ends_when_its_amount_is_used_up(tmp_path):
    rows = ("0,100,25,.,1,1", "1,.,.,3,0,0", "6,.,.,2,0,0", "8,.,.,1,0,0")
    reading = read_data(write(tmp_path, nonmem(*rows)))
    assert reading.columns.inputs == ("infusion RATE", "WT")
    expected = [[0, 25, np.nan], [1, 25, 3], [4 - 8e-4, 25, np.nan], [4, 0, np.nan], [6, 0, 2], [8, 0, 1]]
    np.testing.assert_allclose(cells(reading), expected, rtol=1e-12)


def test_rates_and_amounts_of_every_interval_are_one_infusion(tmp_path):
    # As in tables that repeat the rate in each row, with the amount until the next; the last end differs by rounding.
    head, rows = "rownames,ID,Subject,Time,conc,Rate,Amt,Sex", []
    for i in range(1, 7):
        for t, c, r, a in ((0, "", 70, 105), (1.5, 9, 70, 35.0001), (2, 11, 70, 70), (3, "", 0, 0), (4, 5, 0, 0)):
            rows.append(f"{len(rows) + 1},{i},{i},{t},{c},{r},{a},{'MF'[i % 2]}")
    reading = read_data(write(tmp_path, "\n".join([head, *rows]) + "\n"))
    inputs = ("infusion Rate", "Sex=F", "Sex=M")
    assert reading.columns == Columns("Subject", "Time", inputs, ("conc",), (), None, None)
    expected = [[0, 70, np.nan], [1.5, 70, 9], [2, 70, 11], [3 - 4e-4, 70, np.nan], [3, 0, np.nan], [4, 0, 5]]
    np.testing.assert_allclose(cells(reading), expected, rtol=1e-12)
    assert set(reading.table_facts["left_out"]) == {"rownames", "ID", "Rate", "Amt"}


def test_empty_doses_and_announced_ones(tmp_path):
    # R's tables: no flags, NA where there is no dose or no reading.
    table = "Subject,time,dose,conc\n" + "".join(
        f"{i},0,25,NA\n{i},2,NA,17\n{i},12,{3 + i},NA\n{i},24,NA,11\n" for i in (1, 2, 3)
    )
    reading = read_data(write(tmp_path, table))
    assert reading.columns == Columns("Subject", "time", ("total dose",), ("conc",), ())
    expected = [[0, 25, np.nan], [2, 25, 17], [12 - 24e-4, 25, np.nan], [12, 29, np.nan], [24, 29, 11]]
    np.testing.assert_allclose(cells(reading), expected, rtol=1e-12)
    more = "ID,TIME,AMT,ADDL,II,DV,EVID\n" + "".join(
        f"{i},0,10,2,4,.,1\n{i},1,.,.,.,5,0\n{i},9,.,.,.,6,0\n" for i in (1, 2, 3)
    )
    found = cells(read_data(write(tmp_path, more)))
    expected = [[0, 10], [1, 10], [4 - 9e-4, 10], [4, 20], [8 - 9e-4, 20], [8, 30], [9, 30]]
    np.testing.assert_allclose(found[:, :2], expected, rtol=1e-12)


def test_a_reset_begins_a_trajectory_and_compartments_are_outputs(tmp_path):
    rows = ("0,100,.,.,1,1", "2,.,.,3,0,0", "10,100,.,.,1,4", "12,.,.,4,0,0", "13,.,.,5,0,0")
    data = read_data(write(tmp_path, nonmem(*rows))).data
    assert data.num_trajectories == 6 and data.unit_names[:2] == ("1", "1 after reset 1")
    assert data.input_names == ("WT",)  # the amount was the same in all
    lines = [f"{i},0,100,.,1,1\n{i},2,.,3,0,2\n{i},2,.,{6 + i},0,3\n{i},5,.,1,0,2\n" for i in (1, 2, 3)]
    reading = read_data(write(tmp_path, "ID,TIME,AMT,DV,EVID,CMT\n" + "".join(lines)))
    assert reading.data.output_names == ("DV CMT=2", "DV CMT=3")
    assert reading.data.times[0].tolist() == [0, 2, 5]
    outputs = np.where(reading.data.mask[0], reading.data.outputs[0], np.nan)
    np.testing.assert_array_equal(outputs, [[np.nan, np.nan], [3, 7], [1, np.nan]])
    twice = "ID,TIME,AMT,DV,EVID,CMT\n" + "".join(line.replace(",0,3", ",0,2") for line in lines) + "3,6,.,1,0,3\n"
    refused("one reading of each kind; row 4", read_data, write(tmp_path, twice))


def test_one_dose_per_trajectory_is_a_constant_input(tmp_path):
    table = growth("Subject", ("a", "b", "c", "d"), Dose=np.repeat([4.0, 4.5, 5.1, 3.3], 4))
    assert read_data(write(tmp_path, csv_of(table))).data.input_names == ("Dose",)


def test_a_covariate_that_is_given_once_holds_for_its_trajectory(tmp_path):
    table = growth("Subject", ("a", "b", "c"))
    table["Wt"] = [f"{w}" if j == 0 else "." for w in (60, 70.5, 80) for j in range(4)]
    data = read_data(write(tmp_path, csv_of(table))).data
    np.testing.assert_array_equal(data.inputs[..., 0], np.repeat([[60], [70.5], [80]], 4, axis=1))
    table["Wt"] = ["." if i < 4 else w for i, w in enumerate(table["Wt"])]
    assert "empty throughout trajectory 'a'" in read_data(write(tmp_path, csv_of(table))).table_facts["left_out"]["Wt"]


# Outliers


def test_an_outlier_is_named_and_changes_no_choice():
    rng = np.random.default_rng(0)
    starts = 10 * rng.normal(size=(8, 1))
    outputs = starts * np.exp(-0.3 * np.arange(12.0)) + rng.normal(size=(8, 12))
    data = Dataset.from_arrays(np.arange(12.0), outputs, output_names=("conc",))
    assert find_outliers(data) == () and not starts_agree(data)
    wild = outputs.copy()
    wild[3, 5] = 1e6
    spoilt = dataclasses.replace(data, outputs=wild[..., None])
    (found,) = find_outliers(spoilt)
    assert (found.output, found.trajectory, found.time, found.value) == ("conc", "trajectory 3", 5.0, 1e6)
    assert "conc of trajectory 3 at time 5 is 1e+06" in found.line()
    assert not starts_agree(spoilt)
    near = np.column_stack([5.0 + 0.01 * rng.normal(size=8), outputs])
    assert starts_agree(Dataset.from_arrays(np.arange(13.0), near))
    near[2, 0] = 1e6
    assert starts_agree(Dataset.from_arrays(np.arange(13.0), near))


def test_growth_and_peaks_are_no_outliers():
    times = np.arange(15.0)
    growing = np.exp(0.7 * times) * np.linspace(0.8, 1.2, 6)[:, None]
    assert find_outliers(Dataset.from_arrays(times, growing)) == ()
    peak = times * np.exp(-times) * np.linspace(0.8, 1.2, 6)[:, None]
    assert find_outliers(Dataset.from_arrays(times, peak)) == ()


def test_robust_spread():
    values = np.random.default_rng(0).normal(size=20_000)
    # The standard error of the median deviation of n normal numbers is about 1.17 / sqrt(n).
    assert abs(robust_spread(values) - 1) < 5 * 1.17 / np.sqrt(len(values))
    assert abs(robust_spread(np.append(values, 1e12)) - 1) < 5 * 1.17 / np.sqrt(len(values))
    assert robust_spread(np.zeros(5)) == robust_spread(np.zeros(0)) == 0.0
    assert robust_spread(np.repeat([1.0, 1.0, 4.0], [6, 2, 2])) > 0.0
    assert robust_spread(np.full(3, 1e300) * [1, 2, 3]) == pytest.approx(1.4826e300, rel=1e-4)


# The commands


@pytest.fixture
def started(monkeypatch):
    """Note the data of runs that would begin, and do no work."""
    begun = []
    monkeypatch.setattr("langenode.runs.stages.Run.complete", lambda run, *_: begun.append(run))
    return begun


def advised(out):
    line = next(line for line in out.splitlines() if line.startswith("Next: "))
    return shlex.split(line.removeprefix("Next: langenode "))


@pytest.mark.parametrize("options", [[], ["--inputs", "Diet"], ["--trajectory", "Chick", "--condition", "Diet"]])
def test_the_next_command_works_as_it_stands(tmp_path, monkeypatch, capsys, started, options):
    monkeypatch.chdir(tmp_path)
    with_diets(tmp_path, [*"123123123"], "my chicks.csv")
    code, out, err = command(monkeypatch, capsys, "check", "my chicks.csv", *options)
    assert (code, err) == (0, "")
    assert advised(out)[:4] == ["fit", "my chicks.csv", "--config", "config.toml"]
    code, _, err = command(monkeypatch, capsys, *advised(out))
    assert code == 0, err
    assert started[0].config.data.inputs == (("Diet",) if "--inputs" in options else ("Diet=1", "Diet=2", "Diet=3"))
    # Beside a configuration that was left alone, the columns given are part of the command.
    (tmp_path / "config.toml").write_text("seed = 7\n")
    _, out, _ = command(monkeypatch, capsys, "check", "my chicks.csv", *options)
    assert advised(out) == ["fit", "my chicks.csv", *options, "--out", "runs/my chicks"]


def test_a_folder_of_tables_that_one_is_in(tmp_path, monkeypatch, capsys, started):
    rng = np.random.default_rng(0)
    folder = tmp_path / "tables"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for i in range(6):
        write(folder, csv_of(heated(rng)), f"run{i}.csv")
    code, out, _ = command(monkeypatch, capsys, "check", ".")
    assert code == 0 and (folder / "config.toml").exists()
    code, _, err = command(monkeypatch, capsys, *advised(out))
    assert code == 0, err
    assert started[0].config.data.inputs == ("heater_W",)
    assert (folder / "runs" / "tables" / "config.toml").exists()
    # The configuration beside the tables is no data.
    sources = [started[0]._provenance["source"]["sha256"]]
    (folder / "config.toml").write_text("seed = 1\n")
    assert command(monkeypatch, capsys, "fit", ".", "--out", str(tmp_path / "other"))[0] == 0
    assert [started[1]._provenance["source"]["sha256"]] == sources


def test_check_and_fit_say_doubts_and_outliers(tmp_path, monkeypatch, capsys, started):
    monkeypatch.chdir(tmp_path)
    path = with_diets(tmp_path, [*"123123123"])
    path.write_text(path.read_text().replace("\n8,", "\n8,", 1))
    lines = path.read_text().splitlines()
    cells = lines[5].split(",")
    lines[5] = ",".join([*cells[:3], "1e6", cells[4]])
    path.write_text("\n".join(lines) + "\n")
    _, out, _ = command(monkeypatch, capsys, "check", "table.csv")
    assert "Doubtful" in out and "category of 3 levels" in out and "--inputs 'Diet'" in out
    assert "Warning: size of trajectory 1 ('c1') at time 1 is 1e+06" in out
    _, _, err = command(monkeypatch, capsys, "fit", "table.csv", "--out", "run")
    doubts = [line for line in err.splitlines() if line.startswith("doubt: ")]
    assert len(doubts) == 1 and "if it is an amount, use --inputs 'Diet'" in doubts[0]
    assert sum(line.startswith("warning: size of trajectory 1") for line in err.splitlines()) == 1


def test_replicates_are_counted_as_the_fit_sees_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = {"Subject": np.repeat(np.arange(18), 10), "Days": np.tile(np.arange(10), 18)}
    table["Reaction"] = np.ravel(250 + 30 * rng.normal(size=(18, 1)) + 10 * np.arange(10.0) + rng.normal(size=(18, 10)))
    write(tmp_path, csv_of(table))
    _, out, _ = command(monkeypatch, capsys, "check", "table.csv")
    rows = [line for line in out.splitlines() if "replicates" in line]
    assert any("replicates per condition" in row and "│ 1 " in row for row in rows), rows
    assert "how units differ is learned" in " ".join(out.split()) and "too few replicates" not in out
    plain, advised_one = (
        plan_file(tmp_path / "table.csv", layers) for layers in ([], [read_toml(Path("config.toml"))])
    )
    assert plain.config == advised_one.config and plain.config.model.units == "auto"
    assert choose_target.is_open(choose.asked_for([read_toml(Path("config.toml"))]), advised_one.config)


def test_a_single_record_is_planned_in_windows(tmp_path, monkeypatch, capsys, started):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(size=120))
    write(tmp_path, csv_of({"time": np.arange(120.0), "level": values}))
    code, out, _ = command(monkeypatch, capsys, "check", "table.csv")
    assert code == 0 and "windows" in out
    assert command(monkeypatch, capsys, *advised(out))[0] == 0
    (run,) = started
    assert run.config.data.windows == 6
    assert [part.num_trajectories for part in run._given] == [6, 0, 6]  # each window is held out once
    with pytest.raises(DataError, match="found one trajectory"):
        plan_file(tmp_path / "table.csv", [{"data": {"windows": "none"}}])
