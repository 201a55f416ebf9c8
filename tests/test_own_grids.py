"""A user's own file in `compare --data` and `sweep FILE`: the same runs, tables and resumption as demonstrations have.

Runs that would be processes of their own are made in this one.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import contents, done, frame, in_this_process, langenode, options
from langenode.config import ConfigError, parse_overrides
from langenode.fitting.plan import plan_file
from langenode.runs import grid, methods, sweep
from langenode.runs.own_file import OwnFile
from langenode.runs.processes import Ended

# Of a model that is hardly fitted.
pytestmark = pytest.mark.filterwarnings("ignore:the draws of laplace are not to be trusted")
SMALL = (
    "data.folds=none noise.calibrate=false mle.num_adam=5 mle.num_lbfgs=0 model.kind=state model.layers=[4] "
    "model.largest_step=1.0 predict.num_samples=32 predict.num_weights=64 laplace.num=64"
)
TINY = options(SMALL)
NAMED = {"id": "Probe [#]", "t": "elapsed time/s", "force": "F (N)", "x": "x_mm"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "run_commands", in_this_process)
        folder = tmp_path_factory.mktemp("home")
        frame().rename(columns=NAMED).to_csv(folder / "readings.csv", index=False)
        yield folder


COMPARE = ("compare", "--data", "readings.csv", "--methods", "map,laplace,bottleneck", "--seeds", "3", *TINY)


@pytest.fixture(scope="module")
def compared(home):
    return done(*COMPARE, "--inputs", "F (N)", cwd=home)


@pytest.mark.slow
def test_methods_are_compared_on_a_file(home, compared):
    folder = home / "runs" / "readings-comparison"
    made = {"comparison.html", "comparison.json", "comparison.csv", "bands.png", "time.png", "logs"}
    assert {path.name for path in folder.iterdir()} == made | {"map-3", "laplace-3"}
    assert "readings.csv: 2 methods compared" in (folder / "comparison.html").read_text()
    assert "time: column 'elapsed time/s', by its name" in compared.err and "inputs: given" in compared.err
    assert "note: bottleneck is not run" in compared.err
    record = json.loads((folder / "comparison.json").read_text())
    assert record["complete"] and record["data"]["path"] == "readings.csv" and set(record["refused"]) == {"bottleneck"}
    assert {row["label"] for table in record["standings"] for row in table["rows"]} == {"map", "laplace"}
    assert list(pd.read_csv(folder / "comparison.csv")["run"]) == ["map-3", "laplace-3"]


@pytest.mark.slow
def test_the_runs_are_fits_of_the_file_that_share_their_start(home, compared):
    folder = home / "runs" / "readings-comparison"
    for name in ("data.nc", "validation.nc", "test.nc", "mle.langenode"):
        assert len({(folder / run / name).read_bytes() for run in ("map-3", "laplace-3")}) == 1
    plan = OwnFile(home / "readings.csv").plan([])
    for run in ("map-3", "laplace-3"):
        provenance = json.loads((folder / run / "provenance.json").read_text())
        assert provenance["source"]["sha256"] == plan.source["sha256"]
        assert provenance["columns"]["trajectory"] == "Probe [#]" and provenance["choices"]
        bands = pd.read_csv(folder / run / "bands.csv")
        assert list(bands)[:4] == ["Probe [#]", "elapsed time/s", "F (N)", "x_mm"]
    command = json.loads((folder / "laplace-3" / "provenance.json").read_text())["command"]
    assert command[:3] == ["langenode", "fit", "readings.csv"]


@pytest.mark.slow
def test_a_comparison_of_a_file_resumes_and_notices_that_the_file_changed(home, compared):
    folder = home / "runs" / "readings-comparison"
    before = {name: contents(folder / name) for name in ("map-3", "laplace-3")}
    again = done(*COMPARE, "--inputs", "F (N)", "--json", cwd=home)
    assert "2 runs, 2 of them complete already" in again.err and json.loads(again.out)["complete"]
    assert {name: contents(folder / name) for name in before} == before
    text = (home / "readings.csv").read_text()
    (home / "readings.csv").write_text(text + "9,0.0,0.1,0.2\n9,0.25,0.1,0.25\n")
    refused = langenode(*COMPARE, "--inputs", "F (N)", cwd=home)
    (home / "readings.csv").write_text(text)
    assert refused.code == 2 and "was asked otherwise (data)" in refused.err
    assert {name: contents(folder / name) for name in before} == before


@pytest.mark.slow
def test_a_sweep_of_a_file(home):
    words = ("sweep", "readings.csv", "--vary", "mle.learning_rate=0.01,0.02", "--method", "map", *TINY)
    found = done(*words, "--json", cwd=home)
    folder = home / "runs" / "readings-sweep"
    rows = pd.read_csv(folder / "sweep.csv")
    assert list(rows["mle.learning_rate"]) == [0.01, 0.02] and bool(np.all(rows["error"].isna()))
    for row in rows.to_dict("records"):
        stored = json.loads((folder / row["point"] / "metrics.json").read_text())
        assert row["crps"] == stored["crps"] and stored["experiment"] == "own"
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads(found.out)
    assert record["metric"] == "crps" and record["data"]["path"] == "readings.csv"
    again = done(*words, cwd=home)
    assert "2 points, 2 of them complete already" in again.err and "readings.csv: 2 points" in again.out
    assert "skill.ratio" in again.out


def test_a_point_that_read_other_data_is_named(home, tmp_path, monkeypatch):
    def changed(commands, logs, *, jobs, on_end):
        for name, words in commands.items():
            run = Path(words[words.index("--out") + 1])
            run.mkdir()
            (run / "provenance.json").write_text(json.dumps({"source": {"path": "a", "sha256": "0" * 64}}))
            on_end(name, Ended(0, "{}", logs / name, 0.0))

    monkeypatch.setattr(grid, "run_commands", changed)
    found = langenode("sweep", home / "readings.csv", "--seeds", "1", "--out", tmp_path / "s", *TINY)
    assert found.code == 3 and "readings.csv has changed meanwhile" in found.err


def test_points_have_the_configuration_of_a_fit_by_hand(home):
    path = home / "readings.csv"
    layers = [parse_overrides(SMALL.split())]
    made = sweep.make_plan(OwnFile(path), layers, {"model.num_hidden": [1, 3]}, [5])
    for point, num in zip(made.points, (1, 3), strict=True):
        assert point.config == plan_file(path, [*layers, {"model": {"num_hidden": num}, "seed": 5}]).config
        assert point.config == plan_file(path, [parse_overrides(point.settings)]).config
    assert grid.title_of(made.request) == "readings.csv" and made.request["experiment"] == "own"


def test_a_file_is_read_once(home, monkeypatch):
    from langenode.fitting import plan

    calls = []
    read = plan.read_data
    monkeypatch.setattr(plan, "read_data", lambda *words: calls.append(words) or read(*words))
    own = OwnFile(home / "readings.csv")
    methods.make_plan(own, [{"target": "posterior"}], ["map", "laplace", "langevin"], [1, 2])
    assert len(calls) == 1


def test_a_target_that_the_data_suggest_is_said(tmp_path, monkeypatch):
    table = frame(num=12).assign(force=0.0, x=lambda t: 1.0 + 0.1 * t["x"] * t["t"]).drop(columns="force")
    table.to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.setattr(grid, "run_commands", lambda *_, **__: (_ for _ in ()).throw(ConfigError("a; b; c")))
    found = langenode("compare", "--data", "a.csv", "--methods", "map", cwd=tmp_path)
    assert "fit would take target hierarchical" in found.err and "add --target hierarchical" in found.err
    asked = langenode("compare", "--data", "a.csv", "--methods", "langevin", "--target", "population", cwd=tmp_path)
    assert "fit would take" not in asked.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep", "nonsense", "--seeds", "1"], "or a file of your own; got 'nonsense'"),
        (["sweep", "ou", "--seeds", "1", "--outputs", "x"], "columns are those of a file"),
        (["sweep", "readings.csv"], "a sweep must vary something"),
        (["sweep", "readings.csv", "--vary", "model.num_hiden=1,2"], "did you mean model.num_hidden?"),
        (["compare", "--data", "readings.csv", "--outputs", "nonsense"], "nonsense"),
        (["compare", "--data", "run"], "is the folder of a run"),
    ],
)
def test_what_is_wrong_is_seen_before_any_work(tmp_path, words, says):
    frame().to_csv(tmp_path / "readings.csv", index=False)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("experiment = 'own'\n")
    found = langenode(*words, "--out", "c", cwd=tmp_path)
    assert found.code == 2 and says in found.err, found.err
    assert found.err.splitlines()[-1].count(";") >= 2, found.err
    assert not (tmp_path / "c").exists()
