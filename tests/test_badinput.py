"""Wrong input of every kind: one line, exit code 2, and nothing on disk has changed."""

import errno
import json
import os
import resource
import signal
import sys

import numpy as np
import pytest

from commands import OWN
from langenode import cli
from langenode.data import load_data, save_data
from langenode.experiments import own
from langenode.fitting import build, fit_file
from langenode.fitting.choose import configure
from langenode.storage import container
from langenode.storage.folder import RunFolder

HEADER = "run,t,force,x,v"
# What makes a folder a run.
PROVENANCE = json.dumps({"seed": 0, "versions": {"langenode": "0"}})


# Tools


def command(monkeypatch, capsys, *words):
    """Run the command in this process; return its exit code, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["langenode", *map(str, words)])
    capsys.readouterr()
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def everything(folder):
    """Return everything in a folder, names and contents."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def rows(num=6, steps=6, *, scale=1.0):
    """Return forced oscillators, one list of cells per row: run, t, force, x, v."""
    rng = np.random.default_rng(0)
    table = []
    for run in range(num):
        x, v = rng.normal(size=2)
        for step in range(steps):
            time = 0.25 * step
            force = np.sin(time + run)
            table.append([f"r{run}", f"{time}", f"{force:.6f}", f"{scale * x:.6e}", f"{scale * v:.6e}"])
            x, v = x + 0.25 * v, v + 0.25 * (force - x - 0.3 * v)
    return table


def text(table, header=HEADER):
    return "\n".join([header, *(",".join(row) for row in table)]) + "\n"


def changed(row, column, cell):
    """Return the good table with one cell replaced."""
    table = rows()
    table[row][HEADER.split(",").index(column)] = cell
    return text(table)


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run a command in a folder with earlier results; check that it is refused and that nothing has changed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text(text(rows()))
    earlier = tmp_path / "runs" / "earlier"
    earlier.mkdir(parents=True)
    (earlier / "config.toml").write_text("experiment = 'own'\n")
    (earlier / "provenance.json").write_text(PROVENANCE)
    (earlier / "metrics.json").write_text("{}\n")

    def refuse(*words, says=(), code=2):
        before = everything(tmp_path)
        found, out, err = command(monkeypatch, capsys, *words)
        assert found == code, err
        assert everything(tmp_path) == before
        assert "Traceback" not in err and len(err.splitlines()) == 1, err
        assert err.startswith("langenode: ") and err.count(";") >= 2, err
        for part in [says] if isinstance(says, str) else says:
            assert part in err, err
        return out

    return refuse


@pytest.fixture
def idle(monkeypatch):
    """Let no stage of a run begin: faults must be found before any work."""

    def fail(*_):
        raise AssertionError("work has begun")

    monkeypatch.setattr("langenode.runs.stages.Run.complete", fail)


@pytest.fixture(scope="module")
def fit_bytes():
    """Return the content of a fit file of an untrained sampler."""
    layer = {"target": "posterior", "data": {"inputs": ["force"], "outputs": ["x", "v"]}}
    sizes = {"kind": "state", "layers": [4], "num_inputs": 1, "num_outputs": 2, "num_known": 2}
    sampler = {"num_steps": 2, "layers": [4]}
    config = configure("own", [layer, {"model": sizes, "langevin": sampler, "predict": {"num_samples": 4}}])
    return _fit_bytes(config)


def _fit_bytes(config):
    from langenode.data import Dataset, Extent

    times = np.tile(np.arange(3.0), (3, 1))
    outputs = np.random.default_rng(0).normal(size=(3, 3, 2))
    names = {"input_names": ("force",), "output_names": ("x", "v")}
    data = own.prepare(Dataset.from_arrays(times, outputs, inputs=outputs[..., :1], **names), config)
    prepared = build.prepare(config, data, None)
    problem = build.assemble(config, build.untrained(own.EXPERIMENT, config), prepared).problem
    columns = {"trajectory": "run", "time": "t", "inputs": ["force"], "outputs": ["x", "v"], "initial": []}
    header = {"scaling": prepared.scaling.to_dict(), "noise_factor": [1.0], "columns": columns}
    wide = Extent(100.0, np.array([[-9.0, 9.0]]), np.array([[-9.0, 9.0]] * 2))
    header |= {"training": {}, "diagnostics": {}, "extent": wide.to_dict()}
    header |= {key: list(value) for key, value in names.items()}
    return fit_file.fit_bytes(fit_file.portable(problem), config, header)


