"""A whole run of the OU demonstration with small settings, from the command line."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from commands import contents, done, langenode
from langenode.fitting.choose import configure
from langenode.fitting.facade import load_fit
from langenode.fitting.progress import Reporter
from langenode.inference.predictions import predict
from langenode.runs import watch
from langenode.runs.stages import Run, open_run
from langenode.storage import container, tables
from langenode.storage.folder import RunFolder

SMALL = {
    "data": {"num_trajectories": 24, "num_validation": 8, "num_test": 16, "num_times": 12},
    "training": {"num_updates": 40, "num_samples": 16, "block": 10},
    "mle": {"num_adam": 20, "num_lbfgs": 5},
    "langevin": {"num_steps": 3, "layers": [4]},
    "predict": {"num_samples": 32, "num_weights": 64, "num_w1_draws": 3},
}
FILES = {
    "bands.csv",
    "config.toml",
    "convergence.csv",
    "data.nc",
    "figures",
    "fit.langenode",
    "history.csv",
    "metrics.json",
    "mle.langenode",
    "predictions.nc",
    "provenance.json",
    "report.html",
    "test.nc",
    "validation.nc",
}


def flags(settings):
    pairs = [(f"{a}.{b}", value) for a, section in settings.items() for b, value in section.items()]
    return [text for name, value in pairs for text in ("--set", f"{name}={json.dumps(value)}")]


ASKED = ["--seed", "3", *flags(SMALL)]


@pytest.fixture(scope="module")
def population_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "ou"
    found = done("run", "ou", "--json", "--out", path, *ASKED)
    return path, found


def test_a_run_writes_its_files_and_ends_with_a_table(population_run):
    path, found = population_run
    assert {entry.name for entry in path.iterdir()} == FILES | {"companion-bbvi.langenode"}
    names = {entry.name for entry in (path / "figures").iterdir()}
    pictures = {"calibration", "density", "loss", "score", "w1", "weight_paths", "weights"}
    assert names == {"index.json", *(f"{name}.png" for name in pictures)}
    assert "W1 to the data" in done("run", "ou", "--out", path, *ASKED).out
    assert "warning" not in found.err.lower()


def test_a_log_has_plain_lines_and_json_stands_alone_on_standard_output(population_run):
    path, found = population_run
    assert not re.search(r"[^\n -~]", found.err), "control characters in a log"
    words = [line.split(":")[0] for line in found.err.splitlines()]
    updates = [word for word in words if word.startswith("update")]
    assert updates[:4] == [f"update {n}/40" for n in (10, 20, 30, 40)]  # a fit to compare with follows
    stages = ["simulate", "fit", "predict", "evaluate", "report"]
    assert [word for word in words if word in stages] == stages
    said, stored = json.loads(found.out), json.loads((path / "metrics.json").read_text())
    assert said["run"] == str(path) and said["metrics"] == stored and set(stored["seconds"])
    assert set(said["files"]) == {str(entry) for entry in path.iterdir()}


def test_what_is_done_is_left_alone_unless_forced(population_run):
    path, _ = population_run
    before = contents(path)
    for verb in ("fit", "predict", "evaluate", "report"):
        found = done(verb, path, "--json")
        assert "is there already; use --force" in found.err
        assert json.loads(found.out)["metrics"]["experiment"] == "ou"
    for verb in ("run", "simulate"):
        found = done(verb, "ou", "--out", path, "--json", *ASKED)
        assert "resuming the run" in found.err and json.loads(found.out)["run"] == str(path)
    assert contents(path) == before
    done("report", path, "--force")
    after = contents(path)
    changed = {Path(name).name for name in before if after[name] != before[name] and before[name] is not None}
    assert changed == {"report.html"} and set(after) == set(before)


def test_verbose_says_the_configuration_and_shows_tracebacks(population_run):
    path, _ = population_run
    found = done("run", "ou", "--out", path, "-v", *ASKED)
    assert tomllib.loads(found.err[found.err.index("experiment =") :])["training"]["num_updates"] == 40
    refused = langenode("evaluate", path.parent, "--verbose")
    assert refused.code == 2 and "Traceback" in refused.err and refused.err.splitlines()[-1].startswith("langenode: ")


def test_metrics_have_what_is_promised(population_run):
    found = json.loads((population_run[0] / "metrics.json").read_text())
    assert [found[k] for k in ("experiment", "method", "target", "stochastic", "rest", "seed")] == [
        *("ou", "langevin", "population", "all", "fixed", 3)
    ]
    assert {"mean", "floor", "per_time"} <= set(found["w1"]) and len(found["w1"]["per_time"]) == 12
    assert set(found["coverage"]) == {"50", "90", "95"}
    assert found["energy_score"] > 0 and found["crps"] > 0
    for block in ("weights", "data_weights"):
        assert len(found[block]["mean"]) == 2 and len(found[block]["std"]) == 2 and -1 <= found[block]["corr"] <= 1
    assert set(found["seconds"]) == {"simulate", "mle", "fit", "predict", "evaluate"}
    assert found["verdict"]["level"] in ("trust", "caution", "distrust") and len(found["verdict"]["checks"]) == 4
    assert found["problem"]["num_weights"] == found["problem"]["num_stochastic"] == 2


def test_a_saved_fit_samples_without_the_data_as_before(population_run, tmp_path):
    path = population_run[0]
    config = configure("ou", [SMALL, {"seed": 3}])
    alone = tmp_path / "alone.langenode"
    alone.write_bytes((path / "fit.langenode").read_bytes())
    run = Run(RunFolder(path), config, Reporter(quiet=True))
    outputs, weights = predict(load_fit(alone).problem, run.splits().test, 32, key=run.keys.prediction)
    import xarray as xr

    with xr.open_dataset(path / "predictions.nc", engine="scipy") as stored:
        np.testing.assert_array_equal(np.asarray(weights), stored["weights"])
        np.testing.assert_array_equal(np.asarray(outputs), stored["outputs"])
    assert container.read_header(alone)["config"]["seed"] == 3


@pytest.mark.slow
def test_scaling_is_stored_with_the_fit_and_undone_in_predictions(tmp_path):
    """Training sees standardised data; predictions, bands and noise come out in the data's own units."""
    choices = {"seed": 3, "scaling": "standardise", "target": "posterior", "model": {"substeps": 4}}
    choices |= {"method": "laplace", "laplace": {"num": 64}}
    config = configure("ou", [SMALL, choices])
    run = open_run(tmp_path / "run", config, Reporter(quiet=True), force=False)
    run.simulate()
    run.fit()
    run.predict()
    test = run.splits().test
    import xarray as xr

    with xr.open_dataset(run.folder.predictions, engine="scipy") as stored:
        mean, outputs = np.asarray(stored["mean"])[0, :, 0], np.asarray(stored["outputs"])
    assert np.abs(mean - test.outputs[:, :, 0].mean(0)).max() < 0.2 * np.ptp(test.outputs)
    scaling = run.fitted().rule.scaling
    assert scaling is not None
    assert scaling.output_scale[0] == pytest.approx(run.splits().train.outputs.std(), rel=1e-9)
    sigma = container.read_header(run.folder.fit)["noise_sigma"]
    np.testing.assert_allclose(np.asarray(sigma) / scaling.slope_at(np.zeros(1)), 0.05, rtol=1e-6)
    assert outputs[:, 0, -1, 0].std() < 0.1


