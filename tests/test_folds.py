"""Cross-validation: folds of trajectories, fits that do not see what is held out, and runs made of them."""

import dataclasses
import json
import shutil
from pathlib import Path
from unittest import mock

import equinox as eqx
import jax
import numpy as np
import pytest

import langenode as ln
from commands import OWN, done, frame, metrics_of, options
from langenode.data import DataError, assign_folds, by_fold, num_folds, padded
from langenode.experiments import own
from langenode.fitting import cross, plan, weights
from langenode.fitting.cross import FoldPoints
from langenode.fitting.solve import Solved
from langenode.inference.calibration import Calibration, Errors, calibration_of
from langenode.scores.skill import Scores
from langenode.scores.verdict import judge

SMALL = {
    "method": "gaussian-diagonal",
    "model": {"layers": [4], "largest_step": 1.0},
    "mle": {"num_adam": 20, "num_lbfgs": 2},
    "training": {"num_updates": 20, "num_samples": 8},
    "predict": {"num_samples": 32, "num_weights": 64},
}


def relaxations(num: int = 7, steps: int = 6, seed: int = 0) -> ln.Dataset:
    """Every trajectory has its own start and input, and some are shorter."""
    rng = np.random.default_rng(seed)
    times = np.linspace(0.0, 1.0, steps)
    level, start = rng.normal(size=(2, num, 1))
    outputs = level + (start - level) * np.exp(-2.0 * times) + 0.05 * rng.normal(size=(num, steps))
    parts = [
        {"times": times[:end], "outputs": outputs[i, :end], "inputs": np.full((end, 1), level[i])}
        for i, end in enumerate([steps - 2, *[steps] * (num - 1)])
    ]
    return ln.Dataset.from_list(parts)


def with_labels(condition, unit) -> ln.Dataset:
    num = len(condition)
    times = np.arange(3.0) + 1e-3 * np.asarray(condition)[:, None]
    outputs = np.random.default_rng(0).normal(size=(num, 3))
    return ln.Dataset.from_arrays(times, outputs, condition=condition, unit=unit)


# Folds


@pytest.mark.parametrize(("num", "sizes"), [(2, [1, 1]), (3, [1] * 3), (4, [1] * 4), (12, [3, 3, 2, 2, 2]), (40, None)])
def test_below_40_trajectories_there_are_five_folds_of_equal_size_or_as_many_as_trajectories(num, sizes):
    data = with_labels(np.arange(num), np.arange(num))
    count = num_folds(data, "auto")
    assert count == (None if sizes is None else len(sizes))
    if count is not None:
        fold = assign_folds(data, count, seed=0)
        assert sorted(np.bincount(fold), reverse=True) == sizes
        np.testing.assert_array_equal(fold, assign_folds(data, count, seed=0))
        assert num < 12 or any((assign_folds(data, count, seed=seed) != fold).any() for seed in range(1, 4))


@pytest.mark.parametrize("seed", range(5))
def test_conditions_and_units_are_never_divided(seed):
    several = with_labels(np.repeat(np.arange(8), 3), np.arange(24))  # replicates of eight conditions
    fold = assign_folds(several, 5, seed=seed)
    assert all(len(set(fold[several.condition == label])) == 1 for label in range(8))
    assert np.bincount(fold).max() - np.bincount(fold).min() <= 3
    crossed = with_labels(np.tile(np.arange(6), 7), np.repeat(np.arange(7), 6))  # seven units in all six conditions
    fold = assign_folds(crossed, 5, seed=seed)
    assert all(len(set(fold[crossed.unit == unit])) == 1 for unit in range(7))
    repeated = with_labels(np.zeros(12, int), np.repeat(np.arange(6), 2))  # one condition, two records per unit
    fold = assign_folds(repeated, 5, seed=seed)
    assert all(len(set(fold[repeated.unit == unit])) == 1 for unit in range(6))


@pytest.mark.parametrize("seed", range(5))
def test_few_conditions_with_replicates_stay_in_training(seed):
    data = with_labels(np.repeat(np.arange(2), 10), np.arange(20))
    fold = assign_folds(data, 5, seed=seed)
    for number in range(5):
        np.testing.assert_array_equal(np.bincount(data.condition[fold == number]), [2, 2])
    test = by_fold(data, fold)
    assert test.num_conditions == 10 and test.condition_names[0] == f"{data.condition_names[0]}, fold 1"
    assert all(len(set(fold[test.condition == label])) == 1 for label in range(10))