# Tables

BAD_TABLES = {
    "missing column": (text(rows(), "run,t,force,x,w"), ["--outputs", "x,v"], ("'v'",)),
    "text in a number column": (changed(7, "x", "broken"), ["--outputs", "x,v"], ("'x'", "broken")),
    "empty time": (changed(8, "t", ""), [], ("times", "'t'")),
    "time not a number": (changed(8, "t", "nan"), [], ("times", "'t'")),
    "empty input": (changed(9, "force", ""), [], ("inputs must be known", "'force'")),
    "input not a number": (changed(9, "force", "NaN"), [], ("inputs must be known", "'force'")),
    "infinite output": (changed(3, "v", "inf"), [], ("outputs must be finite", "'v'")),
    "decreasing time": (changed(4, "t", "0.1"), [], ("increase strictly", "0.1 after 0.75", "'r0'")),
    "duplicated time": (changed(4, "t", "0.75"), [], ("increase strictly", "0.75 after 0.75")),
    "one trajectory": (text(rows(num=1)), [], ("one trajectory", "at least 2")),
    "one time point": (text(rows(steps=1)), [], ("time point",)),
    "constant output": (text([[*row[:4], "2.5"] for row in rows()]), ["--outputs", "x,v"], ("'v'", "must vary")),
    "constant outputs": (text([[*row[:3], "1", "2"] for row in rows()]), ["--inputs", "force"], ("output", "constant")),
    "only a header": (HEADER + "\n", [], ()),
    "a line cut short": (text(rows())[:-25], [], ()),
    "empty": ("", [], ("empty",)),
    "blank": (" \n \n", [], ("empty",)),
    "not a table": ("<html><body>Not found</body></html>", [], ()),
    "nul bytes": ("\0" * 64, [], ()),
}


@pytest.mark.parametrize("verb", ["fit", "check"])
@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables(refused, idle, tmp_path, case, verb):
    content, options, says = BAD_TABLES[case]
    (tmp_path / "bad.csv").write_text(content)
    out = "runs/new" if verb == "fit" else "new.toml"
    refused(verb, "bad.csv", *options, "--out", out, says=says)


def test_check_says_what_it_understood_before_the_fault(refused, tmp_path):
    (tmp_path / "bad.csv").write_text(changed(4, "t", "0.75"))
    out = refused("check", "bad.csv", says="increase strictly")
    assert "Understood so far" in out
    for fact in ("trajectory", "'t'", "force", "36", "duplicated times"):
        assert fact in out, fact


def test_an_error_is_json_where_json_was_asked_for(refused, tmp_path):
    (tmp_path / "bad.csv").write_text(changed(4, "t", "0.75"))
    for words in (["check", "bad.csv"], ["fit", "bad.csv"], ["report", "nowhere"], ["compare", "nowhere"]):
        found = json.loads(refused(*words, "--json"))
        assert found["exit_code"] == 2 and ";" in found["error"]


# Files of all formats


def _write(path, fit_bytes):
    """Write a good file in the format of its suffix."""
    if path.suffix == ".langenode":
        path.write_bytes(fit_bytes)
        return
    table = path.with_suffix(".csv")
    table.write_text(text(rows()))
    if path.suffix == ".parquet":
        import pandas as pd

        pd.read_csv(table).to_parquet(path)
    elif path.suffix != ".csv":
        save_data(load_data(table), path)
    if path != table:
        table.unlink()


