"""Plain predictors against cases with known answers, and the scores that a fit is compared with them by."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from langenode.data import Dataset, with_observed_start
from langenode.fitting import plain_predictors
from langenode.fitting.plain_predictors import PREDICTORS, carried, gp, resampled
from langenode.fitting.skill import Fold, skill_of, spread_of
from langenode.scores import metrics
from langenode.scores.skill import Scores, crps_ratio, mean_crps, pooled, scores_by_trajectory, skill, summary

NUM = 60


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def lines(levels, times, **options):
    """Trajectories level + time, one condition each, that start at their first reading."""
    values = np.asarray(levels, float)[:, None] + np.asarray(times, float)
    data = Dataset.from_arrays(times, values[..., None], condition=np.arange(len(values)), **options)
    return with_observed_start(data)


def atoms(samples):
    return np.unique(np.round(samples, 9))


# Training trajectories resampled


def test_training_trajectories_are_interpolated_to_the_test_times_and_drawn_equally_often(rng):
    train, test = lines([0.0, 10.0, 20.0], [0.0, 1.0, 4.0]), lines([5.0], [0.0, 2.0, 3.0])
    found = resampled(train, test, NUM, rng=rng)
    assert found.shape == (NUM, 1, 3, 1)
    for step, time in enumerate([0.0, 2.0, 3.0]):  # the start of the training trajectories is among their readings
        values, counts = np.unique(np.round(found[:, 0, step, 0], 9), return_counts=True)
        np.testing.assert_allclose(values, time + np.array([0.0, 10.0, 20.0]), rtol=1e-12)
        assert counts.tolist() == [NUM // 3] * 3
    np.testing.assert_allclose(found[:, 0, 2, 0] - found[:, 0, 1, 0], 1.0, rtol=1e-9)  # whole trajectories


def test_a_trajectory_that_ends_early_is_replaced_by_others_and_the_last_one_is_held(rng):
    short, long = {"times": [0.0, 1.0], "outputs": [0.0, 1.0]}, {"times": [0.0, 4.0], "outputs": [10.0, 14.0]}
    train = with_observed_start(Dataset.from_list([short, long]))
    test = lines([0.0], [0.0, 1.05, 3.0, 9.0])
    found = resampled(train, test, NUM, rng=rng)[:, 0, :, 0].T
    np.testing.assert_allclose(atoms(found[1]), [1.0, 11.05], rtol=1e-9)  # within a tenth of its duration it is held
    np.testing.assert_allclose(atoms(found[2]), [13.0], rtol=1e-9)
    np.testing.assert_allclose(atoms(found[3]), [14.0], rtol=1e-9)


def test_missing_readings_are_bridged_and_an_output_never_read_is_left_to_others(rng):
    values = np.array([[[0.0], [np.nan], [2.0]], [[4.0], [np.nan], [np.nan]]])
    train = with_observed_start(Dataset.from_arrays([0.0, 1.0, 2.0], values, condition=[0, 1]))
    found = resampled(train, lines([0.0], [0.0, 1.0, 2.0]), NUM, rng=rng)[:, 0, :, 0].T
    np.testing.assert_allclose(atoms(found[1]), [1.0], rtol=1e-9)
    np.testing.assert_allclose(atoms(found[2]), [2.0], rtol=1e-9)


@pytest.mark.parametrize(("num_alike", "expected"), [(5, [1.0]), (4, [1.0, 51.0])])
def test_the_same_inputs_are_preferred_where_there_are_five(rng, num_alike, expected):
    times = [0.0, 1.0]
    kind = np.array([1.0] * num_alike + [2.0] * 3)
    train = lines(np.where(kind == 1.0, 0.0, 50.0), times, inputs=np.repeat(kind[:, None], 2, axis=1))
    test = lines([7.0], times, inputs=np.ones((1, 2)))
    np.testing.assert_allclose(atoms(resampled(train, test, NUM, rng=rng)[:, 0, 1]), expected, rtol=1e-9)


def test_windows_of_a_record_have_no_common_clock(rng):
    begin = np.array([0.0, 100.0, 200.0])
    times = begin[:, None] + np.array([0.0, 1.0, 2.0])
    values = np.array([1.0, 2.0, 3.0])[:, None] + (times - begin[:, None])
    train = with_observed_start(Dataset.from_arrays(times, values[..., None], condition=np.arange(3)))
    test = with_observed_start(Dataset.from_arrays([[500.0, 501.0, 502.0]], np.ones((1, 3, 1))))
    np.testing.assert_allclose(atoms(resampled(train, test, NUM, rng=rng)[:, 0, 2]), [3.0, 4.0, 5.0], rtol=1e-9)
    assert np.all(np.abs(gp(train, test, NUM, rng=rng)) < 10.0)


def test_inputs_of_windows_are_compared_after_the_same_time(rng):
    ramp, begin = np.array([0.0, 1.0, 2.0]), 100.0 * np.arange(8)
    inputs = np.where(np.arange(8)[:, None] < 5, ramp, 0.0)[..., None]
    values = np.where(np.arange(8) < 5, 1.0, 50.0)[:, None] + ramp
    times = begin[:, None] + ramp
    train = Dataset.from_arrays(times, values[..., None], inputs=inputs, condition=np.arange(8))
    test = Dataset.from_arrays([900.0 + ramp], np.zeros((1, 3, 1)), inputs=inputs[:1])
    train, test = with_observed_start(train), with_observed_start(test)
    np.testing.assert_allclose(atoms(resampled(train, test, NUM, rng=rng)[:, 0, 2]), [3.0], rtol=1e-9)


# The start carried on


def test_the_start_is_carried_on_with_the_increments_of_training(rng):
    times, slopes = np.array([0.0, 1.0, 3.0]), np.array([-1.0, 0.0, 2.0])
    values = np.array([5.0, -3.0, 8.0])[:, None] + slopes[:, None] * times
    train = with_observed_start(Dataset.from_arrays(times, values[..., None], condition=np.arange(3)))
    test = lines([100.0, 200.0], [0.0, 2.0])
    found = carried(train, test, NUM, rng=rng)
    assert found is not None
    for condition, start in enumerate([100.0, 200.0]):
        np.testing.assert_allclose(found[:, condition, 0, 0], start, rtol=1e-12)
        np.testing.assert_allclose(atoms(found[:, condition, 1]), start + 2.0 * slopes, rtol=1e-9)


def test_where_no_start_is_known_nothing_is_carried(rng):
    train, test = lines([0.0, 1.0, 2.0], [0.0, 1.0]), lines([0.5], [0.0, 1.0])
    bare = dataclasses.replace(test, initial=None)
    other = dataclasses.replace(test, initial=np.zeros((1, 2)))
    assert carried(train, bare, NUM, rng=rng) is None and carried(train, other, NUM, rng=rng) is None
    fold = Fold(train, bare, resampled(train, bare, NUM, rng=rng))
    found = skill_of([fold], seed=0)
    assert found is not None and found["baselines"]["carried"]["crps"] is None and found["best"] in ("resampled", "gp")


def test_samples_of_a_condition_take_the_starts_of_its_trajectories_in_turn(rng):
    train = lines([0.0, 0.0, 0.0], [0.0, 1.0])
    test = dataclasses.replace(lines([1.0, 2.0], [0.0, 1.0]), condition=np.zeros(2, int), condition_names=("c",))
    for predictor in (carried, gp):
        found = predictor(train, test, NUM, rng=rng)
        assert found is not None and found.shape == (NUM, 1, 2, 1)
    found = carried(train, test, NUM, rng=rng)
    assert found is not None
    values, counts = np.unique(np.round(found[:, 0, 1, 0], 9), return_counts=True)
    assert values.tolist() == [2.0, 3.0] and counts.tolist() == [NUM // 2] * 2


# The Gaussian process


def curves(num, rng, noise=0.1):
    """Readings of sin(time) + 2 input + start, with noise; the start is a reading without it."""
    times = np.linspace(0.0, 5.0, 11)
    start, dose = rng.uniform(-2, 2, num), rng.uniform(-1, 1, num)
    values = np.sin(times) + start[:, None] + 2.0 * dose[:, None] * (times > 0)
    values[:, 1:] += noise * rng.standard_normal((num, 10))
    inputs = np.repeat(dose[:, None, None], len(times), axis=1)
    return with_observed_start(Dataset.from_arrays(times, values[..., None], inputs=inputs, condition=np.arange(num)))


def test_the_process_uses_time_start_and_inputs_and_its_bands_have_the_noise(rng):
    train, test = curves(20, rng), curves(30, rng)
    samples = gp(train, test, 512, rng=rng)
    members = test.replicates()
    error = (members.outputs[0] - samples.mean(0))[members.mask[0]]
    assert np.sqrt(np.mean(error**2)) < 0.15  # the noise alone is 0.1; without start or input it would be above 1
    inside = metrics.coverage(samples, members.outputs, mask=members.mask)["90"]
    assert abs(inside - 0.9) < 5 * np.sqrt(0.09 / 300)
    spread = samples.std(0)[members.mask[0]]
    assert 0.08 < np.median(spread) < 0.15


def test_the_cost_of_the_process_is_bounded(rng, monkeypatch):
    seen = []

    def watched(features, values):
        seen.append(len(values))
        return fitted(features, values)

    fitted = plain_predictors._fitted_process
    monkeypatch.setattr(plain_predictors, "_fitted_process", watched)
    monkeypatch.setattr(plain_predictors, "MOST_READINGS", 80)
    gp(curves(40, rng), curves(2, rng), 4, rng=rng)
    assert seen == [80]
    monkeypatch.setattr(plain_predictors, "MOST_TRAJECTORIES", 7)
    found = resampled(lines(np.arange(40.0), [0.0, 1.0]), lines([0.0], [0.0, 1.0]), NUM, rng=rng)
    assert len(atoms(found[:, 0, 1])) == 7


def test_a_process_without_anything_to_learn_from_says_what_it_saw(rng):
    values = np.full((2, 3, 1), 4.0)
    train = with_observed_start(Dataset.from_arrays([0.0, 1.0, 2.0], values, condition=[0, 1]))
    np.testing.assert_allclose(gp(train, train, 8, rng=rng), 4.0, rtol=1e-9)


# Scores


def made_scores(rng, num=6, num_out=2):
    count = rng.integers(1, 9, (num, num_out)).astype(float)
    return Scores(rng.uniform(0.5, 1.5, count.shape) * count, 0.9 * count, 2.0 * count, count)


def test_scores_by_trajectory_add_up_to_those_of_all_readings(rng):
    samples, data = rng.normal(size=(50, 3, 4, 1)), rng.normal(size=(2, 3, 4, 1))
    mask = rng.uniform(size=data.shape) < 0.7
    mask[1, 2] = False  # a trajectory without readings has no row
    found = scores_by_trajectory(samples, data, mask, np.array([2.0]))
    assert len(found.count) == 5 and found.count.sum() == mask.sum()
    assert mean_crps(found) == pytest.approx(metrics.crps(samples, data, mask=mask) / 2.0, rel=1e-12)
    said = summary(found, ["y"])
    assert said["coverage"] == pytest.approx(metrics.coverage(samples, data, mask=mask)["90"], rel=1e-12)
    [(low, high)] = metrics.central_bands(samples, [90])
    width = np.broadcast_to(high - low, data.shape)[mask].mean() / 2.0
    assert said["width"] == pytest.approx(width, rel=1e-12)


def test_units_do_not_mix(rng):
    train, test = (curves(num, rng) for num in (12, 5))
    outputs = [np.concatenate([data.outputs, data.outputs**2], axis=2) for data in (train, test)]
    found = []
    for factor in (1.0, 1000.0):
        scale = np.array([1.0, factor])
        parts: Any = []
        for data, values in zip((train, test), outputs, strict=True):
            assert data.initial is not None
            start = np.concatenate([data.initial, data.initial**2], axis=1)
            mask = np.repeat(data.mask, 2, axis=2)
            names = ("a", "b")
            changed = {"outputs": values * scale, "mask": mask, "initial": start * scale, "output_names": names}
            parts.append(dataclasses.replace(data, **changed))
        fitted, held_out = parts
        samples = resampled(fitted, held_out, 64, rng=np.random.default_rng(1))
        found.append(skill_of([Fold(fitted, held_out, samples)], seed=0))
    for key in ("crps", "ratio", "ratio_se", "width"):
        assert found[0][key] == pytest.approx(found[1][key], rel=1e-6), key
    assert found[0]["crps"] == pytest.approx(np.mean(list(found[0]["crps_by_output"].values())), rel=1e-12)


def test_the_error_of_a_ratio_is_the_jackknife_s(rng):
    ours, other = made_scores(rng), made_scores(rng)
    other = other._replace(count=ours.count)
    ratio, error = crps_ratio(ours, other)
    assert ratio == mean_crps(ours) / mean_crps(other)
    without: Any = []
    for left_out in range(6):
        parts = [Scores(*(np.delete(table, left_out, axis=0) for table in one)) for one in (ours, other)]
        without.append(mean_crps(parts[0]) / mean_crps(parts[1]))
    expected = np.sqrt(5 / 6 * np.sum((without - np.mean(without)) ** 2))
    assert error == pytest.approx(expected, rel=1e-9)
    single = Scores(*(table[:1] for table in ours))
    assert crps_ratio(single, single) == (1.0, None)


def test_the_error_of_a_ratio_is_its_scatter_over_data_sets(rng):
    num_sets, num, found = 400, 20, []
    for _ in range(num_sets):
        size = np.exp(0.3 * rng.standard_normal((num, 1)))  # trajectories that are hard are so for both
        count = np.full((num, 1), 10.0)
        first, second = (count * size * np.exp(0.2 * rng.standard_normal((num, 1))) for _ in range(2))
        found.append(crps_ratio(Scores(first, count, count, count), Scores(second, count, count, count)))
    ratios, errors = np.transpose(found)
    scatter = ratios.std(ddof=1)
    assert abs(np.sqrt(np.mean(errors**2)) - scatter) < 5 * scatter / np.sqrt(2 * num_sets) + 0.05 * scatter


def test_a_predictor_without_error_cannot_be_beaten(rng):
    ours = made_scores(rng)
    nothing = ours._replace(crps=np.zeros_like(ours.crps))
    assert crps_ratio(ours, nothing) == (np.inf, 0.0) and crps_ratio(nothing, nothing) == (1.0, 0.0)


def test_the_best_plain_predictor_is_the_one_to_beat(rng):
    ours = made_scores(rng)
    plain = {"a": ours._replace(crps=2.0 * ours.crps), "b": ours._replace(crps=1.25 * ours.crps), "c": None}
    found = skill(ours, plain, ["x", "y"])
    assert found["best"] == "b" and found["ratio"] == pytest.approx(0.8, rel=1e-12)
    assert found["ratio_se"] == pytest.approx(0.0, abs=1e-12) and found["num_trajectories"] == 6
    assert found["baselines"]["a"]["crps"] == pytest.approx(2.0 * found["crps"], rel=1e-12)


def test_folds_are_pooled_and_every_trajectory_counts_once(rng):
    data = curves(12, rng)
    folds = []
    for part in np.split(np.arange(12), 3):
        train, test = data.select(~np.isin(np.arange(12), part)), data.select(part)
        folds.append(Fold(train, test, gp(train, test, 128, rng=rng)))
    found = skill_of(folds, seed=0)
    assert found is not None and found["num_trajectories"] == 12
    ours = []
    for fold in folds:
        members = fold.test.replicates()
        ours.append(scores_by_trajectory(fold.samples, members.outputs, members.mask, spread_of(fold.train)))
    assert found["crps"] == mean_crps(pooled(ours))
    assert set(found["baselines"]) == set(PREDICTORS) == {"resampled", "gp", "carried"}
    for one in found["baselines"].values():
        assert {"crps", "coverage", "width"} <= set(one)
    assert found["best"] == "gp" and abs(found["ratio"] - 1.0) < 0.1
    assert found["ratio"] < 1.0 + 3 * found["ratio_se"] + 0.1


def test_without_training_data_there_is_nothing_to_compare_with(rng):
    test = lines([0.0], [0.0, 1.0])
    assert skill_of([Fold(test.select(np.zeros(0, int)), test, np.zeros((4, 1, 2, 1)))], seed=0) is None