def test_a_number_of_folds_that_cannot_be_made_is_refused():
    with pytest.raises(DataError, match=r"from 2 to the number of conditions, 4; found 6"):
        num_folds(with_labels(np.arange(4), np.arange(4)), 6)
    assert num_folds(with_labels(np.zeros(4, int), np.zeros(4, int)), "auto") is None


def test_padding_adds_nothing_that_was_observed():
    data = ln.with_observed_start(relaxations())
    more = padded(data, 10, 9)
    assert more.outputs.shape == (10, 9, 1) and more.mask.sum() == data.mask.sum()
    np.testing.assert_array_equal(more.select(slice(7)).outputs, data.outputs)
    np.testing.assert_array_equal(more.select(slice(7)).lengths, data.lengths)
    assert more.num_conditions == data.num_conditions + 3


# Fits of folds


def planned(readings: ln.Dataset, **options):
    config = plan.plan_data(readings, {**SMALL, **options})[1]
    return config, plan.as_fitted(readings, config)


@pytest.fixture(scope="module")
def folded():
    """The folds of a small data set, and the fit of the first."""
    config, data = planned(relaxations(), model={**SMALL["model"], "kind": "state"})
    fold = own.folds(config, data)
    assert fold is not None
    return config, data, fold, *_fit_first(config, data, fold)


def _fit_first(config, data, fold):
    folds, whole = cross.divide(config, data, fold)
    found = cross.find_points(own.EXPERIMENT, config, folds[0])
    return folds, whole, found, cross.fit_fold(own.EXPERIMENT, config, folds[0], found, "state")


def test_a_fit_does_not_depend_on_the_readings_that_its_fold_holds_out(folded):
    config, data, fold, folds, _, found, fit = folded
    is_out = (fold == 0)[:, None]
    assert data.initial is not None
    wild = 1e3 * np.cos(np.arange(data.outputs.size)).reshape(data.outputs.shape)
    changed = dataclasses.replace(
        data,
        outputs=np.where(data.mask & is_out[..., None], wild, data.outputs),
        initial=np.where(is_out, -1e4, data.initial),
    )
    others, _, again, other = _fit_first(config, changed, fold)
    assert others[0].scaling.to_dict() == folds[0].scaling.to_dict()
    assert again.errors != found.errors  # the held-out readings themselves have changed
    for before, after in zip(jax.tree.leaves(fit.problem), jax.tree.leaves(other.problem), strict=True):
        if eqx.is_array(before):
            np.testing.assert_array_equal(np.asarray(before), np.asarray(after))


def test_folds_after_the_first_and_the_final_fit_compile_nothing_new(folded):
    config, _, _, folds, whole, _, _ = folded
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration_secs, **kwargs: compiled.append(event) if "backend_compile" in event else None
    )
    points = [cross.find_points(own.EXPERIMENT, config, part) for part in folds[1:]]
    for part, found in zip(folds[1:], points, strict=True):
        cross.fit_fold(own.EXPERIMENT, config, part, found, "state")
    assert {part.train.num_trajectories for part in folds} == {whole.train.num_trajectories}
    assert len(compiled) <= 2, compiled  # small sums over other numbers of readings


def test_the_kind_of_a_fold_is_chosen_by_the_errors_of_the_others():
    errors = [(1.0, 0.5), (1.0, 0.9), (1.0, 2.0)]
    folds = [FoldPoints({}, {"state": plain, "hidden": rich}, 10) for plain, rich in errors]
    chosen = [cross.choose_kind([f for k, f in enumerate(folds) if k != number])[0] for number in range(3)]
    assert chosen == ["state", "state", "hidden"]  # pooled errors of hidden: 1.55, 1.46 and 0.73
    name, tried = cross.choose_kind(folds)
    assert name == "state" and tried[1]["error"] == pytest.approx(np.sqrt((0.25 + 0.81 + 4.0) / 3))
    # What is not tried in a fold, because replicates could not show it, is no candidate there.
    stopped = folds[0]._replace(errors={"state": 1.0})
    assert cross.choose_kind([folds[0], stopped])[1] == [{"name": "state", "error": 1.0}]
    # Nor is it for a fold that stopped before, though the others agree on it.
    three = [folds[0], folds[0], stopped]
    assert cross.choose_kind(three[:2])[0] == "hidden"
    assert cross.choose_kind(three[:2], None, cross.tried_everywhere(three))[0] == "state"


