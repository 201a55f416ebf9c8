"""A grid of runs: what is asked, what is refused before any work, points side by side, resuming, the table and figure.

One sweep is real, its points in this process but for one that is tried again. In the others a point is a small script
in place of `langenode run`, so that failures and interrupts come when they are wanted.
"""

import csv
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import contents, done, in_this_process, langenode, options, shared_programs
from langenode import plots
from langenode.config import ConfigError, parse_overrides, to_toml
from langenode.fitting.choose import configure
from langenode.runs import grid, processes, sweep

TINY = options(
    "method=gaussian-full target=posterior data.num_validation=4 data.num_test=8 data.num_times=8 "
    "training.num_updates=5 training.num_samples=4 training.block=5 mle.num_adam=5 mle.num_lbfgs=0 "
    "predict.num_samples=8 predict.num_weights=16 predict.num_w1_draws=2"
)
REAL = ("sweep", "ou", "--vary", "mle.learning_rate=0.3,0.2,1e30", "--seeds", "3", "--jobs", "1", *TINY)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def flat_numbers(nested: Any, prefix: str = "") -> dict[str, float]:
    """The scalar numbers of a metrics.json, by their dotted names."""
    found: dict[str, float] = {}
    for key, value in nested.items():
        if isinstance(value, dict):
            found |= flat_numbers(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = value
    return found


# A real one


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Three points of the demonstration, of which one cannot be fitted."""
    folder = tmp_path_factory.mktemp("real") / "sweep"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "run_commands", in_this_process)
        return folder, langenode(*REAL, "--out", folder)


NAMES = [f"learning_rate-{rate}_seed-3" for rate in ("0.3", "0.2", "1e+30")]


def test_points_are_ordinary_runs_beside_one_table_and_one_figure(real):
    folder, _ = real
    assert {path.name for path in folder.iterdir()} == {"sweep.csv", "sweep.json", "sweep.png", "logs", *NAMES}
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert all((folder / name / "report.html").exists() for name in NAMES[:2])
    command = json.loads((folder / NAMES[0] / "provenance.json").read_text())["command"]
    assert command[1:3] == ["run", "ou"] and "mle.learning_rate=0.3" in command
    by_hand = configure("ou", [parse_overrides([*TINY[1::2], "mle.learning_rate=0.3", "seed=3"])])
    assert (folder / NAMES[0] / "config.toml").read_text() == to_toml(by_hand)


def test_the_table_has_every_number_of_the_points(real):
    folder, _ = real
    rows = table(folder)
    assert list(rows[0])[:3] == ["mle.learning_rate", "seed", "point"] and list(rows[0])[-1] == "error"
    assert [float(row["mle.learning_rate"]) for row in rows] == [0.3, 0.2, 1e30]
    assert [row["point"] for row in rows] == NAMES and {row["seed"] for row in rows} == {"3"}
    for row in rows[:2]:
        numbers = {k: float(v) for k, v in row.items() if v and k not in ("mle.learning_rate", "point")}
        assert numbers == flat_numbers(json.loads((folder / row["point"] / "metrics.json").read_text()))
    wanted = {"w1.mean", "w1.ratio", "w1_held_out.mean", "energy_score", "crps", "coverage.90", "seconds.fit"}
    assert wanted | {"posterior.relative_ess"} <= set(rows[0])


def test_a_failing_point_does_not_stop_the_others_and_is_named(real):
    folder, found = real
    assert found.code == 3 and "Traceback" not in found.err
    last = found.err.splitlines()[-1]
    assert last.startswith("langenode: every point must be fitted; 1 of 3 failed (learning_rate-1e+30_seed-3); ")
    errors = [row["error"] for row in table(folder)]
    assert errors[:2] == ["", ""] and "must stay finite" in errors[2] and "mle.learning_rate" in errors[2]
    assert set(list(table(folder)[2].values())[3:-1]) == {""}
    record = json.loads((folder / "sweep.json").read_text())
    assert record["failed"] == {NAMES[2]: errors[2]} and record["vary"] == {"mle.learning_rate": [0.3, 0.2, 1e30]}
    assert not record["complete"] and record["seeds"] == [3] and record["metric"] == "w1.ratio"


@pytest.mark.slow
def test_the_same_request_tries_only_what_is_missing(real, monkeypatch):
    """By a process of its own, as for a user, which fails as the point in this one did."""
    folder, _ = real
    for name, value in shared_programs().items():
        monkeypatch.setenv(name, value)
    before = {name: contents(folder / name) for name in NAMES[:2]}
    rows = table(folder)
    found = langenode(*REAL, "--out", folder, "--json")
    assert found.code == 3 and "3 points, 2 of them complete already" in found.err
    assert {name: contents(folder / name) for name in NAMES[:2]} == before and table(folder) == rows
    record = json.loads(found.out)
    assert [row["point"] for row in record["rows"]] == NAMES and set(record["failed"]) == {NAMES[2]}


# Small scripts in place of runs

SCRIPT = """
import json, os, pathlib, signal, sys, time

folder, config, seed, size, begun = sys.argv[1:]
path, begun = pathlib.Path(folder), pathlib.Path(begun)
first = not (begun / path.name).exists()
(begun / path.name).open("a").write("x")
path.mkdir(exist_ok=True)
(path / "config.toml").write_text(config)
(path / "provenance.json").write_text(json.dumps({"versions": {"langenode": "0"}}))
if seed == "7":
    print("Traceback\\nValueError: it is broken\\nlangenode: this is a bug of ours", file=sys.stderr)
    sys.exit(1)
if seed == "8":
    os.kill(os.getpid(), signal.SIGKILL)
if seed == "9" and first:
    os.kill(os.getppid(), signal.SIGINT)
    time.sleep(60)
if seed in ("21", "22"):  # each waits for the other
    until = time.monotonic() + 30
    while len(list(begun.iterdir())) < 2:
        assert time.monotonic() < until, "alone"
        time.sleep(0.01)
metrics = {"seed": int(seed), "method": "none", "crps": 0.1 * int(seed), "w1": {"ratio": float(size), "per_time": [1]}}
metrics |= {"flag": True, "nothing": None, "threads": int(os.environ["NPROC"])}
(path / "metrics.json").write_text(json.dumps(metrics))
(path / "report.html").write_text("")
"""


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Points are scripts; the folder has a file for each that began, a letter a time."""
    folder = tmp_path / "begun"
    folder.mkdir()

    def command(where: sweep.SweepFolder, point: grid.Point) -> list[str]:
        words = (to_toml(point.config), str(point.seed), str(point.config.training.num_samples), str(folder))
        return [sys.executable, "-c", SCRIPT, str(where.run(point).path), *words]

    monkeypatch.setattr(grid, "command", command)
    monkeypatch.setattr(processes, "SECONDS_TO_STOP", 0.0)
    for name in processes.THREADS:
        monkeypatch.delenv(name, raising=False)
    return folder


def starts(begun: Path) -> dict[str, int]:
    return {path.name: len(path.read_text()) for path in begun.iterdir()}


def test_the_grid_is_every_combination_and_every_seed(begun, tmp_path):
    words = ("--vary", "training.num_samples=32,64,512", "--vary", "langevin.num_steps=2,4", "--seeds", "1,2")
    found = done("sweep", "ou", *words, "--out", tmp_path / "s", "--json")
    record = json.loads(found.out)
    expected = [(n, k, seed) for n in (32, 64, 512) for k in (2, 4) for seed in (1, 2)]
    assert [(r["training.num_samples"], r["langevin.num_steps"], r["seed"]) for r in record["rows"]] == expected
    assert record["points"] == [f"num_samples-{n}_num_steps-{k}_seed-{seed}" for n, k, seed in expected]
    rows = table(tmp_path / "s")
    header = ["training.num_samples", "langevin.num_steps", "seed", "point", "crps", "w1.ratio", "threads", "error"]
    assert list(rows[0]) == header
    assert [float(row["w1.ratio"]) for row in rows] == [n for n, _, _ in expected]
    assert record["complete"] and record["failed"] == {} and record["metric"] == "w1.ratio"
    assert set(starts(begun)) == set(record["points"])
    # And as a table for people, from the same files: nothing is run again.
    assert "w1.ratio" in done("sweep", "ou", *words, "--out", tmp_path / "s").out
    assert set(starts(begun).values()) == {1}


def test_points_run_side_by_side_with_a_share_of_the_cores(begun, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "num_cores", lambda: 6)
    done("sweep", "ou", "--seeds", "21,22", "--jobs", "2", "--out", tmp_path / "s")
    assert [row["threads"] for row in table(tmp_path / "s")] == ["3", "3"]


def test_an_interrupted_sweep_goes_on(begun, tmp_path):
    folder = tmp_path / "s"
    words = ("sweep", "ou", "--seeds", "1,9,3", "--jobs", "1", "--out", folder)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found = langenode(*words)
    finally:
        signal.signal(signal.SIGINT, before)
    assert found.code == 130 and found.err.splitlines()[-1].endswith("the same command resumes where it was")
    assert starts(begun) == {"seed-1": 1, "seed-9": 1}
    assert {path.name for path in folder.iterdir()} == {"seed-1", "seed-9", "logs", "sweep.json"}
    other = langenode(*words[:3], "1,9", "--out", folder)
    assert other.code == 2 and "seeds" in other.err
    assert "1 of them complete already" in done(*words).err
    assert starts(begun) == {"seed-1": 1, "seed-9": 2, "seed-3": 1}
    assert [row["seed"] for row in table(folder)] == ["1", "9", "3"]


def test_what_a_point_died_of_is_said(begun, tmp_path):
    found = langenode("sweep", "ou", "--seeds", "1,7,8", "--out", tmp_path / "s", "--json")
    assert found.code == 3 and set(json.loads(found.out)["failed"]) == {"seed-7", "seed-8"}
    errors = [row["error"] for row in table(tmp_path / "s")]
    log = tmp_path / "s" / "logs" / "seed-7.log"
    assert errors[:2] == ["", f"exit code 1: ValueError: it is broken; see {log}"] and "signal 9" in errors[2]
    assert "Traceback" in log.read_text()


def test_nothing_but_failures_still_gives_a_table(begun, tmp_path):
    assert langenode("sweep", "ou", "--seeds", "7,8", "--metric", "crps", "--out", tmp_path / "s").code == 3
    assert [bool(row["error"]) for row in table(tmp_path / "s")] == [True, True]
    assert not (tmp_path / "s" / "sweep.png").exists()


def test_another_request_is_refused_and_force_replaces_the_sweep_only(begun, tmp_path):
    folder = tmp_path / "s"
    done("sweep", "ou", "--seeds", "1,2", "--out", folder)
    (folder / "notes.txt").write_text("mine")
    before = contents(folder)
    for words in (["--seeds", "1"], ["--seeds", "1,2", "--set", "prior.scale=2.0"], ["--vary", "prior.scale=1.0,2.0"]):
        refused = langenode("sweep", "ou", *words, "--out", folder)
        assert refused.code == 2 and len(refused.err.splitlines()) == 1 and refused.err.count(";") >= 2
        assert "use --force or another --out" in refused.err and contents(folder) == before
    done("sweep", "ou", "--seeds", "2,4", "--out", folder, "--force")
    assert starts(begun) == {"seed-1": 1, "seed-2": 2, "seed-4": 1}
    names = {"seed-2", "seed-4", "logs", "notes.txt", "sweep.csv", "sweep.json", "sweep.png"}
    assert {path.name for path in folder.iterdir()} == names


def test_force_removes_nothing_outside_the_folder(begun, tmp_path):
    folder = tmp_path / "runs" / "s"
    done("sweep", "ou", "--seeds", "1,2", "--out", folder)
    record = json.loads((folder / "sweep.json").read_text())
    (tmp_path / "runs" / "config.toml").write_text("")
    (tmp_path / "runs" / "mine").mkdir()
    (tmp_path / "runs" / "mine" / "config.toml").write_text("")
    (folder / "sweep.json").write_text(json.dumps(record | {"points": ["..", "../mine", ".", "", "seed-1"]}))
    done("sweep", "ou", "--seeds", "1,2", "--out", folder, "--force")
    assert (tmp_path / "runs" / "mine" / "config.toml").exists() and (tmp_path / "runs" / "config.toml").exists()
    assert starts(begun) == {"seed-1": 2, "seed-2": 1}


def test_the_order_of_keys_is_part_of_the_request(begun, tmp_path):
    one, two = ("--vary", "prior.scale=1.0,2.0"), ("--vary", "training.num_samples=4,8")
    done("sweep", "ou", *one, *two, "--out", tmp_path / "s")
    refused = langenode("sweep", "ou", *two, *one, "--out", tmp_path / "s")
    assert refused.code == 2 and "(points)" in refused.err


def test_a_folder_of_other_things_is_left_alone(begun, tmp_path):
    (tmp_path / "s" / "seed-1").mkdir(parents=True)
    for force in ([], ["--force"]):
        found = langenode("sweep", "ou", "--seeds", "1,2", "--out", tmp_path / "s", *force)
        assert found.code == 2 and "needs an empty folder" in found.err
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["seed-1"] and not starts(begun)


def test_a_point_of_other_settings_is_not_taken_for_ours(begun, tmp_path):
    """As after a change of defaults between versions."""
    words = ("sweep", "ou", "--seeds", "1,2", "--out", tmp_path / "s")
    done(*words)
    (tmp_path / "s" / "seed-1" / "config.toml").write_text("seed = 1\n")
    found = langenode(*words)
    assert found.code == 2 and "seed-1/config.toml differ" in found.err
    shutil.rmtree(tmp_path / "s" / "seed-1")
    done(*words)
    assert starts(begun) == {"seed-1": 2, "seed-2": 1}


def test_another_metric_is_drawn_without_any_work(begun, tmp_path):
    words = ("sweep", "ou", "--seeds", "1,2", "--out", tmp_path / "s")
    unknown = langenode(*words, "--metric", "w1.ration")
    assert unknown.code == 2 and "did you mean w1.ratio?" in unknown.err and unknown.err.count(";") >= 2
    assert len(table(tmp_path / "s")) == 2 and not (tmp_path / "s" / "sweep.png").exists()
    done(*words, "--metric", "crps")
    first = (tmp_path / "s" / "sweep.png").read_bytes()
    done(*words)
    assert first != (tmp_path / "s" / "sweep.png").read_bytes() and set(starts(begun).values()) == {1}


# What is asked


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--vary", "training.num_sample=1,2"], "did you mean training.num_samples?"),
        (["--vary", "training.num_samples=8,1"], "training.num_samples"),
        (["--vary", "training.num_samples=8,many"], "'many'"),
        (["--vary", "training.num_samples=8,,16"], "training.num_samples"),
        (["--vary", "training.num_samples"], "section.key=value,value"),
        (["--vary", "training.num_samples="], "section.key=value,value"),
        (["--vary", "method=bottleneck,langevin", "--target", "posterior"], "bottleneck"),
        (["--vary", "stochastic=all,function"], "cannot hold a function"),
        (["--vary", "prior.scale=1,2,1.0"], "scale-1.0 comes twice"),
        (["--vary", "prior.scale=1,2", "--vary", "prior.scale=3"], "varied once"),
        (["--vary", "seed=1,2"], "use --seeds"),
        (["--vary", "experiment=ou,own"], "experiment"),
        (["--seeds", "1,-2"], "seed"),
        (["--seeds", ""], "vary something"),
        ([], "vary something"),
        (["--vary", "prior.scale=1,2", "--set", "nonsense=1"], "no nonsense"),
    ],
)
def test_what_is_wrong_is_seen_before_any_work(tmp_path, monkeypatch, words, says):
    def fail(*_, **__):
        raise AssertionError("work has begun")

    monkeypatch.setattr(grid, "run_commands", fail)
    found = langenode("sweep", "ou", *words, "--out", tmp_path / "s")
    assert found.code == 2 and says in found.err, found.err
    assert len(found.err.splitlines()) == 1 and found.err.count(";") >= 2, found.err
    assert not (tmp_path / "s").exists()


