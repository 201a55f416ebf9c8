"""Mutated files of every kind that Langenode reads, each made from a valid one by a number.

`case(seeds, number)` is the same file for the same number and seeds. As a script, a range of numbers is tried in this
process, whose parent watches its memory, its time and its end: python tests/fuzzing.py SEEDS FIRST LAST.
"""

import contextlib
import io
import json
import math
import shutil
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ENTROPY = 20250711
ODD_VALUES = (
    *(None, True, False, 0, -1, 1, 2, 3.5, -0.5, 1e-300, 1e308, math.nan, math.inf, 10**9, 10**12, 10**30, 2**63),
    *("", "x", "none", "1", "nan", "ü\u2028", "x" * 3000, "../../etc/passwd", "a\0b", "\ud800"),
    *([], {}, [[]], [1, 2], ["a", "a"], [0.0], [math.nan], {"a": 1}, {"name": 3}, [[1, 2], [3]], [{}], [10**6] * 3),
)
ODD_CELLS = (
    *("", "nan", "inf", "-inf", "1e400", "1e308", "-1", "0", "x", '"', '"a', "1,5", "1.5.2", "2024-05-01", "NA", "."),
    *("1_000", "0x1", "\u0661", "é", "\t", ";", "\n", "1" * 400, "9" * 5000, "x" * 5000, "\ufeff", "\r", "-", "+"),
)
ODD_BYTES = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80\0\0\0", b"\0\0\0\x80")
ODD_BYTES += (b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7, b"\xff" * 7 + b"\x7f", b"\0\x0f\x42\x40", b"\x01", b"\n")


class Seed(NamedTuple):
    """A valid file: how it can be changed, and who reads it."""

    path: Path
    change: Callable[[bytes, np.random.Generator], bytes]
    reader: str


class Case(NamedTuple):
    """A mutated file in a place of its own, and who reads it."""

    name: str
    path: Path
    reader: str


# Changes of bytes and of text


def pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def change_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    """Some of: flip a bit, replace, insert, remove, repeat or move a stretch, cut."""
    for _ in range(int(rng.integers(1, 4))):
        size = max(len(content), 1)
        at, length = int(rng.integers(size)), int(rng.integers(1, 2 + size // 8))
        stretch = content[at : at + length]
        kind = int(rng.integers(8))
        if kind == 0 and content:
            changed = bytes([content[at] ^ (1 << int(rng.integers(8)))])
            content = content[:at] + changed + content[at + 1 :]
        elif kind == 1:
            odd = pick(rng, ODD_BYTES)
            content = content[:at] + odd + content[at + len(odd) :]
        elif kind == 2:
            content = content[:at] + rng.bytes(min(length, 64)) + content[at:]
        elif kind == 3:
            content = content[:at] + content[at + length :]
        elif kind == 4:
            content = content[:at] + stretch * int(rng.integers(2, 4)) + content[at + length :]
        elif kind == 5:
            to = int(rng.integers(size))
            content = content[:to] + stretch + content[to + length :]
        elif kind == 6:
            content = content[:at]
        else:
            content = content[:at] + rng.bytes(len(stretch)) + content[at + length :]
    return content


def change_table(content: bytes, rng: np.random.Generator) -> bytes:
    """Change cells, rows or columns of a table in text."""
    separator = max(",;\t", key=content.decode(errors="replace").split("\n")[0].count)
    rows = [line.split(separator) for line in content.decode(errors="replace").split("\n") if line]
    for _ in range(int(rng.integers(1, 4))):
        row = int(rng.integers(len(rows)))
        column = int(rng.integers(max(len(rows[row]), 1)))
        kind = int(rng.integers(7))
        if kind <= 2 and rows[row]:
            rows[row][column] = pick(rng, ODD_CELLS)
        elif kind == 3:
            rows = [[*cells, pick(rng, ODD_CELLS)] for cells in rows]
        elif kind == 4:
            rows = [cells[:column] + cells[column + 1 :] for cells in rows]
        elif kind == 5:
            rows.insert(int(rng.integers(len(rows))), list(rows[row]))
        else:
            rows = [rows[0], *(rows[1 + int(i)] for i in rng.permutation(len(rows) - 1))]
    return "\n".join(separator.join(cells) for cells in rows).encode(errors="surrogatepass")


def change_value(value: Any, rng: np.random.Generator) -> Any:
    """A nested value with some place changed: replaced, removed, renamed, repeated or doubled."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return pick(rng, ODD_VALUES)
    if isinstance(value, list):
        at = int(rng.integers(len(value)))
        kind = int(rng.integers(5))
        replaced = [*value[:at], change_value(value[at], rng), *value[at + 1 :]]
        return (replaced, replaced, value[:at] + value[at + 1 :], [*value, value[at]], value * 50)[kind]
    key = pick(rng, sorted(value, key=str))
    rest = {name: item for name, item in value.items() if name != key}
    kind = int(rng.integers(8))
    if kind == 0:
        return rest
    if kind == 1:
        return rest | {f"{key}x": value[key]}
    if kind == 2:
        return value | {key: value[pick(rng, sorted(value, key=str))]}
    return value | {key: change_value(value[key], rng)}


def change_json(content: bytes, rng: np.random.Generator) -> bytes:
    return json.dumps(change_value(json.loads(content), rng)).encode()


def change_toml(content: bytes, rng: np.random.Generator) -> bytes:
    import tomli_w

    changed = change_value(tomllib.loads(content.decode()), rng)
    try:
        return tomli_w.dumps(changed).encode()
    except (TypeError, AttributeError, UnicodeEncodeError, RecursionError):  # TOML has no null
        return change_bytes(content, rng)


# Changes of arrays


def change_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other numbers, another type, or another shape."""
    kind = int(rng.integers(8))
    if kind == 0 and array.dtype.kind == "f" and array.size:
        changed = array.copy()
        changed.flat[int(rng.integers(array.size))] = pick(rng, (np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0))
        return changed
    if kind == 1:
        return array.astype(pick(rng, (np.float32, np.int32, bool, np.uint8)), casting="unsafe")
    if kind == 2:
        return array.reshape(-1)
    if kind == 3:
        return array[..., None] if array.ndim < 4 else array[0]
    if kind == 4:
        return array[:-1] if array.ndim else array
    if kind == 5:
        return np.concatenate([array] * 3) if array.ndim else array
    if kind == 6:
        return np.zeros((0, *array.shape[1:]), array.dtype)
    return array.T


def change_arrays(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    name = pick(rng, sorted(arrays))
    rest = {key: array for key, array in arrays.items() if key != name}
    kind = int(rng.integers(5))
    with np.errstate(all="ignore"):
        changed = change_array(arrays[name], rng) if arrays[name].dtype.kind in "fiub" else arrays[name]
    return (rest, rest | {f"{name}_2": arrays[name]}, rest | {name: changed}, rest | {name: changed}, arrays)[kind]


def change_npz(content: bytes, rng: np.random.Generator) -> bytes:
    if rng.random() < 0.4:
        return change_bytes(content, rng)
    with np.load(io.BytesIO(content)) as file:
        arrays = change_arrays(dict(file), rng)
    if "langenode" in arrays and rng.random() < 0.5:
        header = change_value(json.loads(str(arrays["langenode"])), rng)
        arrays["langenode"] = np.array(json.dumps(header))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def change_netcdf(content: bytes, rng: np.random.Generator) -> bytes:
    """NetCDF-3: bytes, or the header of ours with its length kept, so that the file stays whole around it."""
    at = content.find(b'{"input_names"')
    if at < 0 or rng.random() < 0.5:
        return change_bytes(content, rng)
    text = content[at:].split(b"\0")[0].decode(errors="ignore")
    header, end = json.JSONDecoder().raw_decode(text)
    changed = json.dumps(change_value(header, rng)).encode()[:end].ljust(end)
    return content[:at] + changed + content[at + end :]


def change_parquet(content: bytes, rng: np.random.Generator) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if rng.random() < 0.6:
        return change_bytes(content, rng)
    table = pq.read_table(pa.BufferReader(content))
    name = pick(rng, table.column_names)
    column, place = table.column(name), table.column_names.index(name)
    num = table.num_rows
    odd = (
        pa.nulls(num),
        pa.array([b"\xff"] * num),
        pa.array([[1, 2]] * num),
        pa.array([{"a": 1}] * num),
        pa.array(["x" * 1000] * num).dictionary_encode(),
        pa.array([None, *("9" * 400 for _ in range(num - 1))]),
        column.cast(pa.string()),
        pa.array(np.arange(num).astype("datetime64[ns]")),
    )
    kind = int(rng.integers(4))
    if kind == 0:
        table = table.set_column(place, name, pick(rng, odd))
    elif kind == 1:
        table = table.append_column(pick(rng, (name, "", "time", "ü")), pick(rng, odd))
    elif kind == 2:
        table = table.take(pa.array(np.zeros(int(rng.integers(0, 3000)), np.int64)))
    else:
        table = table.remove_column(place)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def change_fit(content: bytes, rng: np.random.Generator) -> bytes:
    """A .langenode file: bytes, or a header or arrays that are changed and signed again."""
    from safetensors.numpy import load, save

    from langenode.storage import container

    if rng.random() < 0.3:
        return change_bytes(content, rng)
    length = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["langenode"])
    arrays = dict(load(content))
    if rng.random() < 0.75:
        header = change_value(header, rng)
    else:
        arrays = change_arrays(arrays, rng)
    if isinstance(header, dict) and rng.random() < 0.9:
        with contextlib.suppress(UnicodeEncodeError):
            header["sha256"] = container._digest(json.loads(json.dumps(header)), arrays)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(contiguous, metadata={"langenode": json.dumps(header)})


CHANGES = {
    ".csv": change_table,
    ".tsv": change_table,
    ".parquet": change_parquet,
    ".npz": change_npz,
    ".nc": change_netcdf,
    ".toml": change_toml,
    ".json": change_json,
    ".langenode": change_fit,
}


# Valid files


def make_seeds(folder: Path, run: Path) -> None:
    """Fill a folder with valid files of every kind; `run` is that of a finished run."""
    shutil.copytree(run, folder / "run")
    (folder / "run" / "report.html").unlink(missing_ok=True)  # which is written, never read
    for name in ("data", "folder", "config", "fits"):
        (folder / name).mkdir()
    _make_tables(folder)
    _make_arrays(folder / "data")
    _make_configurations(folder / "config")
    shutil.copy(run / "fit.langenode", folder / "fits" / "trained.langenode")
    (folder / "fits" / "drawn.langenode").write_bytes(drawn_fit())


def _rows(num: int = 4, steps: int = 5) -> list[list[str]]:
    rng = np.random.default_rng(0)
    return [
        [f"r{run}", f"{0.5 * step}", f"{math.sin(run + step):.4f}", f"{rng.normal():.4f}"]
        for run in range(num)
        for step in range(steps)
    ]


def _make_tables(folder: Path) -> None:
    import pandas as pd

    header, rows = ["run", "t [s]", "force", "x"], _rows()
    for name, separator in (("comma.csv", ","), ("tab.tsv", "\t")):
        text = "\n".join(separator.join(row) for row in [header, *rows])
        (folder / "data" / name).write_text(text + "\n")
    german = "\n".join(";".join(cell.replace(".", ",") for cell in row) for row in [header, *rows])
    (folder / "data" / "german.csv").write_text(german + "\n")
    quoted = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows])
    (folder / "data" / "quoted.csv").write_text(quoted + "\n")
    frame = pd.DataFrame(rows, columns=header).astype({"t [s]": float, "force": float, "x": float})
    frame.to_parquet(folder / "data" / "table.parquet")
    for run, part in frame.groupby("run"):
        part.drop(columns="run").to_csv(folder / "folder" / f"{run}.csv", index=False)


