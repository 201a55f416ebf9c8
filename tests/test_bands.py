"""The table of bands: the user's own columns come back, with every reading beside its bands."""

import dataclasses
import io

import numpy as np
import pandas as pd
import pytest

from langenode.data import DataError, Dataset, cut_into_windows, load_data, read_data, save_data, with_observed_start
from langenode.storage.bands import SUFFIXES, bands_csv, prediction_dataset

TIMES = (0.0, 0.5, 2.0)


def table_of(data: Dataset, time: str | None) -> pd.DataFrame:
    """The table of bands of samples that are drawn at random, as text."""
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(40, *data.cases().times.shape, data.num_outputs))
    bands = prediction_dataset(data, outputs, outputs + rng.normal(size=outputs.shape), np.zeros((40, 0)), ())
    text = bands_csv(bands, data, time_name=time)
    found = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    cells = np.concatenate(
        [
            bands["mean"].to_numpy()[None],
            *(bands[name].sel(level=[0.05, 0.95]).to_numpy() for name in ("quantiles", "observation_quantiles")),
        ]
    )
    for k, name in enumerate(data.output_names):
        expected = [cells[:, data.condition[row], : data.lengths[row], k].T for row in range(data.num_trajectories)]
        written = found[[f"{name}_{suffix}" for suffix in SUFFIXES]].astype(float)
        np.testing.assert_array_equal(written, np.concatenate(expected))
    return found


def subjects(num: int = 4) -> pd.DataFrame:
    """Subjects whose labels sort otherwise than their numbers, with units in names and a category."""
    rows = [
        {"Subject": f"S{9 + s}", "Time [h]": t, "Wt (kg)": 60 + s, "Sex": "FM"[s % 2], "conc (mg/L)": 1.5 + s + t}
        for s in range(num)
        for t in TIMES
    ]
    return pd.DataFrame(rows)


def written(frame: pd.DataFrame, path) -> str:
    frame.to_csv(path, index=False)
    return str(path)


def test_labels_times_inputs_and_readings_are_those_of_the_user_s_table(tmp_path):
    given = subjects()
    given.loc[4, "conc (mg/L)"] = np.nan
    reading = read_data(written(given, tmp_path / "a.csv"))
    data = with_observed_start(reading.data)
    assert not data.mask[:, 0].any()
    expected = pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    for stored in (data, _through_a_file(data, tmp_path)):
        found = table_of(stored, reading.columns.time)
        assert list(found)[:6] == ["Subject", "Time [h]", "Wt (kg)", "Sex", "conc (mg/L)", "conc (mg/L)_mean"]
        assert len(found) == len(expected) and list(found["Subject"]) == list(expected["Subject"])
        assert list(found["Sex"]) == list(expected["Sex"]) and list(found["Wt (kg)"]) == list(expected["Wt (kg)"])
        # The first readings are starts of the prediction, and readings all the same; the gap stays one.
        for name in ("Time [h]", "conc (mg/L)"):
            ours, theirs = (np.array([float(cell or "nan") for cell in table[name]]) for table in (found, expected))
            np.testing.assert_array_equal(ours, theirs)
    assert list(found["conc (mg/L)"]).count("") == 1


def _through_a_file(data: Dataset, folder) -> Dataset:
    save_data(data, folder / "stored.nc")
    return load_data(folder / "stored.nc")


def test_a_part_of_the_data_keeps_its_labels(tmp_path):
    reading = read_data(written(subjects(6), tmp_path / "a.csv"))
    found = table_of(reading.data.select([4, 1]), reading.columns.time)
    assert list(found["Subject"]) == ["S13"] * 3 + ["S10"] * 3


def test_replicates_have_the_same_bands_and_their_own_readings(tmp_path):
    given = subjects().drop(columns=["Wt (kg)", "Sex"])
    reading = read_data(written(given, tmp_path / "a.csv"))
    assert reading.data.num_conditions == 1
    found = table_of(reading.data, reading.columns.time)
    pairs = set(zip(found["Time [h]"], found["conc (mg/L)_mean"], strict=True))
    assert len(pairs) == len(TIMES)
    np.testing.assert_array_equal(found["conc (mg/L)"].astype(float), given["conc (mg/L)"])


def test_two_columns_that_identify_a_trajectory_are_two_again(tmp_path):
    rows = [
        {"Subject": s, "Formulation": f, "time": t, "conc": 0.5 + s + t}
        for s in (1, 2, 3)
        for f in ("new/b", "old")
        for t in TIMES
    ]
    reading = read_data(written(pd.DataFrame(rows), tmp_path / "a.csv"))
    assert reading.columns.trajectory == "Subject/Formulation"
    found = table_of(reading.data, reading.columns.time)
    assert list(found["Subject"]) == [str(row["Subject"]) for row in rows]
    assert list(found["Formulation"]) == [row["Formulation"] for row in rows]
    assert "Subject/Formulation" not in found


