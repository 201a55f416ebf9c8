"""Damaged files of our own: every value is checked before anything is built from it, in one line."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from fuzzing import drawn_fit
from langenode import load_fit
from langenode.cli import work
from langenode.config import ConfigError, read_toml
from langenode.fitting import build, points
from langenode.fitting.choose import configure
from langenode.fitting.plan import plan_file
from langenode.fitting.progress import Reporter
from langenode.reports import run_page
from langenode.reports.comparison import compare_runs
from langenode.runs.stages import existing_run
from langenode.storage import container, tables
from langenode.storage.container import FitFileError
from langenode.storage.folder import RunFolder, RunFolderError, read_metrics, read_provenance
from langenode.storage.records import MOST_BYTES
from test_badinput import command, everything, fit_bytes, rows, text  # noqa: F401  (a fixture)

QUIET = Reporter(quiet=True)


def header_of(content: bytes) -> dict:
    length = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["langenode"])


def signed(header, arrays) -> bytes:
    """A fit file that is whole, whatever it says."""
    header = {key: value for key, value in header.items() if key != "sha256"}
    header["sha256"] = container._digest(json.loads(json.dumps(header)), arrays)
    return save(arrays, metadata={"langenode": json.dumps(header)})


def with_value(header, name, value) -> dict:
    """The header with the value at a dotted name replaced."""
    first, _, rest = name.partition(".")
    return {**header, first: with_value(header[first], rest, value) if rest else value}


# Headers

SENSELESS = {
    "noise_factor": ([-1.0], [math.nan], [math.inf], [], [1.0, 1.0, 1.0], "1", None, [True], [10**400]),
    "output_names": (["x", "x"], [], ["x"], ["x", 3], "xv", None, [["x"], ["v"]], ["x", ""]),
    "input_names": (["force", "force"], [], None, {"a": 1}),
    "scaling.output_scale": ([-1.0, 1.0], [0.0, 1.0], [math.nan, 1.0], [1.0], [[1.0, 1.0]], "1", None, [1.0, "1"]),
    "scaling.time_scale": (0.0, -1.0, math.nan, [1.0], None, "x"),
    "scaling.from_zero": (3, "no", None),
    "scaling": ({}, [], None, {"time_scale": 1.0}),
    "positions": ([99], [-1], [0, 0], [1, 0], ["0"], None, [0.5], [10**30]),
    "noise_sigma": ([-1.0, 1.0], [math.nan, 1.0], "1", [1.0, 1.0, 1.0], [[1.0, 1.0]]),
    "target": ({"name": "population"}, {"name": "magic"}, {}, [], None, {"name": "posterior", "extra": 1}),
    "reference_rank": (-1, 10**9, "1", 1.5),
    "num_draws": (0, -1, "5", 1.5),
    "is_linearised": (1, None, "yes", True),
    "columns": ({"nobody": "a"}, [], None, {"time": 3}, {"time": ["a", "b"]}),
    "extent": (
        [],
        {"duration": 1.0},
        *({"duration": 1.0, "inputs": one, "starts": []} for one in ([], [[1.0, 0.0]] * 2)),
    ),
    "extent.duration": (-1.0, math.nan, "1", None),
    "extent.starts": ([[0.0]], [[0.0, math.inf]], None, [["a", "b"]]),
    "training": ([], None, {"updates": -1}, {"updates": "many"}),
    "diagnostics": ([], None, {"relative_ess": "high"}, {"reference_rank": "first"}, {"is_trusted": 3}),
    "experiment": ("magic", 3, None, [], "ou"),
    "config": ({}, [], None, {"experiment": 3}),
    "config.method": ("magic", 3, None, ["langevin"], "nuts"),
    "config.seed": (-1, 2**40, "x", None, 1.5),
    "config.precision": ("float16", None),
    "config.model": ([], None, 3, {"layers": "deep"}),
    "config.model.layers": ([10**6, 10**6], [0], [-1], [10**30], [1] * 10_000, "4", [5]),
    "config.model.num_outputs": (3, 10**6, 0, None),
    "config.langevin.num_steps": (10**7, 10**12, 0),
    "config.langevin.layers": ([10**6, 10**6], [10**30]),
    "config.training.num_samples": (10**18, 1, math.inf),
    "format_version": (0, -1, "1", None, [1], True),
}


@pytest.mark.parametrize("name", SENSELESS)
def test_senseless_values_of_a_header_are_refused(tmp_path, fit_bytes, name):  # noqa: F811
    header, arrays = header_of(fit_bytes), load(fit_bytes)
    path = tmp_path / "fit.langenode"
    path.write_bytes(signed(header, arrays))
    assert load_fit(path).output_names == ("x", "v")  # so that the others can be refused for their value
    for value in SENSELESS[name]:
        path.write_bytes(signed(with_value(header, name, value), arrays))
        with pytest.raises(FitFileError) as caught:
            load_fit(path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value), value


def test_the_number_of_draws_must_be_that_of_the_file(tmp_path):
    content = drawn_fit()
    header, arrays = header_of(content), load(content)
    path = tmp_path / "fit.langenode"
    path.write_bytes(content)
    load_fit(path)
    for value in (None, 0, 6, 10**9):
        path.write_bytes(signed(header | {"num_draws": value}, arrays))
        with pytest.raises(FitFileError):
            load_fit(path)


def test_keys_that_are_missing(tmp_path, fit_bytes):  # noqa: F811
    header, arrays = header_of(fit_bytes), load(fit_bytes)
    path = tmp_path / "fit.langenode"
    kept = {"version", "sha256"}
    for name in sorted(set(header) - kept):
        path.write_bytes(signed({key: value for key, value in header.items() if key != name}, arrays))
        with pytest.raises(FitFileError):
            load_fit(path)


def test_arrays_that_do_not_suit(tmp_path, fit_bytes):  # noqa: F811
    header, arrays = header_of(fit_bytes), load(fit_bytes)
    path = tmp_path / "fit.langenode"
    name = max(arrays, key=lambda key: arrays[key].size)
    prior = next(key for key in arrays if key.startswith("[1].scale"))
    changes = {
        "missing": {key: array for key, array in arrays.items() if key != name},
        "more": arrays | {"extra": np.zeros(2)},
        "shape": arrays | {name: arrays[name].reshape(-1)[:-1].copy()},
        "integers": arrays | {name: arrays[name].astype(np.int32)},
        "nan": arrays | {name: np.full_like(arrays[name], np.nan)},
        "scale": arrays | {prior: -arrays[prior]},
    }
    for what, changed in changes.items():
        path.write_bytes(signed(header, changed))
        with pytest.raises(FitFileError):
            load_fit(path)
            pytest.fail(what)


def test_any_changed_byte_is_noticed(tmp_path, fit_bytes):  # noqa: F811
    """Of numbers alone nobody could tell: the file has a hash of all that it says."""
    path = tmp_path / "fit.langenode"
    rng = np.random.default_rng(0)
    for at in [*rng.integers(8, len(fit_bytes), size=30), len(fit_bytes) - 1, len(fit_bytes) - 100]:
        path.write_bytes(fit_bytes[:at] + bytes([fit_bytes[at] ^ 1]) + fit_bytes[at + 1 :])
        with pytest.raises(FitFileError):
            load_fit(path)


def test_a_file_without_a_hash_is_read(tmp_path, fit_bytes):  # noqa: F811
    """As earlier versions wrote it."""
    header = {key: value for key, value in header_of(fit_bytes).items() if key != "sha256"}
    path = tmp_path / "fit.langenode"
    path.write_bytes(save(load(fit_bytes), metadata={"langenode": json.dumps(header)}))
    assert load_fit(path).output_names == ("x", "v")


def test_a_header_of_gigantic_layers_ends_nothing(tmp_path, fit_bytes):  # noqa: F811
    """The compiler would end the process where memory cannot be had; in a process of its own, so that this can fail."""
    header, arrays = header_of(fit_bytes), load(fit_bytes)
    path = tmp_path / "fit.langenode"
    path.write_bytes(signed(with_value(header, "config.model.layers", [10**6, 10**6]), arrays))
    done = subprocess.run(
        [sys.executable, "-m", "langenode", "predict", str(path), "--data", "x.csv"], capture_output=True, text=True
    )
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "at most 10000000" in done.stderr


# A run's files


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The files of a small run, made without training: a table, a model, draws and predictions."""
    home = tmp_path_factory.mktemp("run")
    make_run(home)
    return home / "run"