def _make_arrays(folder: Path) -> None:
    import xarray as xr

    from langenode.data import Dataset, load_data, save_data

    data = load_data(folder / "comma.csv")
    data = Dataset.from_arrays(
        data.times, data.outputs, inputs=data.inputs, units={"time": "s"}, attributes={"w": np.arange(4.0)}
    )
    save_data(data, folder / "ours.npz")
    save_data(data, folder / "ours.nc")
    times, y = np.arange(5.0), np.random.default_rng(0).normal(size=(4, 5))
    np.savez(folder / "foreign.npz", t=times, y=y, mask=np.ones((4, 5), bool), who=np.array(["a", "b", "c", "d"]))
    foreign = xr.Dataset({"time": ("time", times), "y": (("who", "time"), y), "u": (("time", "who"), y.T)})
    foreign.to_netcdf(folder / "foreign3.nc", engine="scipy", format="NETCDF3_64BIT")
    foreign.to_netcdf(folder / "foreign4.nc", engine="h5netcdf")


def _make_configurations(folder: Path) -> None:
    from langenode.config import to_toml
    from langenode.fitting.choose import configure

    for name in ("ou", "own", "viscoelastic"):
        (folder / f"{name}.toml").write_text(to_toml(configure(name, [])))
    (folder / "asked.toml").write_text("seed = 3\nmethod = 'nuts'\n[training]\nnum_updates = 5\n[data]\ntime = 't'\n")