@pytest.mark.parametrize("fault", ["empty", "cut", "foreign", "missing", "a folder of nothing"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".nc", ".npz", ".langenode"])
def test_damaged_files(refused, tmp_path, fit_bytes, suffix, fault):
    path = tmp_path / f"bad{suffix}"
    if fault == "a folder of nothing":
        path.mkdir()
    elif fault != "missing":
        _write(path, fit_bytes)
        content = path.read_bytes()
        # A table cut at the end of a line is still valid; cut in its first lines it cannot be fitted.
        half = 60 if suffix == ".csv" else len(content) // 2
        path.write_bytes({"empty": b"", "cut": content[:half], "foreign": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n"}[fault])
    if suffix == ".langenode":
        refused("predict", path, "--data", "good.csv", says="bad.langenode")
    else:
        refused("fit", path, "--out", "runs/new", says=path.name)


def test_undamaged_files_are_not_refused(tmp_path, monkeypatch, capsys, fit_bytes):
    """So that the test above can fail."""
    monkeypatch.chdir(tmp_path)
    for suffix in (".parquet", ".nc", ".npz", ".csv"):
        _write(tmp_path / f"good{suffix}", fit_bytes)
        code, out, err = command(monkeypatch, capsys, "check", f"good{suffix}", "--out", f"{suffix[1:]}.toml")
        assert code == 0 and not err and "posterior" in out, err
    _write(tmp_path / "good.langenode", fit_bytes)
    code, out, err = command(monkeypatch, capsys, "predict", "good.langenode", "--data", "good.csv")
    assert code == 0 and "4 samples for 6" in out, err


def test_files_of_a_later_version(refused, tmp_path, fit_bytes):
    from safetensors.numpy import load, save

    header = json.dumps({"format_version": 99})
    (tmp_path / "late.langenode").write_bytes(save(load(fit_bytes), metadata={"langenode": header}))
    refused("predict", "late.langenode", "--data", "good.csv", says=("99", "upgrade"))
    import xarray as xr

    save_data(load_data(tmp_path / "good.csv"), tmp_path / "data.nc")
    with xr.load_dataset(tmp_path / "data.nc", engine="scipy") as data:
        data.attrs["langenode"] = json.dumps(json.loads(data.attrs["langenode"]) | {"format": 99})
        data.to_netcdf(tmp_path / "late.nc", engine="scipy", format="NETCDF3_64BIT")
    refused("fit", "late.nc", "--out", "runs/new", says=("99", "update langenode"))


def test_a_part_of_a_fit_and_foreign_tensors(refused, tmp_path, fit_bytes):
    from safetensors.numpy import load, save

    header = {"model": {"kind": "state"}, "tried": []}
    (tmp_path / "mle.langenode").write_bytes(container.to_bytes(header, {"w": np.zeros(2)}))
    refused("predict", "mle.langenode", "--data", "good.csv", says=("whole fit", "fit.langenode"))
    (tmp_path / "other.langenode").write_bytes(save(load(fit_bytes), metadata={"format": "pt"}))
    refused("predict", "other.langenode", "--data", "good.csv", says="written by langenode")
    refused("predict", "runs/earlier", "--data", "good.csv", says="fit.langenode")
    refused("predict", "other.langenode", says="--data")


def test_a_mask_that_shows_what_is_not_there(refused, tmp_path):
    outputs = np.random.default_rng(0).normal(size=(4, 5))
    mask = np.ones((4, 5), bool)
    outputs[2, 3] = np.nan
    np.savez(tmp_path / "bad.npz", t=np.arange(5.0), y=outputs, mask=mask)
    refused("fit", "bad.npz", "--out", "runs/new", says=("bad.npz", "finite"))


# Configuration


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "training.num_update=3"], ("did you mean training.num_updates?",)),
        (["--set", "nonsense=3"], ("no nonsense",)),
        (["--set", "training.num_updates"], ("section.key=value",)),
        (["--set", "training.num_updates=0"], ("training.num_updates",)),
        (["--set", "training.num_updates=many"], ("training.num_updates", "many")),
        (["--set", "model.kind=magic"], ("model.kind", "magic")),
        (["--set", "model.num_outputs=5"], ("model.num_outputs", "leave it out")),
        (["--set", "data.split=[1.0,0.0,0.0]"], ("data.split",)),
        (["--set", "data.split=[0.9,0.9,0.9]"], ("split",)),
        (["--set", "data=3"], ("data must be a section",)),
        (["--method", "magic"], ("method", "magic")),
        (["--target", "magic"], ("target", "magic")),
        (["--method", "bottleneck"], ("bottleneck", "population")),
        (["--seed", "-1"], ("seed",)),
        (["--config", "nowhere.toml"], ("nowhere.toml",)),
        (["--config", "runs"], ("runs",)),
        (["--config", "good.csv"], ("must be TOML", "good.csv")),
        (["--config", "typo.toml"], ("no data.split_",)),
        (["--config", "latin.toml"], ("latin.toml",)),
        (["--trajectory", "nobody"], ("'nobody'",)),
        (["--inputs", "x,x"], ("x",)),
        (["--outputs", ""], ("outputs",)),
    ],
)
def test_bad_choices(refused, idle, tmp_path, words, says):
    (tmp_path / "typo.toml").write_text("[data]\nsplit_ = [0.5, 0.3, 0.2]\n")
    (tmp_path / "latin.toml").write_bytes("method = 'é'".encode("latin-1"))
    refused("fit", "good.csv", "--out", "runs/new", *words, says=says)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "nonsense"], "one of ou"),
        (["run", "good.csv"], "langenode fit"),
        (["simulate", "ou", "--set", "data.num_times=1", "--out", "runs/new"], "data.num_times"),
        (["fit", "nowhere.csv"], "nowhere.csv"),
        (["fit", "good.xlsx"], ".csv"),
        (["fit", "runs/earlier", "--seed", "3"], "config.toml"),
        (["evaluate", "nowhere"], "run folder"),
        (["report", "runs"], "no config.toml"),
        (["evaluate", "good.csv"], "run folder"),
        (["compare", "runs/earlier"], "two runs"),
        (["compare", "runs/earlier", "runs"], "config.toml"),
        (["compare", "runs/earlier", "nowhere"], "nowhere"),
        (["compare", "runs/earlier", "runs/simulated"], "langenode evaluate"),
        (["compare", "runs/earlier", "runs/simulated", "--out", "good.csv"], "good.csv"),
        (["predict", "nowhere.langenode", "--data", "good.csv"], "nowhere.langenode"),
    ],
)
def test_bad_names(refused, idle, tmp_path, words, says):
    (tmp_path / "runs" / "simulated").mkdir()
    (tmp_path / "runs" / "simulated" / "config.toml").write_text("experiment = 'ou'\n")
    (tmp_path / "runs" / "simulated" / "provenance.json").write_text(PROVENANCE)
    refused(*words, says=says)


