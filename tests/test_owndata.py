"""A scientist's own table: which column is what, folders, Parquet, time stamps, and what is said of a bad one."""

import dataclasses
import json
import sys

import numpy as np
import pytest

from datasets import assert_same, crossed, grid_data, per_condition, ragged, refused
from langenode.data import (
    Columns,
    DataError,
    Dataset,
    check_fittable,
    load_data,
    read_data,
    save_data,
    separate_by_start,
    starts_agree,
    summarise,
    with_observed_start,
)

pa = pytest.importorskip("pyarrow")


def write(tmp_path, text, name="table.csv", encoding="utf-8"):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode(encoding))
    return path


def table(header, num=3, steps=4, delimiter=","):
    """Rows of `num` trajectories for a header whose names after | say what a column holds."""
    names, kinds = zip(*(part.split("|") for part in header.split(",")), strict=True)
    rng = np.random.default_rng(0)
    rows = [delimiter.join(names)]
    for i in range(num):
        for j in range(steps):
            made = {
                "label": f"r{i}",
                "whole": f"{i + 3}",
                "two": "ab"[i % 2],
                "t": f"{0.5 * j}",
                "y": f"{rng.normal():.6f}",
                "drive": f"{np.sin(j):.3f}",
                "setting": f"{0.1 * (i + 1):.1f}",
                "one": "7.5",
                "count": f"{i * steps + j}",
                "restart": f"{j + 1}",
                "word": f"note {j}",
                "stamp": f"2024-05-01T12:00:{j:02d}.25",
                "empty": "",
            }
            rows.append(delimiter.join(made[kind] for kind in kinds))
    return "\n".join(rows) + "\n"


# Guessing


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("id|whole,t|t,x|y,v|y", Columns("id", "t", (), ("x", "v"), ())),
        ("Run|label,Time [s]|t,Force (kN)|y,Displacement|y",
         Columns("Run", "Time [s]", ("Force (kN)",), ("Displacement",), ())),
        ("|count,subject|label,time_ms|t,dose|y,response|y",
         Columns("subject", "time_ms", ("dose",), ("response",), ())),
        ("Unnamed: 0|count,RunID|label,t_s|t,k|setting,x|y", Columns("RunID", "t_s", ("k",), ("x",), ())),
        ("test|label,specimen|two,time|t,strain|y,stress|y,note|word",
         Columns("test", "time", ("strain",), ("stress",), (), None, "specimen")),
        ("patient|label,treatment|two,hours|t,concentration|y",
         Columns("patient", "hours", (), ("concentration",), (), "treatment")),
        ("experiment|whole,protocol|two,T [°C]|y,time|t,u1|drive,u2|drive,y|y",
         Columns("experiment", "time", ("u1", "u2"), ("T [°C]", "y"), (), "protocol")),
        ("sample|restart,curve_no|whole,elapsed time/s|t,applied_load|y,temp_C|one,y|y",
         Columns("curve_no", "elapsed time/s", ("applied_load",), ("y",), ())),
        ("device|label,timestamp|stamp,voltage|y,temperature|setting",
         Columns("device", "timestamp", ("temperature",), ("voltage",), ())),
        ("traj|label,step|restart,a|y,b|y", Columns("traj", "step", (), ("a", "b"), ())),
        ("trajectory|label,time|t,x:f|drive,y:a|y,z|y,h0:0|setting,condition|two,unit|label",
         Columns("trajectory", "time", ("x:f",), ("y:a",), ("h0:0",), "condition", "unit")),
    ],
)  # fmt: skip
def test_realistic_headers(tmp_path, header, expected):
    reading = read_data(write(tmp_path, table(header)))
    assert reading.columns == expected
    assert reading.data.num_trajectories == 3 and reading.data.num_times == 4
    assert list(reading.reasons)[:7] == list(Columns._fields)
    # The columns found, given back, give the same data.
    assert_same(read_data(tmp_path / "table.csv", reading.columns).data, reading.data)