def drawn_fit() -> bytes:
    """The file of a fit that holds draws, as a sampler leaves them."""
    import jax.numpy as jnp

    from langenode.data import Dataset, Extent
    from langenode.experiments import own
    from langenode.fitting import build, fit_file
    from langenode.fitting.choose import configure
    from langenode.inference.problem import Problem
    from langenode.posteriors import Empirical

    sizes = {"kind": "state", "layers": [3], "num_inputs": 1, "num_outputs": 1, "num_known": 1}
    config = configure(
        "own", [{"target": "posterior", "method": "nuts", "model": sizes, "predict": {"num_samples": 4}}]
    )
    outputs = np.random.default_rng(0).normal(size=(3, 4, 1))
    data = Dataset.from_arrays(np.tile(np.arange(4.0), (3, 1)), outputs, inputs=outputs)
    prepared = build.prepare(config, own.prepare(data, config), None)
    problem = build.assemble(config, build.untrained(own.EXPERIMENT, config), prepared).problem
    draws = Empirical(jnp.stack([problem.prior.mean] * 5))
    problem = Problem(problem.model, problem.partition, problem.prior, problem.likelihood, problem.target, draws)
    header = {"scaling": prepared.scaling.to_dict(), "noise_factor": [1.0], "columns": {"time": "t"}}
    header |= {"training": {}, "diagnostics": {"method": "nuts"}, "input_names": ["x0"], "output_names": ["y0"]}
    header |= {"extent": Extent.of(own.prepare(data, config)).to_dict()}
    return fit_file.fit_bytes(fit_file.portable(problem), config, header)


# Cases


