"""Data files: exact round trips, files not written by Langenode, and messages about damaged ones."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

from datasets import assert_same, crossed, grid_data, per_condition, ragged, refused
from langenode.data import DataError, Dataset, load_data, save_data

SUFFIXES = (".nc", ".npz", ".csv")


@pytest.mark.parametrize("suffix", [".nc", ".npz", ".NPZ"])
@pytest.mark.parametrize("make", [crossed, ragged, lambda: grid_data(1, num_times=1), lambda: per_condition(3)])
def test_round_trip_is_exact(tmp_path, suffix, make):
    data = make()
    path = tmp_path / f"data{suffix}"
    save_data(data, path)
    again = load_data(str(path))
    assert_same(again, data)
    assert again.units == data.units and list(again.attributes) == list(data.attributes)
    for name, values in data.attributes.items():
        np.testing.assert_array_equal(again.attributes[name], values)
        assert again.attributes[name].shape == values.shape
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("make", [crossed, ragged, lambda: grid_data(1, num_times=1), lambda: per_condition(11)])
def test_csv_round_trip_keeps_names_and_numbers(tmp_path, make):
    data = make()
    save_data(data, tmp_path / "data.csv")
    assert_same(load_data(tmp_path / "data.csv"), data)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_extreme_numbers_and_odd_names_survive(tmp_path, suffix):
    values = np.array([[0.1 + 0.2, 5e-324, -1.7976931348623157e308, 1 / 3, -0.0, 123456789.123456789]])
    name = 'a "b", c/ü:é'
    data = Dataset.from_arrays(values.cumsum() * 0 + np.arange(6) / 3, values, output_names=(name,), unit=["NA"])
    save_data(data, tmp_path / f"data{suffix}")
    again = load_data(tmp_path / f"data{suffix}")
    assert again.outputs.tobytes() == data.outputs.tobytes() and again.times.tobytes() == data.times.tobytes()
    assert again.output_names == (name,) and again.unit_names == ("NA",)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_damaged_file_is_a_data_error(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    save_data(crossed(), path)
    whole = path.read_bytes()
    cuts = [0, 1, 3, 5, 20, len(whole) // 4, len(whole) // 2, len(whole) - 200, len(whole) - 9]
    # A cut in a CSV's last line may leave a valid, smaller table.
    for cut in cuts[:-1] if suffix == ".csv" else cuts:
        path.write_bytes(whole[:cut])
        try:
            data = load_data(path)
        except DataError as error:
            assert str(path) in str(error) and "\n" not in str(error)
        else:
            pytest.fail(f"cut at {cut} of {len(whole)} gave {data}")
    path.write_bytes(b"\x00\xff garbage \n\n" * 50)
    refused(str(path), load_data, path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_flipped_bytes_give_a_data_error_or_a_data_set(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    save_data(per_condition(2), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(5)
    for position in rng.integers(0, len(whole), size=40):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        try:
            load_data(path)
        except DataError as error:
            assert "\n" not in str(error)


def test_unknown_suffix_missing_file_and_folder(tmp_path):
    refused(
        "must end in .nc, .npz, .csv, .tsv, .txt, .dat, .parquet, .pq; found 'a.xlsx'", load_data, tmp_path / "a.xlsx"
    )
    refused("must end in", save_data, grid_data(1), tmp_path / "a")
    refused("No such file", load_data, tmp_path / "a.csv")
    (tmp_path / "folder.csv").mkdir()
    refused("a data folder must hold .csv or .tsv files.*found nothing", load_data, tmp_path / "folder.csv")
    refused("must be writable", save_data, grid_data(1), tmp_path / "no" / "a.npz")
    refused("must be writable", save_data, grid_data(1), tmp_path / "no" / "a.nc")
    refused("must be writable", save_data, grid_data(1), tmp_path / "no" / "a.csv")
    refused("none to write", save_data, grid_data(1).select([]), tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_write_leaves_the_earlier_file(tmp_path, suffix, monkeypatch):
    import pandas as pd
    from scipy.io import netcdf_file

    path = tmp_path / f"data{suffix}"
    save_data(grid_data(1), path)
    before = path.read_bytes()

    def fail(*args, **options):
        raise OSError("disk full")

    for owner, name in ((np, "savez_compressed"), (netcdf_file, "flush"), (pd.DataFrame, "to_csv")):
        monkeypatch.setattr(owner, name, fail)
    refused("disk full", save_data, crossed(), path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def write_csv(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_with_named_columns(tmp_path):
    path = write_csv(
        tmp_path,
        "test,t [s],load,disp,specimen,note\nB,0,1.0,0.5,s2,x\nA,0,1.0,,s1,x\nB,1,2.0,0.75,s2,x\nA,1,2.0,0.25,s1,x\n",
    )
    data = load_data(path, trajectory="test", time="t [s]", inputs=["load"], outputs="disp", unit="specimen")
    np.testing.assert_array_equal(data.outputs[..., 0], [[0.5, 0.75], [0.0, 0.25]])
    np.testing.assert_array_equal(data.mask[..., 0], [[True, True], [False, True]])
    assert data.num_conditions == 1 and data.input_names == ("load",) and data.output_names == ("disp",)
    assert data.unit_names == ("s1", "s2") and data.unit.tolist() == [1, 0]


def test_csv_of_one_trajectory_with_byte_order_mark_and_windows_lines(tmp_path):
    path = write_csv(tmp_path, "\ufefftime,y:a\r\n0,1\r\n1,NaN\r\n2,3\r\n\r\n")
    data = load_data(path)
    np.testing.assert_array_equal(data.outputs[0, :, 0], [1, 0, 3])
    assert data.num_trajectories == 1 and data.output_names == ("a",)


def test_csv_replicates_of_a_condition_go_on_the_union(tmp_path):
    path = write_csv(tmp_path, "trajectory,time,y:a,condition\n0,0,1,c\n0,2,2,c\n1,0,3,c\n1,1,4,c\n")
    data = load_data(path)
    np.testing.assert_array_equal(data.times, [[0, 1, 2]] * 2)
    assert data.num_conditions == 1 and data.mask.sum() == 4


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("", {}, "the file is empty"),
        ("\n \n", {}, "the file is empty"),
        ("time,y:a\n", {}, "rows below its header"),
        ("tme,y:a\n0,1\n", {}, "none of 'tme', 'y:a' looks like one; name it with --time NAME"),
        ("time,stress\n0,low\n", {}, "none left among 'time', 'stress' .'stress' is text.; name them with --outputs"),
        ("time,stress\n0,1\n", {"outputs": ["stres"]}, "did you mean 'stress'"),
        ("time,y:a\n0,1\n", {"condition": "load"}, "column 'load' must be"),
        ("time,y:a\n0,1\n1,high\n", {}, "column 'y:a' must hold numbers; row 3 has 'high'"),
        ("time,y:a\n0,1\n1,1_000\n", {}, "row 3 has '1_000'"),
        ("time,y:a\n0,1\n1,True\n", {}, "row 3 has 'True'"),
        ("time,y:a\n0,1\n,2\n", {}, "increase strictly"),
        ("time,y:a\n0,1\n0,2\n", {}, "increase strictly"),
        ("time,y:a\n1,1\n0,2\n", {}, "increase strictly"),
        ("time,y:a\n0,inf\n", {}, "observed outputs must be finite"),
        ("time,x:u,y:a\n0,1,2\n1,,2\n", {}, "inputs must be known at every time"),
        ("time,y:a,y:a\n0,1,2\n", {}, "column names must differ"),
        ("time,y:a,x:u\n0,1,2\n1,2\n", {}, "every row must have 3 cells; row 3 has 2"),
        ("time,y:a,x:u\n0,1,2\n1\n", {}, "row 3 has 1"),
        ("time,y:a\n0,1,2\n", {}, "row 2 has 3"),
        ("time,y:a,unit\n0,1,\n", {}, "column 'unit' must be filled in every row; row 2"),
        ("time,y:a,condition\n0,1,c\n1,1,d\n", {}, "'condition' must be the same .* trajectory '0'"),
        ("time,y:a,h0:0\n0,1,5\n1,1,6\n", {}, "'h0:0' must be the same"),
    ],
)
def test_csv_refuses(tmp_path, text, options, match):
    path = write_csv(tmp_path, text)
    refused(match, load_data, path, **options)


def test_foreign_npz_by_variable_names(tmp_path):
    path = tmp_path / "other.npz"
    t, u, y = np.arange(3.0), np.array([1.0, 2.0, 3.0]), np.arange(6.0).reshape(2, 3)
    np.savez(path, t=t, u=u, y=y, z=2 * y, h=np.array([5.0, 6.0]), who=np.array(["b", "a"]))
    data = load_data(path, time="t", inputs="u", outputs=["y", "z"], initial=["h"], unit="who")
    np.testing.assert_array_equal(data.outputs[..., 1], 2 * y)
    np.testing.assert_array_equal(data.inputs[..., 0], [u, u])
    np.testing.assert_array_equal(data.initial, [[5.0], [6.0]])
    assert data.unit.tolist() == [1, 0]
    guessed = load_data(path)
    assert guessed.input_names == ("u", "h") and guessed.output_names == ("y", "z")
    refused("did you mean 'who'", load_data, path, time="t", outputs=["y"], unit="whom")
    refused("first axis", load_data, path, trajectory="who", outputs=["y"])


def test_npz_with_pickled_objects_is_refused(tmp_path):
    np.savez(tmp_path / "bad.npz", time=np.arange(2.0), y=np.array([[{}, {}]], dtype=object))
    refused("pickle", load_data, tmp_path / "bad.npz", outputs=["y"])


def test_our_file_refuses_named_columns_and_a_later_format(tmp_path):
    path = tmp_path / "data.npz"
    save_data(grid_data(1), path)
    refused("name none", load_data, path, outputs=["y0"])
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays["langenode"])) | {"format": 2}
    np.savez(path, allow_pickle=False, **(arrays | {"langenode": np.array(json.dumps(header))}))
    refused("found 2; update langenode", load_data, path)


def test_netcdf_3_is_readable_by_others(tmp_path):
    import xarray as xr

    data = crossed()
    save_data(data, tmp_path / "data.nc")
    assert (tmp_path / "data.nc").read_bytes().startswith(b"CDF\x02")
    opened = xr.load_dataset(tmp_path / "data.nc", engine="scipy")
    np.testing.assert_array_equal(opened["outputs"].sel(out="stress"), data.outputs[..., 0])
    assert opened["attribute_0"].attrs["long_name"] == "W"


def test_netcdf_4_where_h5netcdf_is_present(tmp_path, monkeypatch):
    pytest.importorskip("h5netcdf")
    import xarray as xr

    path = tmp_path / "other.nc"
    y = np.arange(6.0).reshape(2, 3)
    xr.Dataset({"time": ("time", np.arange(3.0)), "y": (("traj", "time"), y)}).to_netcdf(path, engine="h5netcdf")
    np.testing.assert_array_equal(load_data(path, outputs=["y"]).outputs[..., 0], y)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused("pip install h5netcdf", load_data, path, outputs=["y"])


def test_import_is_light():
    code = "import sys, langenode.data; print([m for m in ('pandas', 'xarray', 'scipy.io') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
