"""Predictions on refined grids, their noise, and its calibration, where the answers are known."""

# pyright: reportArgumentType=false

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.data import Dataset, Scaling
from langenode.likelihood import Likelihood, inferred_noise
from langenode.models import Heun, NeuralODE
from langenode.partition import Partition
from langenode.posteriors import Empirical
from langenode.predictive import Prediction, noise_factor, noise_scales, observable, predict, with_noise
from langenode.priors import GaussianPrior
from langenode.problem import Problem
from langenode.targets import Population, Posterior

KEY = jax.random.key(5)


class Decay(eqx.Module):
    rate: jax.Array

    def __call__(self, hidden, inputs):
        return -self.rate * hidden + inputs.sum()


def problem_of(rates, *, log_noise=None, likelihood=None, target=None):
    model = NeuralODE(Decay(jnp.asarray([rates[0]])), num_hidden=1, solver=Heun(), log_noise=log_noise)
    partition = Partition.of(model, lambda m: m.dynamics)
    draws = Empirical(jnp.asarray(rates)[:, None])
    prior = GaussianPrior(jnp.zeros(1), jnp.ones(1))
    return Problem(model, partition, prior, likelihood, target or Posterior(), draws)


def test_a_largest_step_makes_the_integrator_accurate_at_the_readings_themselves():
    """dy/dt = -y from 1: the exact solution at far readings, order two in the step."""
    data = Dataset.from_arrays([0.0, 1.5, 2.0], np.zeros((1, 3)), initial=[1.0])
    errors = []
    for step in (0.1, 0.05):
        outputs = predict(problem_of([1.0, 1.0]), data, 4, key=KEY, largest_step=step).outputs
        assert outputs.shape == (4, 1, 3, 1)
        errors.append(np.abs(outputs[0, 0, :, 0] - np.exp(-data.times[0])).max())
    assert errors[0] < 2e-3 and np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.4)


def test_noise_is_that_of_the_weights_or_the_rms_of_what_was_stored():
    weights = jnp.zeros((3, 1))
    inferred = problem_of([1.0, 2.0], log_noise=jnp.log(jnp.array([0.3])), likelihood=inferred_noise())
    np.testing.assert_allclose(noise_scales(inferred, weights), np.full((3, 1), 0.3), rtol=1e-12)
    stored = Likelihood(jnp.array([3.0, 4.0]).reshape(1, 1, 2, 1), jnp.ones(1))
    np.testing.assert_allclose(noise_scales(problem_of([1.0, 2.0], likelihood=stored), weights), 12.5**0.5, rtol=1e-12)
    np.testing.assert_array_equal(noise_scales(problem_of([1.0, 2.0]), weights), 0.0)


def test_observations_have_noise_under_a_posterior_and_none_beyond_the_spread_of_a_population():
    data = Dataset.from_arrays([0.0, 1.0], np.zeros((1, 2)), initial=[1.0])
    scaling = Scaling.identity(data)
    noise = Likelihood(jnp.full((1, 1, 1, 1), 0.5), jnp.ones(1))
    prediction = Prediction(np.zeros((20_000, 1, 2, 1)), jnp.zeros((20_000, 1)))
    options = {"scaling": scaling, "factor": 2.0}
    noisy = observable(problem_of([1.0], likelihood=noise), prediction, **options, rng=np.random.default_rng(0))
    # The standard error of a standard deviation of n draws is s / sqrt(2 n).
    assert abs(noisy[:, 0, 0, 0].std() - 1.0) < 5.0 / np.sqrt(2 * 20_000)
    population = problem_of([1.0], likelihood=noise, target=Population())
    still = observable(population, prediction, **options, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(still, 0.0)
    added = with_noise(population, prediction, **options, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(added, noisy)


def scattered(scales, num_times=400, seed=0):
    """Trajectories about zero with noise of the given scales, from a start at zero that stays there."""
    rng = np.random.default_rng(seed)
    times = np.arange(num_times, dtype=float)
    outputs = np.stack([s * rng.standard_normal(num_times) for s in scales])
    return Dataset.from_arrays(times, outputs, initial=np.zeros(len(scales)), condition=np.arange(len(scales)))


def factor_for(train_scales, new_scales):
    noise = Likelihood(jnp.full((1, 1, 1, 1), 0.1), jnp.ones(1))
    problem = problem_of([0.0, 0.0], likelihood=noise)
    return noise_factor(problem, scattered(train_scales), scattered(new_scales, seed=1), 8, key=KEY)


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
    assert factor_for(scales, scales[:5]) == pytest.approx(0.5, rel=5 * GROWTH_ERROR)
    mild = [0.08] * 15 + [0.14] * 5
    assert 0.9 < factor_for(mild, mild) < 1.1