def seeds_in(folder: Path) -> list[Seed]:
    """The valid files below a folder: `data/`, `folder/`, `config/` and `fits/` one by one, and those of `run/`."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in CHANGES)
    return [Seed(path, CHANGES[path.suffix], path.relative_to(folder).parts[0]) for path in paths]


def case(folder: Path, seeds: list[Seed], number: int, place: Path) -> Case:
    """The mutated file of a number, written to `place`; a file of a folder has the others beside it."""
    rng = np.random.default_rng([ENTROPY, number])
    seed = seeds[number % len(seeds)]
    content = seed.path.read_bytes()
    change = change_bytes if rng.random() < 0.3 else seed.change
    content = change(content, rng)
    place.mkdir(parents=True, exist_ok=True)
    part = folder / seed.reader
    if seed.reader in ("folder", "run"):
        shutil.copytree(part, place / seed.reader)
        path = place / seed.reader / seed.path.relative_to(part)
    else:
        path = place / seed.path.name
    path.write_bytes(content)
    return Case(f"{number}: {seed.path.relative_to(folder)}", path, seed.reader)


# Readers


def errors_of_ours() -> tuple[type[Exception], ...]:
    from langenode import ConfigError, DataError, FitError, FitFileError, RunFolderError

    return (ConfigError, DataError, FitError, FitFileError, RunFolderError)


def read_data_file(path: Path) -> None:
    from langenode.data import check_fittable, read_data, summarise

    reading = read_data(path)
    summarise(reading)
    check_fittable(reading.data)


def read_folder(path: Path) -> None:
    read_data_file(path.parent)


def read_configuration(path: Path) -> None:
    """As a run's own, and as what a user asks for."""
    from langenode.config import read_toml, to_toml
    from langenode.experiments import EXPERIMENTS
    from langenode.fitting import build
    from langenode.fitting.choose import configure, unused_options

    asked = read_toml(path)
    name = asked.get("experiment", "own")
    name = name if isinstance(name, str) and name in EXPERIMENTS else "own"
    config = configure(name, [asked])
    unused_options(config, [asked])
    build.structure(EXPERIMENTS[name], config)
    to_toml(config)


def read_fit_file(path: Path) -> None:
    from langenode import load_fit

    load_fit(path).flat_sample(2)


def read_run(path: Path) -> None:
    """All that stages, reports, comparisons and the screen read of a file, short of computing with it."""
    from langenode.cli import work
    from langenode.fitting.progress import Reporter
    from langenode.reports import run_page
    from langenode.reports.comparison import compare_runs
    from langenode.runs.stages import existing_run
    from langenode.storage import tables
    from langenode.storage.folder import RunFolder

    root = next(parent for parent in path.parents if parent.name == "run")
    folder = RunFolder(root)
    readers = {
        "stages": lambda: _read_stages(existing_run(root, Reporter(quiet=True))),
        "convergence": lambda: tables.read_convergence(folder.convergence),
        "report": lambda: run_page.render_report(folder).encode(),
        "compare": lambda: compare_runs([folder, folder]),
        "screen": lambda: work._finish(root, as_json=False),
    }
    faults = []
    for name in READ_BY.get(path.name, ("stages",)):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                readers[name]()
        except errors_of_ours() as error:
            faults.append(error)
    if faults:
        raise faults[0]


READ_BY = {
    "config.toml": ("stages", "report", "compare"),
    "provenance.json": ("stages", "report", "compare"),
    "metrics.json": ("report", "compare", "screen"),
    "index.json": ("report",),
    "predictions.nc": ("stages", "compare"),
    "convergence.csv": ("convergence",),
}


def _read_stages(run: Any) -> None:
    run.splits()
    run.fitted()
    run._predictions()


READERS: dict[str, Callable[[Path], None]] = {
    "data": read_data_file,
    "folder": read_folder,
    "config": read_configuration,
    "fits": read_fit_file,
    "run": read_run,
}


def outcome(one: Case) -> str:
    """`accepted` or `refused`; anything else is raised. What is said is one line that can be printed."""
    try:
        READERS[one.reader](one.path)
    except errors_of_ours() as error:
        text = " ".join(str(error).split())
        assert text, one.name
        text.encode("utf-8", errors="backslashreplace")
        return "refused"
    return "accepted"


def main(folder: Path, first: int, last: int) -> None:
    """Try cases, with a line for each before and after it, for a parent that watches."""
    import signal
    import tempfile

    import jax

    jax.config.update("jax_enable_x64", True)
    seeds = seeds_in(folder)
    for number in range(first, last):
        print(f"begin {number}", flush=True)
        signal.setitimer(signal.ITIMER_PROF, 10.0)  # seconds of computing; its signal ends the process, also inside C
        with tempfile.TemporaryDirectory() as place:
            found = outcome(case(folder, seeds, number, Path(place)))
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        print(f"end {number} {found}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