@pytest.mark.parametrize(
    "words",
    [
        ["fly"],
        ["run"],
        ["run", "ou", "--fly"],
        ["fit", "good.csv", "--seed", "many"],
        ["predict", "x", "--samples", "1"],
    ],
)
def test_wrong_words_are_told_apart_from_bugs(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(monkeypatch, capsys, *words)
    assert code == 2 and not out and "Traceback" not in err and "langenode" in err
    assert not any(tmp_path.iterdir())


# Folders


def test_folders_that_are_taken(refused, tmp_path):
    folder = RunFolder(tmp_path / "runs" / "taken")
    folder.path.mkdir()
    folder.config.write_text("experiment = 'own'\nseed = 7\n")
    refused("fit", "good.csv", "--out", folder.path, says=("empty folder", "--force"))
    refused("run", "ou", "--out", folder.path, says=("empty folder", "--force"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    refused("fit", "good.csv", "--out", "home", says="empty folder")
    refused("fit", "good.csv", "--out", "home", "--force", says=("holds none", "--out"))
    refused("run", "ou", "--out", "home", "--force", says=("holds none", "--out"))
    refused("fit", "good.csv", "--out", "good.csv", says=("good.csv", "--out"))
    refused("fit", "good.csv", "--out", "good.csv/run", says=("good.csv/run", "--out"))


def test_a_folder_in_use(refused, tmp_path):
    with RunFolder(tmp_path / "runs" / "earlier").locked():
        refused("fit", "good.csv", "--out", "runs/earlier", "--force", says=f"in use by process {os.getpid()}")
        refused("report", "runs/earlier", says="in use")


@pytest.mark.parametrize("place", ["/proc/nowhere/here", "good.csv/here"])
def test_places_that_cannot_be_written(refused, tmp_path, fit_bytes, place):
    (tmp_path / "good.langenode").write_bytes(fit_bytes)
    refused("fit", "good.csv", "--out", place, says=place)
    refused("run", "ou", "--out", place, says=place)
    refused("check", "good.csv", "--out", f"{place}/config.toml", says=place)
    if place.startswith("/proc"):
        refused("predict", "good.langenode", "--data", "good.csv", "--out", f"{place}/bands", says=place)


def test_a_folder_in_the_place_of_a_file(refused, tmp_path):
    (tmp_path / "there").mkdir()
    refused("check", "good.csv", "--out", "there", says="there")
    refused("check", "good.csv", "--out", "there", "--force", says="there")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *(("langenode.storage.writing._write", errno.EROFS), ("langenode.storage.writing._write", errno.EACCES)),
        *(("os.fdopen", errno.EDQUOT), ("os.fdopen", errno.ENOSPC)),
    ],
)
def test_a_disk_that_refuses(refused, tmp_path, monkeypatch, fit_bytes, name, number):
    """At the first write, and after the temporary file was made; bands from an earlier call are left whole."""
    (tmp_path / "good.langenode").write_bytes(fit_bytes)
    for suffix in ("nc", "csv", "png"):
        (tmp_path / f"bands.{suffix}").write_bytes(b"earlier")
    (tmp_path / "config.toml").write_text("# earlier\n")

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(name, fail)
    refused("fit", "good.csv", "--out", "runs/new", says="must be writ")
    refused("run", "ou", "--out", "runs/new", says="must be writ")
    refused("check", "good.csv", "--force", says="must be writ")
    if number == errno.ENOSPC:
        words = ["good.langenode", "--data", "good.csv", "--out", "bands", "--force"]
        refused("predict", *words, says="must be writ")


# A run whose files were damaged


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        *(("config.toml", "report"), ("test.nc", "fit"), ("fit.langenode", "evaluate"), ("mle.langenode", "fit")),
    ],
)
def test_damaged_runs(refused, tmp_path, monkeypatch, capsys, name, verb):
    folder = RunFolder(tmp_path / "runs" / "new")
    words = ["--set", "data.num_times=4", "--set", "data.num_trajectories=4", "--out", folder.path]
    assert command(monkeypatch, capsys, "simulate", "ou", *words)[0] == 0
    (folder.path / name).write_bytes(b'{"cut')
    refused(verb, folder.path, says=name)
    if name == "test.nc":  # computed from the data before they were damaged
        folder.fit.write_bytes(b"earlier")
        folder.report.write_bytes(b"earlier")
        refused("fit", folder.path, "--force", says=name)
        refused("report", folder.path, "--force", says="fit.langenode")


