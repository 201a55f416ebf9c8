"""The command's contract: help, completion, JSON, exit codes, stages, resuming, and predictions from a fit alone."""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from commands import OU, OWN, contents, done, frame, langenode, metrics_of, shared_programs
from langenode.config import parse_overrides, read_toml
from langenode.data import Columns
from langenode.fitting.plan import plan_file
from langenode.storage.folder import RunFolder

VERBS = ("run", "simulate", "fit", "predict", "evaluate", "report", "compare", "sweep", "reproduce", "check", "methods")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of the demonstration by another process, its progress in a log file."""
    folder = tmp_path_factory.mktemp("whole")
    with (folder / "log").open("wb") as log:
        words = [sys.executable, "-m", "langenode", "run", "ou", "--json", "--out", str(folder / "run"), *OU]
        found = subprocess.run(words, stdout=subprocess.PIPE, stderr=log, env=shared_programs())
    assert found.returncode == 0, (folder / "log").read_text()
    return folder, found.stdout.decode()


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A fit to a user's file by the configuration that `check` wrote."""
    folder = tmp_path_factory.mktemp("own")
    frame().to_csv(folder / "readings.csv", index=False)
    checked = done("check", "readings.csv", cwd=folder)
    fitted = done("fit", "readings.csv", "--config", "config.toml", "--out", "run", *OWN, cwd=folder)
    return folder, checked, fitted


# Words


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_a_page_with_examples(verb):
    page = done(verb, "--help").out
    assert done(verb, "-h").out == page
    assert f"Usage: langenode {verb}" in page and "Example" in page and f"langenode {verb} " in page.split("Example")[1]
    assert "--json" in page and "--verbose" in page


def test_the_first_page_has_every_verb_the_exit_codes_and_examples():
    page = done("--help").out
    assert all(re.search(rf"^│ {verb} +[A-Z]", page, re.MULTILINE) for verb in VERBS)
    assert "Examples" in page and all(f"{code} " in page.split("Exit codes")[1] for code in (0, 1, 2, 3, 130))
    assert done().out == page  # nothing said is a question, too


def test_the_version():
    from langenode import __version__

    assert done("--version").out == f"langenode {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("langenode ", VERBS),
        ("langenode run ", ("ou", "schlogl", "hyperelastic", "viscoelastic")),
        ("langenode run ou --method gaussian-", ("gaussian-full", "gaussian-lowrank", "gaussian-diagonal")),
        ("langenode fit a.csv --target p", ("posterior", "population")),
        ("langenode fit a.csv --rest ", ("fixed", "refit")),
        ("langenode compare --fo", ("--force",)),
    ],
)
def test_completion(monkeypatch, typed, expected):
    for name, value in (("COMPLETE", "complete_bash"), ("COMP_WORDS", typed), ("CWORD", str(typed.count(" ")))):
        monkeypatch.setenv({"COMPLETE": "_LANGENODE_COMPLETE", "CWORD": "COMP_CWORD"}.get(name, name), value)
    assert tuple(done().out.split()) == expected


def test_completion_can_be_shown_for_a_shell(monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    shown = done("--show-completion", "bash").out
    assert "complete -o default -F _langenode_completion langenode" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "No such command 'nonsense'; see langenode --help"),
        (["run"], "Missing argument 'EXPERIMENT'; see langenode run --help"),
        (["run", "ou", "--nonsense"], "see langenode run --help"),
        (["run", "ou", "--seed", "x"], "'--seed'"),
        (["predict", "a", "--data", "b", "--samples", "1"], "'--samples'"),
    ],
)
def test_a_wrong_word_gives_one_line(words, message):
    found = langenode(*words, "--json")
    assert found.code == 2 and message in found.err and len(found.err.splitlines()) == 1
    assert json.loads(found.out)["exit_code"] == 2


# Stages


