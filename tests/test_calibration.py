"""The factor on the noise of predictions, where it is known."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats

from langenode.data import Dataset
from langenode.inference.calibration import (
    LIMITS,
    Errors,
    band_factor,
    calibrate,
    calibration_of,
    num_independent,
    prediction_errors,
)
from langenode.inference.likelihood import Likelihood
from langenode.inference.predictions import Rule, observable, predict
from langenode.scores import verdict
from langenode.scores.metrics import coverage
from problems import problem_of

KEY = jax.random.key(5)


def scattered(scales, num_times=400, seed=0):
    """Trajectories about zero with noise of the given scales, from a start at zero that stays there."""
    rng = np.random.default_rng(seed)
    times = np.arange(num_times, dtype=float)
    outputs = np.stack([s * rng.standard_normal(num_times) for s in scales])
    return Dataset.from_arrays(times, outputs, initial=np.zeros(len(scales)), condition=np.arange(len(scales)))


def noise_factor(problem, *parts, num_samples=8, starts_at_reading=False):
    """The factor for one output by the errors of some data sets."""

    def errors_at(factor):
        rule = Rule(noise_factor=factor, starts_at_reading=starts_at_reading)
        return [prediction_errors(problem, part, num_samples, rule, key=KEY) for part in parts]

    return calibrate(errors_at, parts[0].num_outputs, starts_at_reading=starts_at_reading)[0].factor


def factor_for(train_scales, new_scales):
    noise = Likelihood(jnp.full((1, 1, 1, 1), 0.1), jnp.ones(1))
    problem = problem_of([0.0, 0.0], likelihood=noise)
    return noise_factor(problem, scattered(train_scales), scattered(new_scales, seed=1))[0]


# Relative standard error of the 90 % quantile of |z| for n normal cells: sqrt(0.9 * 0.1 / n) / (density * quantile).
TAIL_ERROR = np.sqrt(0.09 / 2000) / (0.2063 * 1.645)


def test_the_factor_is_the_scale_of_the_errors():
    """White errors: thousands of them leave nothing to allow for."""
    assert factor_for([0.2] * 20, [0.2] * 10) == pytest.approx(2.0, rel=5 * TAIL_ERROR)
    assert factor_for([0.05] * 20, [0.05] * 10) == pytest.approx(0.5, rel=5 * TAIL_ERROR)


def test_new_trajectories_count_like_those_that_were_fitted():
    """Half of the cells at scale 0.1 and half at 0.2: the quantile of the mixture, solved for here."""
    root = float(optimize.brentq(lambda q: stats.norm.cdf(q / 0.1) + stats.norm.cdf(q / 0.2) - 1.9, 0.01, 1.0))  # pyright: ignore
    found = factor_for([0.1] * 20, [0.2] * 20)
    assert found == pytest.approx(root / 0.1 / 1.645, rel=5 * TAIL_ERROR)


def test_heavy_tails_make_bands_narrower_where_the_rms_is_that_of_a_few():
    """One trajectory in twenty holds nearly all the noise: most readings lie well within 1.645 of the rms."""
    scales = [0.03] * 19 + [0.1 * np.sqrt(20)]
    assert 0.3 < factor_for(scales, scales) < 0.6


def test_every_output_has_a_factor_of_its_own_within_limits():
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((6, 400, 2)) * [0.05, 1.0]
    data = Dataset.from_arrays(np.arange(400.0), outputs, initial=np.zeros((6, 2)), condition=np.arange(6))
    noise = Likelihood(jnp.full((1, 1, 1, 2), 0.1), jnp.ones(1))
    found = noise_factor(problem_of([0.0, 0.0], likelihood=noise), data)
    assert found[0] == pytest.approx(0.5, rel=5 * TAIL_ERROR)
    assert found[1] == pytest.approx(LIMITS[1], rel=1e-6)


# Bands of a perfect model, from few trajectories. Errors are in predicted standard deviations already.

NUM_READINGS = 12


def draw_errors(kind, num, rng):
    """Standard normal errors, independent or equal within a trajectory, or between the two."""
    white, common = rng.standard_normal((num, NUM_READINGS)), rng.standard_normal((num, 1))
    if kind == "white":
        return white
    if kind == "equal":
        return np.broadcast_to(common, white.shape).copy()
    errors = white.copy()
    memory = np.exp(-3.0 / NUM_READINGS)
    for k in range(1, NUM_READINGS):
        errors[:, k] = memory * errors[:, k - 1] + np.sqrt(1.0 - memory**2) * white[:, k]
    return errors


def as_errors(values):
    """Errors of predictions whose weights are known and whose noise is 1."""
    return Errors(values[..., None], np.zeros((*values.shape, 1)), np.ones((*values.shape, 1)))


@pytest.mark.parametrize("kind", ["white", "equal", "memory"])
@pytest.mark.parametrize("num", [2, 4, 8, 16, 32])
def test_ninety_per_cent_bands_hold_88_to_92_of_new_readings_on_average(kind, num):
    rng = np.random.default_rng([num, len(kind)])
    inside, values, factor = [], np.zeros((num, NUM_READINGS)), 1.0
    for _ in range(1000):
        values = draw_errors(kind, num, rng)
        factor = np.clip(band_factor(values.ravel(), num_independent([values])), *LIMITS)
        inside.append(2.0 * special.ndtr(1.645 * factor) - 1.0)
    assert calibration_of([as_errors(values)]).factor[0] == pytest.approx(factor, rel=1e-6)
    error = np.std(inside) / np.sqrt(len(inside))
    assert error < 0.01
    assert 0.88 - 3 * error <= np.mean(inside) <= 0.92 + 3 * error


def test_independent_errors_are_counted():
    rng = np.random.default_rng(0)
    equal, white, memory = (draw_errors(kind, 200, rng) for kind in ("equal", "white", "memory"))
    assert num_independent([equal]) == pytest.approx(200)
    assert num_independent([white[:100], white[100:]]) == pytest.approx(2400, rel=0.02)
    lags = np.abs(np.subtract.outer(np.arange(NUM_READINGS), np.arange(NUM_READINGS)))
    exact = 200 * NUM_READINGS**2 / np.sum(np.exp(-6.0 / NUM_READINGS * lags))
    # Correlations of 200 trajectories are known to 1 / sqrt(200), twice that when squared.
    assert num_independent([memory]) == pytest.approx(exact, rel=5 * 2 / np.sqrt(200))


def test_missing_readings_make_no_lags():
    """Readings count by their order: those that are missing do not separate the others."""
    rng = np.random.default_rng(1)
    values = draw_errors("equal", 30, rng)
    values[rng.uniform(size=values.shape) < 0.4] = np.nan
    seen = np.isfinite(values).sum(1)
    assert num_independent([values]) == pytest.approx(seen.sum() ** 2 / (seen**2).sum())


def test_student_s_band_is_exact_for_errors_that_are_one_number_per_trajectory():
    """`P(|e| < t s)` is 90 % for s of n numbers: the width is t's, and changes to the quantile's from 10 to 30."""
    values = np.repeat(np.array([[1.0], [-2.0], [0.5], [1.5]]), 6, axis=1)
    rms = np.sqrt(np.mean(values**2))
    assert band_factor(values.ravel(), 4.0) == pytest.approx(stats.t.ppf(0.95, 4) * rms / 1.6448536)
    many = np.linspace(-1.0, 1.0, 401)
    level = (0.9 * 402 - 0.5) / 401
    assert band_factor(many, 401.0) == pytest.approx(np.quantile(np.abs(many), level, method="hazen") / 1.6448536)
    between = band_factor(many, 20.0)
    ends = stats.t.ppf(0.95, 20) * np.sqrt(np.mean(many**2)), np.quantile(np.abs(many), 0.92, method="hazen")
    assert between == pytest.approx(np.sqrt(np.prod(ends)) / 1.6448536)


def test_a_calibration_at_its_limit_is_a_reservation():
    errors = np.random.default_rng(0).standard_normal((8, 20))
    assert [calibration_of([as_errors(size * errors)]).is_at_limit for size in (0.01, 1.0, 50.0)] == [True, False, True]
    said = verdict.judge({"calibration": {"num_independent": [30.0, 30.0], "is_at_limit": True}})
    assert said["level"] == "caution" and "cannot be calibrated" in said["text"]


def test_a_calibration_by_few_independent_errors_is_a_reservation():
    assert verdict.judge({"calibration": {"num_independent": [30.0, 5.5]}})["level"] == "trust"
    for num, level in ((5, "trust"), (4, "caution")):
        said = verdict.judge({"calibration": {"num_independent": [30.0], "num_trajectories": num}})
        assert said["level"] == level and ("cannot be calibrated" in said["text"]) == (level == "caution")
    said = verdict.judge({"calibration": {"num_independent": [30.0, 2.0]}})
    assert said["level"] == "caution" and "cannot be calibrated" in said["text"]


def growing(num, seed, noise=0.1):
    """dy/dt = y / 2 from y(0) in (1, 3), where the start and all else is read with the same noise."""
    rng = np.random.default_rng(seed)
    times, start = np.linspace(0.0, 4.0, 21), rng.uniform(1.0, 3.0, num)
    exact = start[:, None] * np.exp(0.5 * times)
    read = exact + noise * rng.standard_normal(exact.shape)
    mask = np.broadcast_to(times > 0.0, read.shape)
    return Dataset.from_arrays(times, read, mask=mask, initial=read[:, 0], condition=np.arange(num))


def test_noise_in_the_start_is_told_from_noise_in_the_readings():
    """The fit's noise is the rms of all errors, most of which come from the start; the truth is a seventh of it."""
    train, validation, test = growing(200, 0), growing(100, 1), growing(200, 2)
    rms = np.sqrt(0.01 * (1.0 + np.exp(train.times[0, 1:])).mean())
    problem = problem_of([-0.5] * 4, likelihood=Likelihood(jnp.full((1, 1, 1, 1), rms), jnp.ones(1)))
    factor = noise_factor(problem, train, validation, num_samples=400, starts_at_reading=True)
    # A trajectory's errors are nearly one number: 200 of them, and 400 samples, each know a scale to 1 / sqrt(2 n).
    assert factor[0] * rms == pytest.approx(0.1, rel=5 * np.sqrt(1 / 400 + 1 / 800) + 0.05)
    rule = Rule(noise_factor=factor, starts_at_reading=True)
    prediction = predict(problem, test, 400, rule, key=KEY)
    samples = observable(problem, prediction, rule, rng=np.random.default_rng(3))
    members = test.replicates()
    late = np.zeros_like(members.mask)
    late[:, :, -5:] = members.mask[:, :, -5:]
    error = 5 * np.sqrt(0.09 / 200)
    assert coverage(samples, members.outputs, mask=late)["90"] == pytest.approx(0.9, abs=error)
    assert coverage(samples, members.outputs, mask=members.mask & ~late)["90"] == pytest.approx(0.9, abs=error)
