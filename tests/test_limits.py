"""Readers have limits: what a small file declares is compared with them before anything is read."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from langenode.data import hdf5, limits, load_data, read_data, save_data
from test_data import grid_data, refused

REAL = Path(hdf5.__file__)


def write_parquet(path, columns, **options):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path, **options)


# Tables


def test_a_small_parquet_file_of_thirty_million_rows(tmp_path):
    path = tmp_path / "long.parquet"
    write_parquet(path, {"t": np.zeros(30_000_000, np.int8), "y": np.zeros(30_000_000, np.int8)})
    assert path.stat().st_size < 300_000
    refused("at most 25000000 rows; found 30000000; thin it out", load_data, path)


def test_a_long_text_that_every_row_repeats(tmp_path):
    """Written once in the file, and stored once; a copy per row would be 100 GB."""
    import pyarrow as pa

    path = tmp_path / "text.parquet"
    words = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, np.int32), pa.array(["x" * 100_000]))
    write_parquet(path, {"t": np.arange(1_000_000.0), "y": np.arange(1_000_000.0), "note": words})
    assert path.stat().st_size < 40_000_000
    reading = read_data(path)
    assert reading.table_facts["left_out"] == {"note": "text"} and reading.data.output_names == ("y",)


def test_more_letters_than_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("langenode.data.parquetfiles.MOST_LETTERS", 20)
    path = tmp_path / "text.parquet"
    write_parquet(path, {"t": np.arange(9.0), "y": np.arange(9.0), "note": [f"note {i}" for i in range(9)]})
    refused("at most 20 letters", load_data, path)


def test_columns_that_cannot_be_read_are_not_read(tmp_path):
    import pyarrow as pa

    path = tmp_path / "odd.parquet"
    columns = {
        "t": np.arange(4.0),
        "y": np.arange(4.0) ** 2,
        "note": pa.array(["a", "a", None, "b"]).dictionary_encode(),
    }
    columns |= {"list": pa.array([[1]] * 4), "bytes": pa.array([b"\xff"] * 4), "empty": pa.nulls(4)}
    write_parquet(path, columns)
    from langenode.data import read_data

    reading = read_data(path, load_columns(time="t", outputs=("y",)))
    assert {"list", "bytes"} <= set(reading.table_facts["left_out"])
    np.testing.assert_array_equal(reading.data.outputs[0, :, 0], np.arange(4.0) ** 2)


def load_columns(**names):
    from langenode.data import Columns

    return Columns(**names)


def test_twenty_thousand_columns(tmp_path):
    """The check of the names takes one pass, where a count for each would take hours."""
    path = tmp_path / "wide.csv"
    names = [f"c{i}" for i in range(20_000)]
    path.write_text("\n".join([",".join(names), ",".join(["1"] * 20_000)]))
    refused("at most 2000 columns; found 20000; keep the columns you need", load_data, path)
    write_parquet(tmp_path / "wide.parquet", dict.fromkeys(names[:2001], np.zeros(2)))
    refused("at most 2000 columns", load_data, tmp_path / "wide.parquet")
    limits.check_distinct([str(i) for i in range(1_000_000)])
    refused("found '7' more than once", limits.check_distinct, [*map(str, range(1_000_000)), "7"])


@pytest.mark.slow
def test_as_many_columns_as_may_be(tmp_path):
    names = ["t", *(f"c{i}" for i in range(limits.MOST_COLUMNS - 1))]
    rows = [[f"{row}", *(f"{row * i}" for i in range(1, len(names)))] for row in range(3)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(map(",".join, [names, *rows])))
    assert load_data(path).num_outputs == limits.MOST_COLUMNS - 1


def test_more_lines_or_cells_than_can_be_read(tmp_path, monkeypatch):
    path = tmp_path / "long.csv"
    path.write_text("t,y\n" + "\n" * (limits.MOST_ROWS + 1))
    refused("at most 2000000 rows", load_data, path)
    monkeypatch.setattr(limits, "MOST_CELLS", 8)
    path.write_text("t,y\n" + "".join(f"{i},{i * i}\n" for i in range(8)))
    refused("at most 8 cells", load_data, path)


def test_a_file_that_is_larger_than_memory(tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(limits.MOST_BYTES + 1)  # a hole: it takes no space
    refused("at most 1000000000 bytes", load_data, path)
    (tmp_path / "folder").mkdir()
    path.rename(tmp_path / "folder" / "a.csv")
    refused("at most 1000000000 bytes", load_data, tmp_path / "folder")


def test_a_folder_of_too_many_files(tmp_path, monkeypatch):
    for number in range(4):
        (tmp_path / f"{number}.csv").write_text("t,y\n0,1\n1,2\n2,4\n")
    assert load_data(tmp_path).num_trajectories == 4
    monkeypatch.setattr("langenode.data.csvfiles.MOST_FILES", 3)
    refused("at most 3 files; found 4", load_data, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(limits, "MOST_CELLS", 20)
    refused("at most 20 cells; found 24", load_data, tmp_path)


# Arrays


def test_small_archives_that_unpack_to_much(tmp_path):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, t=np.zeros(30_000_000, np.int8), y=np.zeros(3))
    assert path.stat().st_size < 100_000
    refused("at most 20000000 numbers", load_data, path)
    many = {f"a{i}": np.zeros(3_000_000, np.int8) for i in range(7)}
    np.savez_compressed(path, allow_pickle=False, **many)
    refused("at most 20000000 numbers", load_data, path)


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(1000000, 1000000)", "(16000000,)", "(-1,)", "(2.5,)", "'x'"])
def test_an_array_that_declares_more_than_it_has(tmp_path, shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(64)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("t.npy", content)
    (tmp_path / "bad.npz").write_bytes(buffer.getvalue())
    refused("bad.npz", load_data, tmp_path / "bad.npz")


@pytest.mark.parametrize(
    "change",
    [
        *({"empty": {"inputs": [100_000, 100_000]}}, {"empty": {"inputs": [0] * 40}}, {"empty": {"inputs": [-1, 0]}}),
        *({"empty": {"inputs": "x"}}, {"empty": 3}, {"units": 3}, {"units": {"time": 3}}, {"attributes": 3}),
        *({"input_names": 3}, {"output_names": [3]}, {"output_names": ["\ud800"]}, {"unit_names": None}),
        *({"format": "1"}, {"format": None}, {"output_names": ["y0", "y0"]}),
    ],
)
def test_a_header_of_ours_that_makes_no_sense(tmp_path, change):
    path = tmp_path / "data.npz"
    save_data(grid_data(1), path)
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(str(arrays["langenode"])) | change
    np.savez(path, allow_pickle=False, **(arrays | {"langenode": np.array(json.dumps(header))}))
    refused("data.npz", load_data, path)


# NetCDF-4, in a process of its own


@pytest.fixture
def netcdf_4(tmp_path):
    pytest.importorskip("h5netcdf")
    import xarray as xr

    y = np.arange(6.0).reshape(2, 3)
    variables = {"time": ("time", np.arange(3.0)), "y": (("traj", "time"), y), "u": (("time", "traj"), 2 * y.T)}
    data = xr.Dataset(variables | {"unit": ("traj", ["a", "b"])}, attrs={"note": "a", "number": np.float32(2)})
    data.to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    return tmp_path / "other.nc"


def test_netcdf_4_is_read_as_before(netcdf_4):
    data = load_data(netcdf_4, outputs=["y"], inputs=["u"], unit="unit")
    np.testing.assert_array_equal(data.inputs[..., 0], 2 * np.arange(6.0).reshape(2, 3))
    assert data.unit_names == ("a", "b")


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("child['_limit'](1)\nwhile True: pass", "took too long"),
        ("import os; os.abort()", "crashed"),
        ("child['_limit'](60)\nimport numpy as np; np.ones(10**9)", "failed: .*llocate"),
        ("sys.exit('OSError: truncated file')", "failed: OSError: truncated file"),
    ],
)
def test_a_library_that_hangs_crashes_or_takes_all_memory(netcdf_4, tmp_path, monkeypatch, does, says):
    """A script in place of the child; its limits are the real ones."""
    script = tmp_path / "child.py"
    script.write_text(f"import runpy, sys\nchild = runpy.run_path({str(REAL)!r}, run_name='child')\n{does}\n")
    monkeypatch.setattr(hdf5, "__file__", str(script))
    refused(f"other.nc: a NetCDF-4 file must be .*{says}", load_data, netcdf_4, outputs=["y"])


def test_netcdf_4_of_more_than_can_be_read(netcdf_4, monkeypatch):
    monkeypatch.setattr(limits, "MOST_CELLS", 5)
    refused("more than 5", load_data, netcdf_4, outputs=["y"])