@pytest.mark.slow
def test_stages_one_by_one_are_the_run(whole, tmp_path):
    folder = tmp_path / "run"
    done("simulate", "ou", "--out", folder, *OU)
    assert {entry.name for entry in folder.iterdir()} == {
        *("config.toml", "provenance.json", "data.nc", "validation.nc", "test.nc")
    }
    for verb, product in (
        *(("fit", "fit.langenode"), ("predict", "predictions.nc")),
        *(("evaluate", "metrics.json"), ("report", "report.html")),
    ):
        assert not (folder / product).exists()
        done(verb, folder)
        assert (folder / product).exists()
    assert metrics_of(folder) == metrics_of(whole[0] / "run")
    assert (folder / "history.csv").read_bytes() == (whole[0] / "run" / "history.csv").read_bytes()
    names = [sorted(str(p.relative_to(root)) for p in root.rglob("*")) for root in (folder, whole[0] / "run")]
    assert names[0] == names[1]


# A shell's background job has SIGINT ignored, and so have its children: this one must hear it.
HELD = """
import signal, sys
from langenode.fitting import checkpoints, progress
from langenode.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)
checkpoints.SECONDS = 0.0
update = progress.Reporter.update

def held(self, state):
    update(self, state)
    if state.step == 30:
        print("held", flush=True)
        sys.stdin.read()

progress.Reporter.update = held
main()
"""


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_and_the_folder_is_locked_meanwhile(whole, tmp_path):
    """The process stops in the middle of training and waits for the signal, so nothing depends on its speed."""
    folder = tmp_path / "run"
    words = ("run", "ou", "--out", str(folder), *OU)
    pipe = subprocess.PIPE
    command, environment = [sys.executable, "-c", HELD, *words], shared_programs()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdin and process.stdout and process.stderr
        assert process.stdout.readline() == "held\n", process.stderr.read()
        before = contents(folder)
        second = langenode(*words)
        assert second.code == 2 and "in use" in second.err and len(second.err.splitlines()) == 1
        assert langenode(*words, "--force").code == 2  # which must not remove a run that is at work
        assert langenode("evaluate", folder).code == 2
        assert contents(folder) == before
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1] == "langenode: interrupted; the same command resumes where it was"
    assert "Traceback" not in err
    assert (folder / "checkpoint.langenode").exists() and not (folder / ".lock").exists()
    again = done(*words)
    assert "resuming at update 20" in again.err
    assert (folder / "history.csv").read_bytes() == (whole[0] / "run" / "history.csv").read_bytes()
    assert metrics_of(folder) == metrics_of(whole[0] / "run")


# A file of one's own


def test_check_says_what_it_understood_and_its_file_is_the_defaults(own):
    folder, checked, fitted = own
    for words in ("column 'id', by its name", "column 't', by its name", "by name: force", "columns: x", "posterior"):
        assert words in checked.out
    assert checked.err == "" and "langenode fit readings.csv" in checked.out
    text = (folder / "config.toml").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "["))]
    assert lines and all("  # " in line for line in lines), "a value without a comment"
    # All but columns and the seed is left open: a value that is given is one that nothing else may be compared with.
    settled = read_toml(folder / "config.toml")
    assert set(settled.pop("data")) <= set(Columns._fields) and settled.pop("seed") == 0
    assert not any(settled.values())
    shown = [tomllib.loads(line[2:]) for line in text.splitlines() if re.match(r"# \w+ = \S", line)]
    assert {"method", "target", "kind", "num_updates"} <= set().union(*shown)
    with contextlib.chdir(folder):
        path = Path("readings.csv")
        chosen, defaults = plan_file(path, [read_toml(Path("config.toml"))]), plan_file(path, [])
    assert chosen.config == defaults.config
    stored = read_toml(folder / "run" / "config.toml")
    assert stored["data"]["inputs"] == ["force"] and stored["training"]["num_updates"] == 20
    assert "by name: force" in fitted.err or "inputs: given" in fitted.err


def test_check_leaves_a_changed_configuration_alone(own, tmp_path):
    shutil.copy(own[0] / "readings.csv", tmp_path)
    first = json.loads(done("check", "readings.csv", "--json", cwd=tmp_path).out)
    assert first["config_written"] and first["trajectories"] == 6 and first["outputs"][0]["name"] == "x"
    (tmp_path / "config.toml").write_text("seed = 7\n")
    kept = done("check", "readings.csv", cwd=tmp_path)
    assert "was left alone" in kept.out and (tmp_path / "config.toml").read_text() == "seed = 7\n"
    done("check", "readings.csv", "--force", cwd=tmp_path)
    assert read_toml(tmp_path / "config.toml")["seed"] == 0