def make_run(home: Path) -> None:
    import jax.numpy as jnp

    from langenode.fitting import solve
    from langenode.inference.predictions import Prediction
    from langenode.inference.problem import Problem
    from langenode.posteriors import Empirical
    from langenode.runs.stages import Run
    from langenode.storage.folder import write_bytes, write_json

    (home / "readings.csv").write_text(text(rows()))
    asked = {
        "method": "nuts",
        "data": {"folds": "none"},
        "model": {"kind": "state", "layers": [3]},
        "predict": {"num_samples": 4},
    }
    plan = plan_file(home / "readings.csv", [asked])
    facts = {"source": plan.source, "columns": plan.reading.columns._asdict()}
    facts["choices"] = [choice._asdict() for choice in plan.choices]
    run = Run.start(home / "run", plan.config, QUIET, force=False, facts=facts, splits=plan.splits)
    run.simulate()
    data = build.prepare(run.config, plan.splits.train, plan.splits.validation)
    model = build.untrained(run.experiment, run.config)
    header = {
        "model": run.config.model.model_dump(mode="json"),
        "chosen": "state",
        "tried": [{"name": "a", "error": 1.0}],
    }
    write_bytes(run.folder.mle, container.to_bytes(header, model))
    problem = build.assemble(run.config, model, data, with_posterior=False).problem
    draws = Empirical(jnp.stack([problem.prior.mean] * 4))
    problem = Problem(problem.model, problem.partition, problem.prior, problem.likelihood, problem.target, draws)
    nothing = tables.history_columns(np.zeros((0, 3)), np.zeros(0), 1)
    solved = solve.Solved(problem, np.ones(2), {}, {"method": "nuts", "num_draws": 4}, nothing, 1.0)
    point = points.PointChoice("state", run.config, model, header["tried"])
    write_bytes(run.folder.fit, run._fit_of(solved, point, data).to_bytes())
    tables.write_history(run.folder.history, nothing)
    for step in (10, 20):
        tables.add_convergence(run.folder.convergence, step, np.ones(3))
    test = plan.splits.test
    outputs = np.random.default_rng(0).normal(size=(4, test.num_conditions, test.cases().times.shape[1], 2))
    prediction = Prediction(outputs, jnp.stack([problem.prior.mean] * 4))
    tables.write_predictions(run.folder, test, prediction, outputs + 1, problem.partition.names, time_name=None)
    write_json(run.folder.metrics, metrics())
    (run.folder.figures).mkdir()
    write_json(
        run.folder.figure_index, [{"name": "bands", "file": "bands.png", "title": "Bands", "numbers": [["a", 1]]}]
    )
    (run.folder.figures / "bands.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(16))


def metrics() -> dict:
    """What evaluate writes, with the parts that are shown or compared."""
    w1 = {"mean": 0.1, "floor": 0.05, "ratio": 2.0, "to": "training"}
    check = {"name": "coverage", "value": "0.9", "wanted": "0.8 to 0.97", "passed": True, "says": "Well."}
    return {
        **{"experiment": "own", "method": "nuts", "target": "posterior", "stochastic": "all", "rest": "fixed"},
        **{"seed": 0, "energy_score": 0.5, "crps": 0.2, "coverage": {"50": 0.5, "90": 0.9, "95": None}},
        **{"w1": w1, "w1_held_out": {**w1, "data": 0.2}, "rmse": {"x": 1.0}, "rmse_over_std": {"x": 0.5, "v": None}},
        "posterior": {"method": "nuts", "num_draws": 4, "r_hat": 1.01, "is_trusted": True, "reason": "Fine."},
        "training": {"updates": 5, "asked": 5},
        "problem": {"num_weights": 9, "num_stochastic": 3, "inputs": ["force"], "outputs": ["x", "v"], "data": {}},
        "verdict": {"level": "trust", "text": "Trust it.", "checks": [check]},
        "choices": [{"what": "target", "chosen": "posterior", "why": "few"}],
        "data_id": "0" * 64,
        "seconds": {"fit": 1.0, "predict": 0.5},
    }


def read_all(folder: RunFolder, capsys) -> None:
    """All that stages, reports, comparisons and the screen read, short of computing with it."""
    found = existing_run(folder.path, QUIET)
    found.splits()
    found.fitted()
    found._predictions()
    tables.read_convergence(folder.convergence)
    run_page.render_report(folder)
    compare_runs([folder, folder])
    work._finish(folder.path, as_json=False)
    capsys.readouterr()


def test_an_undamaged_run_is_read(run, capsys):
    read_all(RunFolder(run), capsys)


DAMAGED = {
    "provenance.json": (
        *(b"", b"{", b"[]", b"3", b"\xff\xfe", b"[" * 100_000, b'{"versions": {"langenode": 3}}'),
        *(
            {"seconds": 3},
            {"seconds": {"fit": "long"}},
            {"seconds": {"fit": -1}},
            {"columns": [1]},
            {"columns": {"x": 3}},
        ),
        *({"source": 3}, {"source": {"path": 3, "sha256": "0"}}, {"choices": 3}, {"choices": [3]}, {"command": "run"}),
        *({"versions": 3}, {"seed": "x"}, {"started": 3}),
    ),
    "metrics.json": (
        *(b"", b"{", b"[]", b"nonsense", b"[" * 100_000, b"9" * 5000),
        *({"coverage": 3}, {"coverage": {"90": "much"}}, {"seconds": []}, {"seconds": {"fit": None}}, {"w1": 3}),
        *({"w1": {"mean": "x"}}, {"verdict": {"level": "magic"}}, {"verdict": 3}, {"posterior": [1]}, {"crps": "x"}),
        *({"posterior": {"reference_rank": "x"}}, {"training": {"updates": "x"}}, {"problem": {"inputs": 3}}),
        *({"choices": 3}, {"rmse_over_std": 3}, {"reference_posterior": {"mean": 3, "std": 3}}, {"method": []}),
        *(
            {"posterior": {"r_hat": "x"}},
            {"weights": 3, "data_weights": {"comparable": True}},
            {"modes": 3, "w1_exact": 3},
        ),
    ),
    "config.toml": (
        *(
            b"",
            b"\xff",
            b"seed = ",
            b"experiment = 3",
            b"experiment = 'magic'",
            b"a = " + b"[" * 100_000,
            b"experiment = 'own'\n[a",
        ),
        *(
            b"experiment = 'own'\nmethod = ['nuts']",
            b"experiment = 'own'\nseed = " + b"9" * 5000,
            b"experiment = 'own'\nmodel = 3",
        ),
        *(b"experiment = 'own'\n[training]\nnum_updates = 1000000000000", b"experiment = 'own'\nseed = 1979-05-27"),
    ),
    "history.csv": (
        b"",
        b"x",
        b"update,loss\n1,2",
        b"update,loss,data,kl,validation\n1,2,3,4",
        b"\xff\xff",
        b"update,loss,data,kl,validation\n1,a,b,c,d",
    ),
    "convergence.csv": (b"x,y", b"1,2\n1", b"\xff", b"1", b"1,,x", b"\0,1"),
    "figures/index.json": (
        b"{",
        b"3",
        b"[3]",
        b'[{"file": 3}]',
        b'[{"numbers": 3}]',
        b'[{"title": []}]',
        b"[" * 100_000,
    ),
    "predictions.nc": (b"", b"CDF\x01", b"\x89HDF\r\n\x1a\n", b"nonsense", b"CDF\x02" + bytes(100)),
    "data.nc": (b"", b"CDF\x01", b"nonsense"),
    "test.nc": (b"", b"CDF\x02" + bytes(40), b"nonsense"),
    "mle.langenode": (b"", b"nonsense", b"\xff" * 40, bytes(100)),
    "fit.langenode": (b"", b"nonsense", b"\xff" * 40, bytes(100)),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_of_a_run(run, tmp_path, capsys, name):
    from fuzzing import errors_of_ours

    folder = RunFolder(tmp_path / "run")
    shutil.copytree(run, folder.path)
    path = folder.path / name
    whole = path.read_bytes()
    for damage in DAMAGED[name]:
        content = json.dumps(json.loads(whole) | damage).encode() if isinstance(damage, dict) else damage
        path.write_bytes(content)
        with pytest.raises(errors_of_ours()) as caught:
            read_all(folder, capsys)
        said = " ".join(str(caught.value).split())
        assert name.split("/")[-1] in said and said.count(";") >= 1, said


def test_files_of_another_run_are_noticed(run, tmp_path, capsys):
    """Each is whole by itself; together they are no run."""
    from langenode.data import Dataset, load_data, save_data

    folder = RunFolder(tmp_path / "run")
    shutil.copytree(run, folder.path)
    test = load_data(folder.test)
    other = Dataset.from_arrays(test.times, test.outputs, inputs=test.inputs, output_names=("a", "b"))
    save_data(other, folder.test)
    with pytest.raises(RunFolderError, match="same columns"):
        existing_run(folder.path, QUIET).splits()
    save_data(test.select([0]), folder.test)
    shutil.copy(run / "test.nc", folder.test)
    folder.fit.write_bytes(drawn_fit())
    with pytest.raises(FitFileError, match="columns of its run"):
        existing_run(folder.path, QUIET).fitted()
    shutil.copy(run / "fit.langenode", folder.fit)
    folder.mle.write_bytes(container.to_bytes(container.read_header(folder.mle), {"w": np.zeros(3)}))
    with pytest.raises(FitFileError, match="must match the model"):
        existing_run(folder.path, QUIET).fitted()
    shutil.copy(run / "mle.langenode", folder.mle)
    stored = tables.read_predictions(folder.predictions)
    import jax.numpy as jnp

    from langenode.inference.predictions import Prediction

    names = tuple(f"w{i}" for i in range(stored.weights.shape[1] - 1))
    fewer = Prediction(stored.outputs, jnp.asarray(stored.weights[:, 1:]))
    tables.write_predictions(folder, load_data(folder.test), fewer, stored.observable, names, time_name=None)
    with pytest.raises(RunFolderError, match=r"langenode predict .* --force"):
        existing_run(folder.path, QUIET)._predictions()


def test_the_point_s_header_is_checked(run, tmp_path):
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(run, folder.path)
    content = folder.mle.read_bytes()
    header, arrays = header_of(content), load(content)
    odd = [
        {"model": 3},
        {"model": {"layers": "x"}},
        {"model": {}},
        {"chosen": 3},
        {"tried": 3},
        {"tried": [{"name": 3}]},
    ]
    odd += [{"tried": [{"name": "a", "error": math.nan}]}, {"model": header["model"] | {"layers": [10**6, 10**6]}}]
    for change in odd:
        folder.mle.write_bytes(signed(header | change, arrays))
        with pytest.raises(FitFileError):
            existing_run(folder.path, QUIET).point()


def test_a_file_that_is_too_long_for_a_record(tmp_path):
    path = tmp_path / "metrics.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # a hole: it takes no space
    with pytest.raises(RunFolderError, match="more than"):
        read_metrics(RunFolder(tmp_path))
    assert read_provenance(tmp_path / "none.json") == {}


# Configurations


@pytest.mark.parametrize(
    "asked",
    [
        *("method = ['nuts']", "method = 3", "target = 3", "target = []", "model = 3", "training = []", "data = 'x'"),
        *("langevin = 3", "stochastic = {}", "precision = 3", "seed = 1e400", "seed = 4294967296", "seed = 1979-05-27"),
        *(
            "[training]\nlearning_rate = inf",
            "[training]\nlearning_rate = nan",
            "[training]\nnum_updates = 100000000000",
        ),
        *("[model]\nlayers = [1000000000000]", "[prior]\nscale = inf", "[noise]\nsigma = inf", "a.b.c.d = 1"),
        *(
            "[data]\ntime = 3",
            "[data]\ninputs = [3]",
            "[data]\nsplit = [nan, 0.5, 0.5]",
            "[data]\nsplit = 3",
            "rest = true",
        ),
    ],
)
def test_configurations_that_make_no_sense(tmp_path, asked):
    (tmp_path / "readings.csv").write_text(text(rows()))
    (tmp_path / "asked.toml").write_text(asked)
    with pytest.raises(ConfigError) as caught:
        plan_file(tmp_path / "readings.csv", [read_toml(tmp_path / "asked.toml")])
    assert "\n" not in str(caught.value) and ";" in str(caught.value)


def test_configurations_that_no_parser_ends_well_with(tmp_path):
    path = tmp_path / "asked.toml"
    deep = [b"a = " + b"[" * 5000, b"a" + b".a" * 4000 + b" = 1", b"a" + b".a" * 30_000 + b" = 1"]
    for content in (*deep, b"a = " + b"9" * 5000, b"\xff", b"x" * 2_000_000, b"[a]\n[a]"):
        path.write_bytes(content)
        with pytest.raises(ConfigError):
            configure("ou", [read_toml(path)])


def test_a_model_that_no_memory_can_hold(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readings.csv").write_text(text(rows()))
    before = everything(tmp_path)
    for setting in ("model.layers=[1000000,1000000]", "model.layers=[1000000000000]", f"model.layers={[4] * 100}"):
        code, _, err = command(monkeypatch, capsys, "fit", "readings.csv", "--out", "run", "--set", setting)
        assert code == 2 and "at most" in err and len(err.splitlines()) == 1 and everything(tmp_path) == before
    code, _, err = command(monkeypatch, capsys, "simulate", "ou", "--set", "data.num_trajectories=1000000")
    assert code == 2 and "readings" in err