def test_reasons_and_what_is_left_out(tmp_path):
    path = write(tmp_path, table("id|whole,t|t,k|setting,u|y,x|y,v|y,c|one,note|word,index|count,void|empty"))
    reading = read_data(path)
    assert reading.reasons["trajectory"] == "column 'id', by its name"
    assert reading.reasons["outputs"] == "all other numeric columns: x, v"
    assert reading.reasons["inputs"] == "by name: u; constant within each trajectory: k"
    left_out = {"c": "constant, 7.5 everywhere", "note": "text", "index": "row numbers", "void": "empty"}
    assert reading.table_facts["left_out"] == left_out
    given = read_data(path, Columns(inputs=("x",), outputs=("c",)))
    assert given.reasons["inputs"] == given.reasons["outputs"] == "given"
    assert given.data.input_names == ("x",) and given.data.output_names == ("c",)
    assert given.table_facts["left_out"]["u"] == "not among the named ones"


def test_what_is_given_wins(tmp_path):
    path = write(tmp_path, table("id|whole,t|t,u|y,x|y,rough|word"))
    assert load_data(path, inputs=()).output_names == ("u", "x")
    assert load_data(path, outputs=["u"]).output_names == ("u",)
    assert load_data(path, outputs=["u"], time="t", trajectory="id").input_names == ()
    assert load_data(path, inputs="x").output_names == ("u",)


def test_a_bad_column_that_nobody_asked_for_is_no_fault(tmp_path):
    path = write(tmp_path, "id,t,x,z\n1,0,1,1\n1,1,2,bad\n2,0,3,3\n2,1,4,5\n")
    refused("column 'z' must hold numbers; row 3 has 'bad'", load_data, path)
    assert read_data(path, Columns(outputs=("x",))).table_facts["left_out"] == {"z": "text in some cells"}


def test_columns_named_like_inputs_are_outputs_if_there_are_no_others(tmp_path):
    data = load_data(write(tmp_path, table("id|whole,t|t,temperature|y")))
    assert data.output_names == ("temperature",) and data.num_inputs == 0


def test_a_condition_by_name_must_not_spoil_a_table(tmp_path):
    path = write(tmp_path, table("id|whole,t|t,group|two,u|y,x|y"))
    reading = read_data(path)
    assert reading.columns.condition is None and reading.data.num_conditions == 3
    assert "not column 'group'" in reading.reasons["condition"]
    refused("share times and inputs", load_data, path, condition="group")


def test_of_two_trajectory_columns_the_one_that_fits_the_times_is_taken(tmp_path):
    text = "trial,id,t,x\n" + "".join(f"{i % 2},{i},{j},{i * j + j}\n" for i in range(4) for j in range(3))
    assert read_data(write(tmp_path, text)).columns.trajectory == "id"


# Sources


def test_csv_with_semicolons_decimal_commas_and_a_western_code_page(tmp_path):
    text = "Versuch;Zeit [s];Weg [µm]\r\nA;0;1,5\r\nA;0,5;-2,25e1\r\nB;0;3\r\nB;0,5;\r\n"
    path = write(tmp_path, text, encoding="cp1252")
    reading = read_data(path, Columns(time="Zeit [s]", trajectory="Versuch"))
    np.testing.assert_array_equal(reading.data.times, [[0, 0.5]] * 2)
    np.testing.assert_array_equal(reading.data.outputs[..., 0], [[1.5, -22.5], [3, 0]])
    assert reading.data.output_names == ("Weg [µm]",) and "decimal comma" in reading.reasons["numbers"]
    refused("same decimal sign; row 3 has '1.234'", load_data, write(tmp_path, "t;x\n0;1,5\n1;1.234\n"))


def test_tabs_utf16_and_quotes(tmp_path):
    plain = load_data(write(tmp_path, table("id|whole,t|t,x|y")))
    tabs = table("id|whole,t|t,x|y", delimiter="\t")
    assert_same(load_data(write(tmp_path, tabs, "table.tsv")), plain)
    assert_same(load_data(write(tmp_path, tabs, encoding="utf-16")), plain)
    quoted = "\n".join(",".join(f'"{cell}"' for cell in line.split("\t")) for line in tabs.split("\n") if line)
    assert_same(load_data(write(tmp_path, quoted)), plain)