def test_a_fit_has_its_files_and_json(own):
    folder, _, fitted = own
    assert "The run is in run; open run/report.html" in fitted.out
    before = contents(folder / "run")
    words = ("fit", "readings.csv", "--config", "config.toml", "--out", "run", "--json", *OWN)
    found = json.loads(done(*words, cwd=folder).out)
    assert found["metrics"]["verdict"]["level"] in ("trust", "caution", "distrust")
    assert {"run/fit.langenode", "run/report.html", "run/metrics.json"} <= set(found["files"])
    assert contents(folder / "run") == before


def test_a_fit_has_the_bands_of_held_out_trajectories_beside_their_readings(own):
    folder = own[0]
    written = pd.read_csv(folder / "run" / "bands.csv")
    given = frame()
    chosen = set(written["id"])
    held_out = pd.DataFrame(given[[label in chosen for label in given["id"]]]).reset_index(drop=True)
    assert 0 < len(chosen) < len(set(given["id"]))
    pd.testing.assert_frame_equal(pd.DataFrame(written, columns=list(given)), held_out, check_exact=True)
    stored = xr.load_dataset(folder / "run" / "predictions.nc", engine="scipy")
    assert stored["observations"].dims == stored["outputs"].dims
    x, low, high, t = (written[name].to_numpy() for name in ("x", "x_observation_05", "x_observation_95", "t"))
    inside = (x >= low) & (x <= high)
    coverage = json.loads((folder / "run" / "metrics.json").read_text())["coverage"]["90"]
    assert float(inside[t > 0].mean()) == pytest.approx(coverage, abs=1e-12)  # the start is not scored


def test_a_fit_is_scored_beside_plain_predictors(own):
    folder, _, fitted = own
    found = json.loads((folder / "run" / "metrics.json").read_text())
    skill = found["skill"]
    assert set(skill["baselines"]) == {"resampled", "gp", "carried"}
    for one in (skill, *skill["baselines"].values()):
        assert one["crps"] > 0.0 and 0.0 <= one["coverage"] <= 1.0 and one["width"] > 0.0
    best = skill["baselines"][skill["best"]]["crps"]
    assert best == min(one["crps"] for one in skill["baselines"].values())
    assert skill["ratio"] == pytest.approx(skill["crps"] / best, rel=1e-12)
    check = found["verdict"]["checks"][0]
    assert check["name"] == "CRPS over that of the best plain predictor" and skill["best"] in check["value"]
    if check["passed"] is not True:
        assert found["verdict"]["level"] != "trust"
    assert found["coverage_check"]["num_trajectories"] == skill["num_trajectories"]
    assert "CRPS over that of the best plain predictor" in fitted.out
    page = (folder / "run" / "report.html").read_text()
    assert "Training trajectories resampled" in page and "Beside plain predictors" in page


def test_comparing_runs(own, tmp_path):
    shutil.copytree(own[0] / "run", tmp_path / "a")
    shutil.copytree(own[0] / "run", tmp_path / "b")
    found = done("compare", "a", "b", cwd=tmp_path)
    assert "Ranked by" in found.out and "comparison.html" in found.out
    page = (tmp_path / "comparison.html").read_bytes()
    refused = langenode("compare", "a", "b", cwd=tmp_path)
    assert refused.code == 2 and "not overwritten" in refused.err
    assert (tmp_path / "comparison.html").read_bytes() == page
    record = json.loads(done("compare", "a", "b", "--force", "--json", cwd=tmp_path).out)
    assert [run["name"] for run in record["runs"]] == ["a", "b"] and record["page"] == "comparison.html"