def test_an_unknown_experiment_is_refused():
    found = langenode("sweep", "nonsense", "--seeds", "1,2")
    assert found.code == 2 and "an experiment must be one of" in found.err


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("32,64", [32, 64]),
        ("1e-3, 0.5", [1e-3, 0.5]),
        ("tanh,relu", ["tanh", "relu"]),
        ("none,0.5", ["none", 0.5]),
        ("true,false", [True, False]),
        ("[[8],[16,16]]", [[8], [16, 16]]),
        ("[8],[16,16]", [[8], [16, 16]]),
        ("[[],[8]]", [[], [8]]),
        ("[16,16]", [[16, 16]]),
        ('"a,b",c', ['"a', 'b"', "c"]),
        ('"a,b","c"', ["a,b", "c"]),
    ],
)
def test_a_list_of_values(text, values):
    assert grid.parse_values(text) == values


def test_the_words_of_a_point_are_its_configuration():
    vary = sweep.parse_vary(["model.layers=[[],[8,4]]", "langevin.layers=[[4],[8]]", "noise.sigma=0.1,none"])
    layers = [{"method": "langevin", "langevin": {"grid": "uniform"}, "prior": {"scale": 1e-5}}, {"rest": "refit"}]
    plan = sweep.make_plan("ou", layers, vary, [1, 2])
    assert len(plan.points) == 16 and len({point.name for point in plan.points}) == 16
    assert plan.points[0].name == "model.layers-empty_langevin.layers-4_sigma-0.1_seed-1"
    assert plan.points[-1].name == "model.layers-8x4_langevin.layers-8_sigma-none_seed-2"
    for point in plan.points:
        assert configure("ou", [parse_overrides(point.settings)]) == point.config
        assert re.fullmatch(r"[\w.+-]+", point.name)
    assert plan.points[-1].config.model.layers == (8, 4) and plan.points[-1].config.noise.sigma is None


