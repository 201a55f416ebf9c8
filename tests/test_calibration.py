"""The factor on the noise of predictions, where it is known."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.calibration import LIMITS_OF_TAIL, noise_factor
from langenode.data import Dataset
from langenode.likelihood import Likelihood
from langenode.metrics import coverage
from langenode.predictive import Rule, observable, predict
from test_predictive import problem_of

KEY = jax.random.key(5)


def scattered(scales, num_times=400, seed=0):
    """Trajectories about zero with noise of the given scales, from a start at zero that stays there."""
    rng = np.random.default_rng(seed)
    times = np.arange(num_times, dtype=float)
    outputs = np.stack([s * rng.standard_normal(num_times) for s in scales])
    return Dataset.from_arrays(times, outputs, initial=np.zeros(len(scales)), condition=np.arange(len(scales)))


def factor_for(train_scales, new_scales):
    noise = Likelihood(jnp.full((1, 1, 1, 1), 0.1), jnp.ones(1))
    problem = problem_of([0.0, 0.0], likelihood=noise)
    return noise_factor(problem, scattered(train_scales), scattered(new_scales, seed=1), 8, key=KEY)[0]


# Relative standard errors: of the 90 % quantile of |z| for n normal cells, sqrt(0.9 * 0.1 / n) / (density * quantile);
# of the root of the ratio of two mean squares of n cells each, sqrt(1 / n).
TAIL_ERROR = np.sqrt(0.09 / 2000) / (0.2063 * 1.645)
GROWTH_ERROR = np.sqrt(1 / 400)


def test_the_noise_factor_finds_how_much_more_new_trajectories_scatter():
    found = factor_for([0.1] * 5, [0.2] * 5)
    assert found == pytest.approx(2.0, rel=5 * np.hypot(TAIL_ERROR, GROWTH_ERROR))


def test_the_noise_factor_is_not_set_by_one_new_trajectory_and_less_scatter_is_no_gain():
    tolerance = 5 * np.hypot(TAIL_ERROR, GROWTH_ERROR)
    assert factor_for([0.1] * 5, [0.2, 0.2, 0.2, 0.2, 50.0]) == pytest.approx(2.0, rel=tolerance)
    assert factor_for([0.1] * 5, [0.02] * 5) == pytest.approx(1.0, rel=5 * TAIL_ERROR)


def test_heavy_tails_make_bands_narrower_where_the_rms_is_that_of_a_few():
    """One trajectory in ten holds nearly all the noise: 90 % of the readings lie well within 1.645 of its rms."""
    scales = [0.03] * 19 + [0.1 * np.sqrt(20)]
    # 90 % of all readings are 94.7 % of the quiet ones: 1.94 of their scales of 0.03, a third of the band of the rms.
    quiet = 0.3 * 1.94 / 1.645
    assert factor_for(scales, scales[:5]) == pytest.approx(quiet, rel=5 * np.hypot(TAIL_ERROR, GROWTH_ERROR))
    mild = [0.08] * 15 + [0.14] * 5
    assert 0.9 < factor_for(mild, mild) < 1.1


def test_every_output_has_a_factor_of_its_own_within_limits():
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((6, 400, 2)) * [0.05, 1.0]
    data = Dataset.from_arrays(np.arange(400.0), outputs, initial=np.zeros((6, 2)), condition=np.arange(6))
    noise = Likelihood(jnp.full((1, 1, 1, 2), 0.1), jnp.ones(1))
    found = noise_factor(problem_of([0.0, 0.0], likelihood=noise), data, data, 8, key=KEY)
    assert found[0] == pytest.approx(0.5, rel=5 * TAIL_ERROR)
    assert found[1] == pytest.approx(LIMITS_OF_TAIL[1], rel=1e-6)


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
    factor = noise_factor(problem, train, validation, 400, starts_at_reading=True, key=KEY)
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