@pytest.fixture(scope="module")
def alone(own, tmp_path_factory):
    """The fit's file and nothing else of the run, new data, and the bands for them."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copy(own[0] / "run" / "fit.langenode", folder / "law.langenode")
    table = frame(num=2, seed=1).assign(id=lambda t: t["id"].map({0: "a", 1: "b"}))
    table.to_csv(folder / "new.csv", index=False)
    found = done("predict", "law.langenode", "--data", "new.csv", "--json", cwd=folder)
    return folder, table, json.loads(found.out)


def bands_of(folder: Path, stem: str) -> xr.Dataset:
    return xr.load_dataset(folder / f"{stem}.nc", engine="scipy")


def test_a_fit_predicts_without_the_run_or_its_data(alone, own):
    folder, table, found = alone
    assert found["files"] == ["new-bands.nc", "new-bands.csv", "new-bands.png"]
    assert (found["samples"], found["conditions"]) == (32, 2)
    assert (folder / "new-bands.png").read_bytes().startswith(b"\x89PNG")
    bands = bands_of(folder, "new-bands")
    assert bands["outputs"].dims == ("sample", "condition", "time", "out")
    assert [str(name) for name in bands["condition"].to_numpy()] == ["a", "b"]
    written = pd.read_csv(folder / "new-bands.csv")
    assert list(written)[:5] == ["id", "t", "force", "x", "x_mean"]
    pd.testing.assert_frame_equal(pd.DataFrame(written, columns=list(table)), table, check_exact=True)
    np.testing.assert_array_equal(written["x_mean"], bands["mean"].to_numpy().ravel())
    quantiles = np.quantile(bands["observations"].to_numpy()[:, 1, 3, 0], [0.05, 0.95], method="weibull")
    ends = [written[f"x_observation_{level}"].to_numpy()[9] for level in ("05", "95")]
    np.testing.assert_array_equal(ends, quantiles)
    assert np.all(written["x_observation_05"] < written["x_observation_95"])
    # The bands begin at the readings, with their noise: means of 32 draws.
    begins = bands["outputs"].to_numpy()[:, :, 0, 0]
    error = begins.mean(0) - table.loc[table["t"] == 0, "x"].to_numpy()
    assert np.all(begins.std(0) > 0) and np.all(np.abs(error) < 5 * begins.std(0) / np.sqrt(31))
    # So does the folder of a run whose data are gone.
    bare = folder / "bare"
    bare.mkdir(exist_ok=True)
    for name in ("config.toml", "fit.langenode"):
        shutil.copy(own[0] / "run" / name, bare)
    done("predict", "bare", "--data", "new.csv", "--out", "again.nc", cwd=folder)
    assert (folder / "again.csv").read_bytes() == (folder / "new-bands.csv").read_bytes()


def as_csv(table: pd.DataFrame, folder: Path) -> str:
    table.to_csv(folder / "new.csv", index=False)
    return "new.csv"


def as_parquet(table: pd.DataFrame, folder: Path) -> str:
    table.to_parquet(folder / "new.parquet")
    return "new.parquet"


def as_folder(table: pd.DataFrame, folder: Path) -> str:
    (folder / "new").mkdir()
    for label, rows in table.groupby("id"):
        rows.drop(columns="id").to_csv(folder / "new" / f"{label}.csv", index=False)
    return "new"


def starts_only(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(x=table["x"].where(table["t"] == 0))


@pytest.mark.parametrize(
    ("change", "write"),
    [
        (lambda table: table[["x", "force", "t", "id"]], as_csv),
        (lambda table: table.assign(note="a word", other=np.arange(len(table)) ** 2), as_csv),
        (starts_only, as_csv),
        (starts_only, as_parquet),
        (lambda table: table, as_folder),
    ],
    ids=["other order", "more columns", "starts only", "parquet", "folder"],
)
def test_new_data_in_any_dress_give_the_same_bands(alone, tmp_path, change, write):
    folder, table, _ = alone
    name = write(change(table), tmp_path)
    done("predict", folder / "law.langenode", "--data", name, "--out", "bands", cwd=tmp_path)
    found, expected = (pd.read_csv(path) for path in (tmp_path / "bands.csv", folder / "new-bands.csv"))
    bands = [name for name in expected if name.startswith("x_")]
    ours, theirs = (pd.DataFrame(one, columns=["t", "force", *bands]) for one in (found, expected))
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    # The labels are as the data have them; readings are absent where the data have none.
    label = "file" if write is as_folder else "id"
    assert next(iter(found)) == label and [name.removesuffix(".csv") for name in found[label]] == list(table["id"])
    assert np.isnan(found["x"]).sum() == (10 if change is starts_only else 0)


def test_a_single_trajectory_needs_no_label_and_a_start_may_have_a_column(alone, tmp_path):
    folder, table, _ = alone
    single = table[table["id"] == "b"].drop(columns="id")
    expected = bands_of(folder, "new-bands").isel(condition=1)
    as_csv(single, tmp_path)
    done("predict", folder / "law.langenode", "--data", "new.csv", "--out", "bands", cwd=tmp_path)
    found = bands_of(tmp_path, "bands").isel(condition=0)
    np.testing.assert_array_equal(found["weights"], expected["weights"])
    # The noise of starts is drawn for each file: means of 32 draws each.
    spread = np.hypot(found["outputs"].std("sample"), expected["outputs"].std("sample")) / np.sqrt(31)
    assert bool((abs(found["mean"] - expected["mean"]) < 5 * spread + 1e-6).all())
    as_csv(single.assign(x0=single["x"].iloc[0]).drop(columns="x"), tmp_path)
    words = ("predict", folder / "law.langenode", "--data", "new.csv", "--initial", "x0", "--out", "started")
    done(*words, cwd=tmp_path)
    # A start that is given is taken as it is.
    started = bands_of(tmp_path, "started")["outputs"].to_numpy()[:, 0, :, 0]
    np.testing.assert_allclose(started[:, 0], single["x"].iloc[0], rtol=1e-6)
    assert np.all(started.std(0) < found["outputs"].to_numpy()[..., 0].std(0))


def test_samples_and_seed_of_a_prediction(alone, tmp_path):
    folder, table, _ = alone
    as_csv(table, tmp_path)
    words = ("predict", folder / "law.langenode", "--data", "new.csv", "--samples", "16")
    done(*words, "--seed", "1", "--out", "one", cwd=tmp_path)
    done(*words, "--seed", "2", "--out", "two", cwd=tmp_path)
    one, two = (bands_of(tmp_path, stem)["outputs"].to_numpy() for stem in ("one", "two"))
    assert one.shape == two.shape == (16, 2, 6, 1) and not np.array_equal(one, two)
    refused = langenode(*words, "--seed", "2", "--out", "one", cwd=tmp_path)
    assert refused.code == 2 and "not overwritten" in refused.err
    np.testing.assert_array_equal(bands_of(tmp_path, "one")["outputs"], one)
    done(*words, "--seed", "2", "--out", "one", "--force", cwd=tmp_path)
    np.testing.assert_array_equal(bands_of(tmp_path, "one")["outputs"], two)


# Failures (exit codes 2 and 3 are in test_badinput.py)


def test_a_bug_of_ours_is_exit_code_1_and_shows_where(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("langenode.cli.work.check_data", broken)
    found = langenode("check", "readings.csv")
    assert found.code == 1 and "Traceback" in found.err and found.out == ""
    assert found.err.splitlines()[-1] == "langenode: this is a bug of ours; please report the lines above"


# Known faults: each of these is to lose its mark with the fault


def test_the_method_that_is_said_is_the_one_that_is_used(own):
    assert "method: gaussian-diagonal" in own[2].err


def test_scaling_can_be_switched_off_as_the_starting_configuration_says(tmp_path):
    frame().to_csv(tmp_path / "readings.csv", index=False)
    plan = plan_file(tmp_path / "readings.csv", [parse_overrides(["scaling=none"])])
    assert plan.config.scaling == "none"


def test_a_configuration_survives_its_run_folder(tmp_path):
    """What `existing_run` reads must be what was asked for, also where a default was switched off."""
    from langenode.fitting.choose import configure
    from langenode.fitting.progress import Reporter
    from langenode.runs.stages import Run, existing_run

    quiet = Reporter(quiet=True)
    for name, layer in (("paper", {"method": "paper"}), ("plain", {"langevin": {"grid": "uniform"}})):
        config = configure("ou", [layer])
        Run.start(tmp_path / name, config, quiet, force=False)
        assert existing_run(tmp_path / name, quiet).config == config
    assert RunFolder(tmp_path / "paper").config.exists()