def test_options_without_effect_are_said(begun, tmp_path):
    found = done("sweep", "ou", "--vary", "gaussian-lowrank.rank=2,4", "--out", tmp_path / "s")
    assert "note: gaussian-lowrank.rank has no effect with method langevin" in found.err


def test_an_empty_plan_is_refused():
    with pytest.raises(ConfigError, match="vary something"):
        sweep.make_plan("ou", [], {}, None)


# The figure


def test_the_figure_has_medians_seeds_and_bands():
    values, nan = [64, 32, 512], np.nan
    lines = {"2": np.array([[1.0, 2.0, 6.0], [3.0, nan, 5.0], [nan, nan, nan]]), "4": np.ones((3, 3))}
    axis = plots.sweep_lines(values, lines, xlabel="a.b", ylabel="crps", legend="c.d").axes[0]
    assert axis.get_xscale() == "log" and (axis.get_xlabel(), axis.get_ylabel()) == ("a.b", "crps")
    median, seeds = axis.lines[:2]
    np.testing.assert_array_equal(median.get_xdata(), [32, 64, 512])
    np.testing.assert_array_equal(median.get_ydata(), [4.0, 2.0, nan])
    np.testing.assert_array_equal(seeds.get_ydata()[:6], [3.0, nan, 5.0, 1.0, 2.0, 6.0])
    assert len(axis.collections) == 2  # a band a line
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["2", "4"]


@pytest.mark.parametrize(
    ("values", "scale"), [([1, 8], "linear"), ([1, 9], "log"), ([0, 9], "linear"), ([[8], [16, 16]], "linear")]
)
def test_the_scale_of_the_first_axis(values, scale):
    figure = plots.sweep_lines(values, {"": np.ones((2, 1))}, xlabel="x", ylabel="y")
    assert figure.axes[0].get_xscale() == scale and figure.axes[0].get_legend() is None


def test_many_lines_have_colours_of_their_own():
    lines = {str(i): np.full((2, 1), float(i)) for i in range(12)}
    axis = plots.sweep_lines([1, 2], lines, xlabel="x", ylabel="y", legend="i").axes[0]
    assert len({tuple(np.atleast_1d(line.get_color())) for line in axis.lines}) == 12


def test_cores_are_counted():
    assert 1 <= processes.num_cores() <= (os.cpu_count() or 1)