def test_a_fold_is_calibrated_by_the_errors_of_the_others_and_the_final_fit_by_all(folded, monkeypatch):
    config, _, _, folds, _, _, fit = folded
    rng = np.random.default_rng(0)
    sizes = [1.0, 1.0, 1.0, 1.0, 2.0]
    parts = [Errors(s * rng.normal(size=(8, 5, 1)), np.zeros((8, 5, 1)), np.ones((8, 5, 1))) for s in sizes]
    numbers = {id(part): number for number, part in enumerate(folds)}
    monkeypatch.setattr(cross, "held_out_errors", lambda config, fold, fit, factor: parts[numbers[id(fold)]])
    found, factors = cross.calibrate_folds(config, folds, [fit] * len(folds))
    assert found is not None
    np.testing.assert_array_equal(found.factor, calibration_of(parts).factor)
    for number, factor in enumerate(factors):
        others = parts[:number] + parts[number + 1 :]
        np.testing.assert_array_equal(factor, calibration_of(others).factor)
    assert factors[4] < found.factor < factors[0]


def test_a_factor_near_its_limit_in_one_fold_is_recorded_and_a_reservation(folded):
    """The final factor may be well within its limits while a fold's is not."""
    _, _, fold, folds, whole, _, fit = folded
    factors = [np.array([value]) for value in (1.0, 2.0, 2.95, 0.105, 1.5)]
    found = Calibration(np.array([2.5]), np.array([20.0]), 8)
    crossed = cross.Crossed(fold, folds, [fit] * 5, ["state"] * 5, factors, found, "state", [], whole, False)
    solved = crossed.finished(Solved(fit.problem, np.ones(1), {}, {}, {}, 0.0))
    assert solved.diagnostics["calibration"]["folds_at_limit"] == 2
    said = judge(solved.diagnostics)
    assert said["level"] == "caution" and "in 2 folds its factor is at a limit, or near it" in said["text"]
    calm = crossed._replace(factors=[np.array([1.0])] * 5).finished(Solved(fit.problem, np.ones(1), {}, {}, {}, 0.0))
    assert judge(calm.diagnostics)["level"] == "trust"


@pytest.mark.slow
def test_from_python_a_few_trajectories_are_fitted_with_folds():
    data = relaxations(3)
    small = {**SMALL, "model": {**SMALL["model"], "kind": "state"}}
    fit = ln.fit(data, options=small, progress=False)
    found = fit.diagnostics["cross_validation"]
    assert found["folds"] == 3 and found["sizes"] == [1] * 3 and found["kinds"] == ["state"] * 3
    assert fit.train is data and fit.diagnostics["calibration"]["num_independent"][0] > 0


# From 40 trajectories on


@pytest.mark.slow
def test_from_40_trajectories_on_python_sets_validation_data_aside_like_the_command(capsys):
    data = relaxations(40)
    small = {**SMALL, "model": {**SMALL["model"], "kind": "state"}}
    fit = ln.fit(data, options=small)
    assert "validation: 10 of 40 trajectories are set aside" in capsys.readouterr().err
    assert fit.train is not None and fit.validation is not None
    assert (fit.train.num_trajectories, fit.validation.num_trajectories) == (30, 10)
    names = {part.unit_names for part in (fit.train, fit.validation)}
    assert len(set().union(*names)) == 40 and "calibration" in fit.diagnostics
    # 60 to 20, as the command divides what it does not test on.
    train, validation, _ = data.split(0.75, 0.25, 0.0, seed=0)
    np.testing.assert_array_equal(fit.train.outputs[fit.train.mask], train.outputs[train.mask])
    given = ln.fit(train, validation=validation, options=small, progress=False)
    assert fit.noise_factor[0] != 1.0
    np.testing.assert_array_equal(fit.noise_factor, given.noise_factor)
    np.testing.assert_array_equal(fit.flat_sample(8), given.flat_sample(8))