def test_columns_of_a_wide_table_are_the_labels(tmp_path):
    wide = pd.DataFrame({"week": [1, 2, 5], **{f"mouse_{n}": [n + 0.5, n + 1, n + 2] for n in (1, 2, 10)}})
    reading = read_data(written(wide, tmp_path / "a.csv"))
    found = table_of(reading.data, reading.columns.time)
    assert list(found)[:3] == ["mouse", "week", "value"]
    assert list(found["mouse"]) == ["mouse_1"] * 3 + ["mouse_2"] * 3 + ["mouse_10"] * 3
    assert list(found["week"]) == ["1", "2", "5"] * 3 and list(found["value"][:3]) == ["1.5", "2", "3"]


@pytest.mark.parametrize(
    "stamps",
    [
        ("2024-05-01 12:00:00", "2024-05-01 12:00:30", "2024-05-02 00:00:00"),
        ("2024-05-01T12:00:00+02:00", "2024-05-01T12:00:00.250000+02:00", "2024-05-01T13:00:00+02:00"),
    ],
)
def test_time_stamps_come_back_as_they_were_written(tmp_path, stamps):
    rows = [{"run": r, "timestamp": stamp, "x": 0.1 * k + (r == "b")} for r in "ab" for k, stamp in enumerate(stamps)]
    reading = read_data(written(pd.DataFrame(rows), tmp_path / "a.csv"))
    found = table_of(_through_a_file(reading.data, tmp_path), reading.columns.time)
    assert list(found["timestamp"]) == [*stamps, *stamps] and list(found)[:2] == ["run", "timestamp"]


def test_what_a_damaged_file_says_of_times_and_starts_is_no_trap():
    outputs = np.random.default_rng(0).normal(size=(2, 3, 1))
    data = Dataset.from_arrays(TIMES, outputs, output_names=("y",))
    damaged = dataclasses.replace(data, labels={"t": ("soon", "2024-13-01")})
    assert list(table_of(damaged, "t")["t"]) == ["0", "0.5", "2"] * 2
    late = dataclasses.replace(data, times=np.array([[0.0, 1e9, 1e300]] * 2), labels={"t": ("2024-01-01",) * 2})
    assert list(table_of(late, "t")["t"])[1:3] == ["1000000000", "1e+300"]
    for wrong in ([[3.0], [0.0]], [[0.5], [0.0]], [0.0, 0.0]):
        broken = dataclasses.replace(with_observed_start(data), attributes={"start_read_at": np.array(wrong)})
        with pytest.raises(DataError, match="start_read_at must be a time point of every output"):
            table_of(broken, "t")


def test_files_of_a_folder_and_windows_of_a_record_are_named(tmp_path):
    for name in ("north", "south"):
        written(pd.DataFrame({"t": TIMES, "x": [1.0, 2.0, 3.0]}), tmp_path / f"{name}.csv")
    reading = read_data(tmp_path)
    assert list(table_of(reading.data, "t")["file"]) == ["north.csv"] * 3 + ["south.csv"] * 3
    long = pd.DataFrame({"t": np.arange(11.0), "x": np.arange(11.0) ** 2})
    reading = read_data(written(long, tmp_path / "long.csv"))
    found = table_of(cut_into_windows(reading.data, 2), "t")
    assert list(found["window"]) == ["1"] * 6 + ["2"] * 6
    assert list(found["t"]) == [str(t) for t in (*range(6), *range(5, 11))]
    assert next(iter(table_of(reading.data, "t"))) == "t"  # one trajectory needs no label


def test_data_without_labels_have_units_and_conditions():
    outputs = np.random.default_rng(0).normal(size=(4, 3, 1))
    alone = Dataset.from_arrays(TIMES, outputs, condition=list("aabb"), output_names=("y",))
    assert list(table_of(alone, None))[:4] == ["trajectory", "condition", "time", "y"]
    crossed = Dataset.from_arrays(TIMES, outputs, condition=list("aabb"), unit=list("pqpq"), output_names=("y",))
    assert list(table_of(crossed, None))[:4] == ["condition", "unit", "time", "y"]


def test_columns_of_one_name_are_distinguished_and_a_single_level_stays_a_number():
    outputs = np.random.default_rng(0).normal(size=(2, 3, 2))
    inputs = np.ones((2, 3, 1))
    data = Dataset.from_arrays(TIMES, outputs, inputs=inputs, input_names=("Sex=F",), output_names=("y", "y_mean"))
    buffer = bands_csv(
        prediction_dataset(data, outputs[:, None], outputs[:, None], np.zeros((2, 0)), ()), data, time_name="t"
    )
    header = buffer.splitlines()[0].split(",")
    assert len(set(header)) == len(header) and header[:4] == ["trajectory", "t", "Sex=F", "y"]
    assert header[4] == "y_mean" and "y_mean_" in header


def test_labels_must_be_one_text_per_trajectory():
    data = Dataset.from_arrays(TIMES, np.zeros((2, 3)))
    with pytest.raises(DataError, match="column 'id' must have one label for each of 2 trajectories; found 1"):
        dataclasses.replace(data, labels={"id": ("a",)})