def test_a_folder_is_one_trajectory_a_file_in_natural_order(tmp_path):
    for number in (10, 2, 1):
        body = f"time,x,condition,unit\n0,{number},c,s{number}\n1,{number + 0.5},c,s{number}\n"
        write(tmp_path, body, f"runs/run{number}.csv")
    write(tmp_path, "not data", "runs/readme.txt")
    reading = read_data(tmp_path / "runs")
    np.testing.assert_array_equal(reading.data.outputs[..., 0], [[1, 1.5], [2, 2.5], [10, 10.5]])
    assert reading.data.unit_names == ("s1", "s10", "s2") and reading.data.num_conditions == 1
    assert reading.columns.trajectory is None and reading.table_facts["files"] == 3
    assert reading.reasons["trajectory"] == "one file per trajectory, named after it"


def test_a_folder_with_several_trajectories_a_file(tmp_path):
    for name in ("a", "b"):
        write(tmp_path, "run,t,x\n1,0,1\n1,1,2\n2,0,3\n2,1,4\n", f"runs/{name}.csv")
    reading = read_data(str(tmp_path / "runs"))
    assert reading.data.unit_names == ("a/1", "a/2", "b/1", "b/2")


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ({"a.csv": "t,x\n0,1\n", "b.csv": "t,z\n0,1\n"}, "'b.csv' lacks 'x' and adds 'z' compared with 'a.csv'"),
        ({"a.csv": "t,x\n0,1\n", "b.csv": " \n"}, "'b.csv' is empty"),
        ({"a.csv": "t,x\n0,1\n", "b.csv": "t,x\n0,1\n1\n"}, "b.csv: every row must have 2 cells; row 3 has 1"),
        ({"a.csv": "t,x\n0,1\n", "b.csv": "t,x\n0,1\n1,q\n"}, "column 'x' must hold numbers; b.csv row 3 has 'q'"),
        ({"a.csv": "t,x\n0,1\n", "b.csv": "t,x\n1,1\n0,2\n"}, "b.csv row 3 has 0 after 1 in trajectory 'b'"),
        ({"a.csv": "t,x\n0,1\n", "a.tsv": "t\tx\n0\t1\n"}, "'a.csv' and 'a.tsv'; rename"),
        ({"a.csv": 't,x\n0,"1\n'}, "a.csv: unexpected end"),
        ({"a.txt": "t,x\n0,1\n"}, "must hold .csv or .tsv files, one per trajectory; found 'a.txt'"),
    ],
)
def test_a_folder_refuses(tmp_path, files, match):
    for name, text in files.items():
        write(tmp_path, text, f"runs/{name}")
    refused(match, load_data, tmp_path / "runs")


def as_parquet(path, columns):
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)
    return path


def test_parquet_of_all_types(tmp_path):
    stamps = np.array(["2024-05-01T00:00:00", "2024-05-01T00:00:01.5"] * 2, dtype="datetime64[ns]")
    columns = {
        "run": pa.array(["b", "b", "a", "a"]).dictionary_encode(),
        "when": stamps,
        "level": pa.array([1, 1, 2, 2], pa.int16()),
        "x": pa.array([0.1, None, 0.3, 0.4]),
        "on": pa.array([True, False, True, True]),
        "nested": pa.array([[1], [2], [3], [4]]),
    }
    reading = read_data(as_parquet(tmp_path / "a.parquet", columns), Columns(time="when"))
    np.testing.assert_array_equal(reading.data.times, [[0, 1.5]] * 2)
    np.testing.assert_array_equal(reading.data.outputs[..., 0], [[0.1, 0], [0.3, 0.4]])
    assert reading.data.input_names == ("level",) and reading.data.output_names == ("x", "on")
    assert reading.data.unit_names == ("a", "b") and not reading.data.mask[0, 1, 0]
    assert "nested" in reading.table_facts["left_out"] and "time stamps" in reading.reasons["time"]