def test_few_conditions_of_many_trajectories_are_all_trained_on():
    """Two conditions cannot be divided into three parts; their units can."""
    data = with_labels(np.repeat(np.arange(2), 25), np.arange(50))
    config = plan.plan_data(data, {**SMALL, "target": "population", "data": {"separate": False}})[1]
    splits = own.divide(plan.as_fitted(data, config), config)
    assert [part.num_trajectories for part in splits] == [30, 10, 10]
    assert splits.train.num_conditions == splits.validation.num_conditions == splits.test.num_conditions == 2


@pytest.mark.slow
def test_nothing_is_set_aside_where_folds_are_turned_off_and_a_given_split_is_kept():
    data = relaxations(40)
    config, fitted = planned(data, data={"split": [0.5, 0.5, 0.0]})
    parts = own.set_aside(fitted, config)
    assert parts is not None and [part.num_trajectories for part in parts] == [20, 20]
    with pytest.raises(DataError, match=r"each part of data\.split must be above 0"):
        own.set_aside(fitted, planned(data, data={"split": [1.0, 0.0, 0.0]})[0])
    small = {**SMALL, "model": {**SMALL["model"], "kind": "state"}, "data": {"folds": None}}
    fit = ln.fit(data, options=small, progress=False)
    assert fit.train is data and fit.validation is None and "calibration" not in fit.diagnostics


# Runs


FOLDS = [*OWN, *options("data.folds=auto noise.calibrate=true")]


