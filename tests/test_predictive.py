"""Predictions on refined grids, and their noise, where the answers are known."""

# pyright: reportArgumentType=false
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.data import Dataset, Scaling
from langenode.inference.likelihood import Likelihood, inferred_noise
from langenode.inference.predictions import (
    Prediction,
    PredictionKeys,
    Rule,
    noise_scales,
    observable,
    predict,
    with_noise,
)
from langenode.inference.problem import draw_members
from langenode.inference.targets import Population
from problems import problem_of

KEY = jax.random.key(5)


def test_a_largest_step_makes_the_integrator_accurate_at_the_readings_themselves():
    """dy/dt = -y from 1: the exact solution at far readings, order two in the step."""
    data = Dataset.from_arrays([0.0, 1.5, 2.0], np.zeros((1, 3)), initial=[1.0])
    errors = []
    for step in (0.1, 0.05):
        outputs = predict(problem_of([1.0, 1.0]), data, 4, Rule(largest_step=step), key=KEY).outputs
        assert outputs.shape == (4, 1, 3, 1)
        errors.append(np.abs(outputs[0, 0, :, 0] - np.exp(-data.times[0])).max())
    assert errors[0] < 2e-3 and np.log2(errors[0] / errors[1]) == pytest.approx(2.0, abs=0.4)


def test_noise_is_that_of_the_weights_or_the_rms_of_what_was_stored():
    weights = jnp.zeros((3, 1))
    inferred = problem_of([1.0, 2.0], log_noise=jnp.log(jnp.array([0.3])), likelihood=inferred_noise())
    outputs = np.zeros((3, 1, 1, 1))
    np.testing.assert_allclose(noise_scales(inferred, weights, outputs), np.full((3, 1, 1, 1), 0.3), rtol=1e-12)
    stored = Likelihood(jnp.array([3.0, 4.0]).reshape(1, 1, 2, 1), jnp.ones(1))
    given = problem_of([1.0, 2.0], likelihood=stored)
    np.testing.assert_allclose(noise_scales(given, weights, outputs), 12.5**0.5, rtol=1e-12)
    np.testing.assert_array_equal(noise_scales(problem_of([1.0, 2.0]), weights, outputs), 0.0)


def test_observations_have_noise_under_a_posterior_and_none_beyond_the_spread_of_a_population():
    data = Dataset.from_arrays([0.0, 1.0], np.zeros((1, 2)), initial=[1.0])
    scaling = Scaling.identity(data)
    noise = Likelihood(jnp.full((1, 1, 1, 1), 0.5), jnp.ones(1))
    prediction = Prediction(np.zeros((20_000, 1, 2, 1)), jnp.zeros((20_000, 1)))
    rule = Rule(scaling, noise_factor=2.0)
    noisy = observable(problem_of([1.0], likelihood=noise), prediction, rule, rng=np.random.default_rng(0))
    # The standard error of a standard deviation of n draws is s / sqrt(2 n).
    assert abs(noisy[:, 0, 0, 0].std() - 1.0) < 5.0 / np.sqrt(2 * 20_000)
    population = problem_of([1.0], likelihood=noise, target=Population())
    still = observable(population, prediction, rule, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(still, 0.0)
    added = with_noise(population, prediction, rule, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(added, noisy)


def test_everything_that_is_drawn_has_a_key_of_its_own():
    """Start = reading of the drawn member + noise: each from its own key, and the weights from theirs."""
    data = Dataset.from_arrays([0.0, 1.0], np.zeros((5, 2)), initial=np.arange(5.0), condition=np.zeros(5, int))
    noise = Likelihood(jnp.full((1, 5, 1, 1), 0.1), jnp.ones(1))
    problem = problem_of([0.0, 0.5, 1.0], likelihood=noise)
    found = predict(problem, data, 200, Rule(starts_at_reading=True), key=KEY)
    keys = PredictionKeys.of(KEY)
    assert len({tuple(jax.random.key_data(key).tolist()) for key in (KEY, *keys)}) == 5
    np.testing.assert_array_equal(found.weights, problem.posterior.sample(200, key=keys.weights))
    member = draw_members(keys.members, jnp.ones((5, 1), bool), 200)[:, 0]
    start = member + 0.1 * jax.random.normal(keys.start_noise, (200, 1, 1))[:, 0, 0]
    np.testing.assert_allclose(found.outputs[:, 0, 0, 0], start, rtol=1e-12)


def test_a_start_that_was_read_has_the_noise_of_a_reading_and_the_process_carries_it_on():
    """dy/dt = y / 2: a start of standard deviation 0.2 (a factor of two on 0.1) grows to 0.2 exp(t / 2)."""
    data = Dataset.from_arrays([0.0, 1.0, 2.0], np.zeros((1, 3)), initial=[1.0])
    noise = Likelihood(jnp.full((1, 1, 1, 1), 0.1), jnp.ones(1))
    rates, num = [-0.5] * 4, 20_000
    rule = Rule(largest_step=0.02, noise_factor=np.array([2.0]), starts_at_reading=True)
    outputs = predict(problem_of(rates, likelihood=noise), data, num, rule, key=KEY).outputs[:, 0, :, 0]
    exact = np.exp(0.5 * data.times[0])
    np.testing.assert_allclose(outputs.std(0), 0.2 * exact, rtol=5 / np.sqrt(2 * num))
    assert np.all(np.abs(outputs.mean(0) - exact) < 5 * 0.2 * exact / np.sqrt(num))
    still = predict(problem_of(rates, likelihood=noise), data, 4, rule._replace(starts_at_reading=False), key=KEY)
    assert np.ptp(still.outputs, axis=0).max() == 0.0