def test_parquet_equals_csv(tmp_path):
    save_data(crossed(), tmp_path / "a.csv")
    import pandas as pd

    pd.read_csv(tmp_path / "a.csv").to_parquet(tmp_path / "a.pq")
    assert_same(load_data(tmp_path / "a.pq"), crossed())


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = as_parquet(tmp_path / "a.parquet", {"t": [0.0, 1.0], "x": [1.0, 2.0]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused("pip install pyarrow", load_data, path)


def test_time_stamps_are_seconds_since_the_first_row(tmp_path):
    text = (
        "id,date,x\n1,2024-02-28T23:59:59Z,1\n1,2024-02-29T02:00:00.5+02:00,2\n2,2025-01-01 00:00,3\n2,2025-01-02,4\n"
    )
    reading = read_data(write(tmp_path, text))
    np.testing.assert_array_equal(reading.data.times, [[0, 1.5], [0, 86400]])
    assert reading.reasons["time"].startswith("column 'date', by its name; time stamps, converted to seconds")
    refused("ISO-8601.*row 3 has '1/2/24'", load_data, write(tmp_path, "date,x\n2024-01-01,1\n1/2/24,2\n"))
    refused("row 2 of column 'date' has '31/31/24'", load_data, write(tmp_path, "date,x\n31/31/24,1\n"))


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_any_scale_loads(tmp_path, scale):
    rows = [f"{i},{j * scale!r},{(i + 1) * (j + 1.5) * scale!r}" for i in range(3) for j in range(4)]
    reading = read_data(write(tmp_path, "id,t,x\n" + "\n".join(rows)))
    assert reading.columns.outputs == ("x",) and reading.data.outputs[2, 3, 0] == 3 * 4.5 * scale
    check_fittable(reading.data)
    assert summarise(reading)["outputs"][0]["max"] == 13.5 * scale


# What is said of a bad table


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("id,t,x\n1,0,1\n", {"outputs": ["y"]}, r"column 'y' must be in the file \(--outputs\); .* did you mean 'x'"),
        ("id,u,x\n1,0,1\n", {}, "none of 'id', 'u', 'x' looks like one; name it with --time NAME"),
        ("t,x\n0,1\n1,2\n0,3\n", {}, "row 4 has 0 after 1; if there are several .* --trajectory NAME, else sort"),
        ("who,t,x\na,0,1\na,0,2\nb,0,3\nb,1,4\n", {}, "row 3 has 0 after 0; if there are several"),
        ("id,t,x\n1,0,1\n1,0,2\n", {}, "row 3 has 0 after 0"),
        ("id,t,x\n1,0,1\n1,1,2\n2,0,3\n2,0,4\n", {}, "row 5 has 0 after 0 in trajectory '2'"),
        ("id,t,x\n1,0,1\n1,inf,2\n", {}, "times must be finite; row 3 has inf"),
        ("id,t,x\n1,0,1\n1,,2\n", {}, "column 't' is empty in row 3"),
        ("id,t,u,x\n1,0,1,1\n1,1,,2\n1,2,2,3\n", {}, "inputs must be known.*column 'u' has nothing in row 3"),
        ("id,t,x\n1,0,1\n1,1,-inf\n", {}, "column 'x' has -inf in row 3"),
        (
            "id,t,x\n1,0,7\n1,1,7\n",
            {},
            "among 'id', 't', 'x' .'x' is constant, 7 everywhere.; name them with --outputs",
        ),
        ("id,t,x\n,0,7\n1,1,7\n", {"trajectory": "id"}, "column 'id' must be filled in every row; row 2"),
        ("0,1,2\n1,2,3\n", {}, "first row must hold the names.*add a row of names"),
        ("t,x\n\n0,1\n\n1,oops\n2,3\n", {}, "row 5 has 'oops'"),
    ],
)
def test_refuses(tmp_path, text, options, match):
    refused(match, load_data, write(tmp_path, text), **options)