def results(run: Path) -> dict[str, bytes]:
    """All that is no time: metrics without their seconds, and every other file but those made of times."""
    files = {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}
    for name in ("metrics.json", "provenance.json", "report.html"):
        del files[name]
    return files | {"metrics": json.dumps(metrics_of(run)).encode()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with folds, from a table."""
    home = tmp_path_factory.mktemp("folds")
    frame().to_csv(home / "readings.csv", index=False)
    return home, done("fit", "readings.csv", "--out", "run", *FOLDS, cwd=home)


def test_a_run_scores_every_trajectory_once_and_says_so(run):
    home, fitted = run
    found = metrics_of(home / "run")
    assert found["cross_validation"]["folds"] == 5
    assert sorted(found["cross_validation"]["sizes"]) == [1, 1, 1, 1, 2]
    assert found["problem"]["data"]["train"]["trajectories"] == found["problem"]["data"]["test"]["trajectories"] == 6
    assert found["skill"]["num_trajectories"] == found["coverage_check"]["num_trajectories"] == 6
    assert found["coverage_check"]["num_readings"] == 6 * 5  # all but the starts
    assert found["coverage_check"]["coverage"] == pytest.approx(found["coverage"]["90"])
    assert "held out: every trajectory once, in 5 folds" in fitted.err
    assert all(f"fold {number} of 5" in fitted.err for number in range(1, 6))
    assert "each held out once, in 5 folds" in (home / "run" / "report.html").read_text()


def test_predictions_are_those_of_the_fits_that_did_not_see_the_trajectory(run):
    import xarray as xr

    home, _ = run
    data = ln.load_data(home / "run" / "data.nc")
    stored = xr.load_dataset(home / "run" / "predictions.nc", engine="scipy")
    config = ln.load_fit(home / "run" / "fit.langenode").config
    assert isinstance(config, own.OwnConfig)
    fold = own.folds(config, data)
    assert fold is not None
    rms = []
    for number in range(5):
        fit = ln.load_fit(home / "run" / f"fold-{number + 1}.langenode")
        mine = fit.predict_prepared(data.select(fold == number))[0].outputs
        theirs = stored["outputs"].to_numpy()[:, np.flatnonzero(fold == number)]
        rms.append(np.sqrt(np.mean((mine.mean(0) - theirs.mean(0)) ** 2)) / theirs.std(0).mean())
    assert max(rms) < 1.0  # the noise of their starts has another factor, and other random numbers
    assert len(np.unique(fold)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("last", ["fold-3-mle.langenode", "fold-2.langenode"])
def test_a_run_that_was_ended_between_folds_resumes_and_gives_the_same_bytes(run, last):
    home, _ = run
    place = home / f"after {last}"
    place.mkdir()
    shutil.copy(home / "readings.csv", place)
    with mock.patch("langenode.runs.folds.write_bytes", side_effect=_ending_after(last)):
        assert "KeyboardInterrupt" in _ended(place)
    assert (place / "run" / last).exists() and not (place / "run" / "fit.langenode").exists()
    before = {p.name: p.stat().st_mtime_ns for p in (place / "run").glob("fold-*")}
    done("fit", "readings.csv", "--out", "run", *FOLDS, cwd=place)
    after = {p.name: p.stat().st_mtime_ns for p in (place / "run").glob("fold-*")}
    assert {name: after[name] for name in before} == before  # what was there has not been made again
    assert len(after) == 10
    assert results(place / "run") == results(home / "run")


def _ending_after(last: str):
    from langenode.storage.folder import write_bytes

    def write(path: Path, content: bytes) -> None:
        write_bytes(path, content)
        if path.name == last:
            raise KeyboardInterrupt

    return write


def _ended(place: Path) -> str:
    try:
        found = done("fit", "readings.csv", "--out", "run", *FOLDS, cwd=place)
    except (KeyboardInterrupt, AssertionError) as error:
        return f"KeyboardInterrupt {error}"
    return found.err


@pytest.mark.slow
def test_a_run_of_40_trajectories_is_divided_once_though_its_training_part_has_fewer(tmp_path):
    """24 training trajectories of 40 would be few enough for folds."""
    frame(40).to_csv(tmp_path / "readings.csv", index=False)
    fitted = done("fit", "readings.csv", "--out", "run", *FOLDS, cwd=tmp_path)
    assert "fold" not in fitted.err and not list((tmp_path / "run").glob("fold-*"))
    sizes = {part: size["trajectories"] for part, size in metrics_of(tmp_path / "run")["problem"]["data"].items()}
    assert sizes == {"train": 24, "validation": 8, "test": 8}
    again = done("evaluate", "run", cwd=tmp_path)  # from the files of the run
    assert "fold" not in again.err and "cross_validation" not in metrics_of(tmp_path / "run")


@pytest.mark.slow
def test_force_replaces_the_files_of_folds_and_a_given_split_has_none(run):
    home, _ = run
    place = home / "forced"
    shutil.copytree(home / "run", place / "run")
    shutil.copy(home / "readings.csv", place)
    (place / "run" / "fold-notes.txt").write_text("mine")
    done("fit", "readings.csv", "--out", "run", "--force", *OWN, *options("data.split=[0.5,0.25,0.25]"), cwd=place)
    assert [p.name for p in (place / "run").glob("fold-*")] == ["fold-notes.txt"]
    assert "cross_validation" not in metrics_of(place / "run")
    config = plan.plan_data(relaxations(), {**SMALL, "data": {"split": [0.5, 0.25, 0.25]}})[1]
    assert config.data.folds is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not to be trusted")  # so few draws
def test_a_run_whose_weights_are_chosen_by_score_keeps_both_fits_of_every_fold(run, monkeypatch):
    """All weights are said to be better; what was chosen is read again by later stages."""
    home, _ = run
    place = home / "chosen"
    place.mkdir()
    shutil.copy(home / "readings.csv", place)

    def held_out(config, problem, held_out):
        crps = np.full((2, 1), 0.5 if config.stochastic == "all" else 1.0)
        return Scores(crps, np.ones((2, 1)), np.ones((2, 1)), np.ones((2, 1)))

    monkeypatch.setattr(weights, "held_out_scores", held_out)
    words = "choose_weights=true ensemble-hmc.num_members=3 ensemble-hmc.num_leapfrog=4 ensemble-hmc.num_warmup=2 "
    words += "ensemble-hmc.most_transitions=16 ensemble-hmc.num=24 langevin.num_steps=4 data.folds=2"
    done("fit", "readings.csv", "--out", "run", *FOLDS, *options(words), cwd=place)
    names = {path.name for path in (place / "run").glob("fold-*")}
    assert names == {f"fold-{number}{part}.langenode" for number in (1, 2) for part in ("", "-mle", "-all")}
    found = metrics_of(place / "run")
    [choice] = [one for one in found["choices"] if one["what"] == "stochastic weights"]
    assert choice["chosen"] == "all" and "held-out trajectories" in choice["why"]
    before = {path.name: path.stat().st_mtime_ns for path in (place / "run").glob("fold-*")}
    done("predict", "run", "--force", cwd=place)
    assert {path.name: path.stat().st_mtime_ns for path in (place / "run").glob("fold-*")} == before
    assert ln.load_fit(place / "run" / "fit.langenode").config.method == "ensemble-hmc"
