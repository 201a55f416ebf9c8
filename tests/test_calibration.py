"""The factor on the noise of predictions, where it is known."""

# pyright: reportArgumentType=false

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

from langenode.data import Dataset
from langenode.inference.calibration import LIMITS, noise_factor
from langenode.inference.likelihood import Likelihood
from langenode.inference.predictions import Rule, observable, predict
from langenode.scores.metrics import coverage
from problems import problem_of

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


# Relative standard error of the 90 % quantile of |z| for n normal cells: sqrt(0.9 * 0.1 / n) / (density * quantile).
TAIL_ERROR = np.sqrt(0.09 / 2000) / (0.2063 * 1.645)


def level_of(num):
    """The quantile of |z| that the level (n + 1) / n asks for, over that of 90 %."""
    return stats.norm.ppf(0.5 + 0.45 * (num + 1) / num) / 1.645


def test_the_factor_is_the_scale_of_the_errors_with_room_for_one_more_trajectory():
    assert factor_for([0.2] * 20, [0.2] * 10) == pytest.approx(2.0 * level_of(30), rel=5 * TAIL_ERROR)
    assert factor_for([0.05] * 20, [0.05] * 10) == pytest.approx(0.5 * level_of(30), rel=5 * TAIL_ERROR)


def test_new_trajectories_count_like_those_that_were_fitted():
    """Half of the cells at scale 0.1 and half at 0.2: the quantile of the mixture, solved for here."""
    level = 0.9 * 41 / 40
    root = float(optimize.brentq(lambda q: stats.norm.cdf(q / 0.1) + stats.norm.cdf(q / 0.2) - 1 - level, 0.01, 1.0))  # pyright: ignore
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
    found = noise_factor(problem_of([0.0, 0.0], likelihood=noise), data, data, 8, key=KEY)
    assert found[0] == pytest.approx(0.5 * level_of(12), rel=5 * TAIL_ERROR)
    assert found[1] == pytest.approx(LIMITS[1], rel=1e-6)


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