def test_an_error_carries_what_was_understood(tmp_path):
    path = write(tmp_path, "id,t,x,c\n1,0,1,5\n1,0,,5\n1,0,3,5\n2,0,1,5\n")
    with pytest.raises(DataError, match="after 0") as caught:
        read_data(path, Columns(outputs=("x", "c")))
    facts = caught.value.facts
    assert (facts["rows"], facts["trajectories"], facts["duplicated_times"], facts["missing_cells"]) == (4, 2, 2, 1)
    assert facts["constant_columns"] == ["c"] and facts["columns"]["trajectory"] == "id"
    json.dumps(facts)
    assert DataError("plain").facts == {}


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".npz", ".nc", ".csv", ".tsv"])
def test_empty_cut_foreign_and_garbled_files(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    columns = {
        "id": np.repeat([1, 2], 50),
        "t": np.tile(np.arange(50.0), 2),
        "x": np.random.default_rng(0).normal(size=100),
    }
    wholes = [
        as_parquet(tmp_path / "whole.parquet", columns).read_bytes(),
        b"\x89HDF\r\n\x1a\n" + bytes(90),
        b"CDF\x01",
    ]
    wholes += [b"PK\x03\x04" + bytes(50), b"PAR1" + bytes(40) + b"PAR1", b"", b"\xff\xfe\x00", b'"a\nb', bytes(300)]
    contents = wholes + [wholes[0][:cut] for cut in (3, 40, len(wholes[0]) // 2, len(wholes[0]) - 3)]
    rng = np.random.default_rng(1)
    for position in rng.integers(4, len(wholes[0]) - 4, size=30):
        contents.append(wholes[0][:position] + b"\xff" + wholes[0][position + 1 :])
    for content in contents:
        path.write_bytes(content)
        try:
            load_data(path)
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            assert suffix in (".parquet", ".pq")


def test_what_is_no_file_is_refused():
    refused("readable file", load_data, "/dev/null.csv")
    refused("must end in", load_data, "/dev/zero")
    refused("readable file", load_data, "nul\0byte.csv")


def test_arrays_too_large_to_pad_are_refused(tmp_path):
    import pyarrow.parquet as pq

    num = 200_000
    labels = np.append(np.zeros(num, dtype=int), np.arange(num))
    columns = {
        "id": labels,
        "t": np.append(np.arange(num), np.full(num, num)),
        "x": np.random.default_rng(0).normal(size=2 * num),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    refused("thin out or cut up", load_data, tmp_path / "a.parquet")


# New inputs


def test_outputs_may_be_absent_for_a_prediction(tmp_path):
    columns = read_data(write(tmp_path, table("id|whole,t|t,u|y,x|y,v|y"))).columns
    new = write(tmp_path, table("id|whole,t|t,u|y,x|y"), "new.csv")
    refused("column 'v' must be in the file", read_data, new, columns)
    data = read_data(new, columns, outputs_may_be_absent=True).data
    assert data.output_names == ("x", "v") and data.mask[..., 0].all() and not data.mask[..., 1].any()
    blank = write(tmp_path, table("id|whole,t|t,u|y"), "blank.csv")
    data = read_data(blank, columns, outputs_may_be_absent=True).data
    refused("the start of a trajectory must be known; output 'x'", with_observed_start, data)
    np.savez(tmp_path / "new.npz", t=np.arange(3.0), u=np.ones((2, 3)))
    arrays = read_data(tmp_path / "new.npz", columns._replace(trajectory=None), outputs_may_be_absent=True).data
    assert arrays.mask.shape == (2, 3, 2) and not arrays.mask.any()


# Foreign arrays


def test_variables_are_guessed(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"Time": np.arange(4.0), "state": rng.normal(size=(3, 4, 2)), "q": rng.normal(size=(3, 4))}
    arrays |= {"force": rng.normal(size=(3, 4)), "k": np.array([1.0, 2.0, 3.0]), "specimen": np.array(["a", "b", "a"])}
    arrays |= {
        "shared": np.arange(4.0) ** 2,
        "x0": rng.normal(size=(3, 2)),
        "version": np.array(3),
        "text": np.array(["a"]),
    }
    np.savez(tmp_path / "a.npz", **arrays)
    reading = read_data(tmp_path / "a.npz")
    expected = Columns(None, "Time", ("force", "k", "shared"), ("state", "q"), ("x0",), None, "specimen")
    assert reading.columns == expected and set(reading.table_facts["left_out"]) == {"version", "text"}
    assert reading.data.output_names == ("state_0", "state_1", "q") and reading.data.unit.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(reading.data.inputs[1, 2], [arrays["force"][1, 2], 2.0, 4.0])
    np.testing.assert_array_equal(reading.data.initial, arrays["x0"])
    assert_same(read_data(tmp_path / "a.npz", reading.columns).data, reading.data)


def test_a_mask_is_used_and_what_it_shows_must_be_finite(tmp_path):
    y = np.array([[1.0, 2.0, np.nan], [4.0, 5.0, 6.0]])
    np.savez(tmp_path / "a.npz", t=np.arange(3.0), y=y, mask=np.isfinite(y))
    assert load_data(tmp_path / "a.npz").mask.sum() == 5
    np.savez(tmp_path / "a.npz", t=np.arange(3.0), y=y, mask=np.ones((2, 3), dtype=bool))
    refused(
        "observed outputs must be finite; trajectory 0 has nan in output 0 at index 2", load_data, tmp_path / "a.npz"
    )
    np.savez(tmp_path / "a.npz", y=y)
    refused("--time NAME", load_data, tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", t=np.arange(3.0), z=y[:, :2])
    refused("outputs must be numbers over .trajectory, time., here .1, 3.; none found", load_data, tmp_path / "a.npz")
    refused("variable 'z' must be over", load_data, tmp_path / "a.npz", outputs=["z"])


@pytest.mark.parametrize("engine", ["scipy", "h5netcdf"])
def test_netcdf_axes_are_known_by_name(tmp_path, engine):
    pytest.importorskip(engine)
    import xarray as xr

    y = np.arange(6.0).reshape(2, 3)
    variables = {"y": (("time", "run"), y.T), "mask": (("run", "time"), y != 4)}
    xr.Dataset(variables, coords={"time": np.arange(3.0)}).to_netcdf(tmp_path / "a.nc", engine=engine)
    data = load_data(tmp_path / "a.nc")
    np.testing.assert_array_equal(data.outputs[..., 0], [[0, 1, 2], [3, 0, 5]])
    assert data.mask.sum() == 5


# Fit for learning


def test_data_that_cannot_be_learned_from():
    refused(
        "at least 2 trajectories, .* cut into windows; found one trajectory; add more", check_fittable, grid_data(1)
    )
    check_fittable(grid_data(2))
    check_fittable(grid_data(3))
    check_fittable(crossed())
    refused(r"at least 2 time points; trajectory 2 \('b'\) has 1", check_fittable, ragged())
    outputs = np.random.default_rng(0).normal(size=(4, 5, 2))
    outputs[1] = np.nan
    refused(
        "at least one observed output; trajectory 1 has none", check_fittable, Dataset.from_arrays(range(5), outputs)
    )
    outputs[1, 2] = 1.0
    refused("2 observed time points; trajectory 1 has 1", check_fittable, Dataset.from_arrays(range(5), outputs))
    outputs[1] = outputs[0]
    flat = outputs.copy()
    flat[..., 1] = 0.3 + 1e-17 * flat[..., 0]
    refused("'y1' is 0.3 in every observation; leave it out with --outputs", check_fittable,
            Dataset.from_arrays(range(5), flat))  # fmt: skip
    outputs[..., 1] = np.nan
    refused("'y1' never is", check_fittable, Dataset.from_arrays(range(5), outputs))


# Starts


def test_the_first_readings_become_the_start():
    outputs = np.array([[[1.0, np.nan], [2.0, 3.0], [4.0, 5.0]], [[6.0, np.nan]] * 3, [[7.0, 8.0]] * 3])
    data = with_observed_start(Dataset.from_arrays(range(3), outputs))
    np.testing.assert_array_equal(data.initial, [[1.0, 3.0], [6.0, 5.5], [7.0, 8.0]])
    np.testing.assert_array_equal(data.mask[0], [[False, False], [True, False], [True, True]])
    np.testing.assert_array_equal(data.mask[1], [[False, False], [True, False], [True, False]])
    assert with_observed_start(data) is data
    empty = with_observed_start(grid_data(2).select([]))
    assert empty.initial is not None and empty.initial.shape == (0, 1)


def test_starts_that_agree_and_that_do_not():
    rng = np.random.default_rng(0)
    outputs = np.cumsum(rng.normal(size=(6, 40)), axis=1)
    near = np.concatenate([0.01 * rng.normal(size=(6, 1)), outputs], axis=1)
    far = near + np.arange(6.0)[:, None] * 5
    assert starts_agree(Dataset.from_arrays(np.arange(41.0), near))
    assert not starts_agree(Dataset.from_arrays(np.arange(41.0), far))
    assert starts_agree(Dataset.from_arrays(np.arange(41.0), far), tolerance=10)
    apart = separate_by_start(Dataset.from_arrays(np.arange(41.0), far))
    assert apart.num_conditions == 6 and starts_agree(apart)
    assert starts_agree(Dataset.from_arrays([0.0, 1.0], np.ones((3, 2))))


# Summary


def test_summary_of_a_table(tmp_path):
    text = "id,t,u,x,note\n" + "".join(
        f"{i},{j * 0.5},{j},{'' if i == j == 1 else i + j},n\n" for i in range(3) for j in range(i + 2)
    )
    facts = summarise(read_data(write(tmp_path, text)))
    assert (facts["trajectories"], facts["conditions"], facts["units"], facts["rows"]) == (3, 3, 3, 9)
    assert facts["lengths"] == {"min": 2, "median": 3.0, "max": 4} and facts["steps"]["max"] == 0.5
    assert facts["time"] == {"min": 0.0, "max": 1.5} and facts["replicates"]["max"] == 1
    assert not facts["common_times"] and facts["left_out"] == {"note": "text"} and facts["duplicated_times"] == 0
    (column,) = facts["outputs"]
    seen = [0, 1, 1, 3, 2, 3, 4, 5]
    assert (column["name"], column["missing"], column["constant"]) == ("x", 1, False)
    np.testing.assert_allclose([column["mean"], column["std"]], [np.mean(seen), np.std(seen)], rtol=1e-12)
    np.testing.assert_allclose([column["missing_percent"], facts["missing_percent"]], 100 / 9, rtol=1e-12)
    assert facts["inputs"][0]["max"] == 3.0 and facts["columns"]["outputs"] == ["x"]
    json.dumps(facts, allow_nan=False)


def test_summary_of_data_and_of_nothing():
    data = dataclasses.replace(per_condition(2), mask=np.zeros((4, 3, 1), dtype=bool))
    facts = summarise(data)
    assert facts["outputs"][0]["mean"] is None and facts["missing_cells"] == 12 and facts["missing_percent"] == 100.0
    assert facts["replicates"] == {"min": 2, "median": 2.0, "max": 2} and facts["common_times"]
    assert summarise(grid_data(3, inputs=np.ones((1, 3))))["constant_columns"] == ["x0"]
    for values in (crossed(), ragged(), grid_data(1, num_times=1), grid_data(1).select([])):
        json.dumps(summarise(values), allow_nan=False)


def test_our_own_files_say_what_they_hold(tmp_path):
    save_data(crossed(), tmp_path / "a.nc")
    reading = read_data(tmp_path / "a.nc")
    assert reading.columns == Columns() and set(reading.reasons) == set(Columns._fields)
    assert summarise(reading)["rows"] == 55