def test_damaged_metrics_are_input_too(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    words = ["--set", "data.num_times=4", "--set", "data.num_trajectories=4", "--out", folder]
    assert command(monkeypatch, capsys, "simulate", "ou", *words)[0] == 0
    (folder / "metrics.json").write_text('{"cut')
    before = everything(folder)
    code, _, err = command(monkeypatch, capsys, "simulate", "ou", *words)
    assert code == 2 and "Traceback" not in err and "metrics.json is damaged" in err.splitlines()[-1]
    assert everything(folder) == before


# A fit that cannot stay finite


@pytest.mark.parametrize("setting", ["mle.learning_rate=1e30", "training.learning_rate=1e30"])
def test_a_fit_that_leaves_the_finite_numbers_has_a_code_of_its_own(tmp_path, monkeypatch, capsys, setting):
    settings = "method=gaussian-full target=posterior data.num_times=4 mle.num_adam=5 mle.num_lbfgs=0 "
    settings += f"training.num_samples=4 training.num_updates=100 training.block=100 {setting}"
    words = [word for text in settings.split() for word in ("--set", text)]
    code, out, err = command(monkeypatch, capsys, "run", "ou", "--out", tmp_path / "run", "--json", *words)
    last = err.splitlines()[-1]
    assert code == 3 and "must stay finite" in last and setting.split("=")[0] in last and "Traceback" not in err
    assert json.loads(out) == {"error": last.removeprefix("langenode: "), "exit_code": 3}
    assert not (tmp_path / "run" / "fit.langenode").exists()


# New data


def test_new_data_that_do_not_suit_the_fit(refused, tmp_path, fit_bytes):
    (tmp_path / "fit.langenode").write_bytes(fit_bytes)
    table = rows()
    (tmp_path / "no_input.csv").write_text(text([[*row[:2], *row[3:]] for row in table], "run,t,x,v"))
    refused("predict", "fit.langenode", "--data", "no_input.csv", says=("no_input.csv", "'force'"))
    (tmp_path / "no_time.csv").write_text(text([[row[0], *row[2:]] for row in table], "run,force,x,v"))
    refused("predict", "fit.langenode", "--data", "no_time.csv", says="'t'")
    (tmp_path / "no_start.csv").write_text(text([[*row[:3], "", ""] for row in table]))
    refused("predict", "fit.langenode", "--data", "no_start.csv", says="start")
    (tmp_path / "gap.csv").write_text(changed(9, "force", ""))
    refused("predict", "fit.langenode", "--data", "gap.csv", says="inputs must be known")
    (tmp_path / "good-bands.csv").write_text("earlier")
    refused("predict", "fit.langenode", "--data", "good.csv", says=("not overwritten", "--force"))


def test_a_file_that_may_not_grow(refused, tmp_path, fit_bytes):
    """A process limit on file sizes stands in for a full disk: writes fail half way."""
    (tmp_path / "fit.langenode").write_bytes(fit_bytes)
    (tmp_path / "bands.nc").write_bytes(b"earlier")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # Python's default: the write fails instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            (tmp_path / "large").write_bytes(bytes(1024))
        (tmp_path / "large").unlink()
        refused("predict", "fit.langenode", "--data", "good.csv", "--out", "bands", "--force", says="may not grow")
        refused("fit", "good.csv", "--out", "runs/new", says="may not grow")
        refused("check", "good.csv", says="may not grow")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# Unusual but valid input


@pytest.mark.slow
def test_outputs_of_any_size_are_fitted(tmp_path, monkeypatch, capsys):
    """Outputs of 1e-12 and of 1e12 are standardised: the bands are finite, and the same up to their units."""
    monkeypatch.chdir(tmp_path)
    bands = {}
    for scale in (1e-12, 1e12):
        (tmp_path / "data.csv").write_text(text(rows(scale=scale)))
        words = ["data.csv", "--out", f"runs/{scale}", *OWN]
        assert command(monkeypatch, capsys, "fit", *words)[0] == 0
        words = [f"runs/{scale}", "--data", "data.csv", "--out", f"{scale}"]
        assert command(monkeypatch, capsys, "predict", *words)[0] == 0
        bands[scale] = np.genfromtxt(f"{scale}.csv", delimiter=",", skip_header=1)[:, 2:] / scale
        assert np.isfinite(bands[scale]).all() and 0.1 < np.abs(bands[scale]).max() < 100
        found = json.loads((tmp_path / f"runs/{scale}/metrics.json").read_text())
        assert found["crps"] > 0 and 0.01 < found["crps"] / scale < 10
    # Up to float32 rounding through the twenty updates of the fit.
    np.testing.assert_allclose(bands[1e-12], bands[1e12], rtol=0.01, atol=0.01)