def test_a_finished_run_is_left_alone_and_a_different_one_refused(population_run):
    path = population_run[0]
    before = {entry.name: entry.stat().st_mtime_ns for entry in path.iterdir() if entry.name != ".lock"}
    again = langenode("run", "ou", "--out", str(path), "--seed", "3", *flags(SMALL))
    assert again.code == 0 and "resuming the run" in again.err
    other = langenode("run", "ou", "--out", str(path), "--seed", "4", *flags(SMALL))
    assert other.code == 2 and "--force" in other.err and len(other.err.splitlines()) == 1
    assert before == {entry.name: entry.stat().st_mtime_ns for entry in path.iterdir() if entry.name != ".lock"}


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_and_ends_bit_for_bit_the_same(population_run, tmp_path, monkeypatch):
    path = population_run[0]
    config = configure("ou", [SMALL, {"seed": 3}])
    monkeypatch.setattr("langenode.fitting.checkpoints.SECONDS", 0.0)
    run = open_run(tmp_path / "cut", config, Reporter(quiet=True), force=False)
    run.simulate()

    def cut(progress):
        if progress.step == 20:
            raise KeyboardInterrupt

    monkeypatch.setattr(run.reporter, "update", cut)
    with pytest.raises(KeyboardInterrupt):
        run.fit()
    assert (tmp_path / "cut" / "checkpoint.langenode").exists()
    run = open_run(tmp_path / "cut", config, Reporter(quiet=True), force=False)
    run.fit()
    assert not (tmp_path / "cut" / "checkpoint.langenode").exists()
    assert (tmp_path / "cut" / "history.csv").read_text() == (path / "history.csv").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["langevin", "gaussian-full", "gaussian-diagonal", "gaussian-lowrank", "paper"])
@pytest.mark.parametrize("target", ["population", "posterior", "tempered"])
def test_every_method_serves_every_target(tmp_path, method, target):
    settings = {**SMALL, method: {"num_steps": 4} if method in ("langevin", "paper") else {}}
    done = langenode(
        "run", "ou", "--method", method, "--target", target, "--out", str(tmp_path / "r"), *flags(settings)
    )
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "r" / "metrics.json").read_text())
    if target == "posterior":
        names = {"elbo", "log_evidence", "log_evidence_se", "relative_ess", "k_hat"}
        assert names <= set(found["posterior"]) and 0 < found["posterior"]["relative_ess"] <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nonsense"], "an experiment must be one of"),
        (["run", "ou", "--method", "magic"], "method"),
        (["run", "ou", "--method", "bottleneck", "--target", "posterior"], "bottleneck"),
        (["run", "ou", "--set", "training.num_update=3"], "did you mean training.num_updates?"),
    ],
)
def test_wrong_input_gives_one_line_and_exit_code_2(tmp_path, words, message):
    out = tmp_path / "out"
    done = langenode(*words, *([] if words[1] == "nonsense" else ["--out", str(out)]))
    assert done.code == 2
    assert message in done.err and "Traceback" not in done.err and len(done.err.splitlines()) == 1
    assert not out.exists()


# --- W1 while a run trains


def test_times_at_which_all_samples_have_diverged_stay_in_the_record_of_w1(tmp_path):
    """Rows of the table must be equally long, whatever diverges early in training."""
    distance = np.array([[[1.0], [np.nan], [np.inf]], [[3.0], [2.0], [np.nan]]])
    mean = watch._mean_over_cells(distance)
    np.testing.assert_array_equal(mean, [2.0, 2.0, np.nan])
    path = tmp_path / "convergence.csv"
    tables.add_convergence(path, 1, mean)
    tables.add_convergence(path, 2, np.array([2.0, 1.0, 1.0]))
    np.testing.assert_array_equal(tables.read_convergence(path)["w1"], [[2.0, 2.0, np.nan], [2.0, 1.0, 1.0]])
