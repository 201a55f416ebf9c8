"""The Langevin demonstration's generator: exact solution, exact moments of its weights, density and score."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.inference.partition import Partition
from langenode.models import MLP, Heun, NeuralODE, OnConcatenation
from langenode.simulators.ou import OUParameters, exact_moments, log_density, score, simulate


def test_trajectories_solve_the_equation_from_their_own_start():
    data = simulate(OUParameters(num_times=40, end_time=0.7), 5, key=jax.random.key(0))
    W, b, start = data.attributes["W"][:, None], data.attributes["b"][:, None], data.initial
    assert start is not None
    level = -b / W
    expected = level + (start - level) * np.exp(W * data.times)
    np.testing.assert_allclose(data.outputs[..., 0], expected, rtol=1e-12)
    np.testing.assert_array_equal(data.outputs[:, 0, 0], start[:, 0])
    assert data.times[0, 0] == 0.0
    assert data.times[0, -1] == 0.7


def test_trajectories_are_those_of_the_linear_law_with_the_drawn_weights():
    data = simulate(OUParameters(num_times=30), 5, key=jax.random.key(1))
    model = NeuralODE(OnConcatenation(MLP((1, 1), key=jax.random.key(0))), num_hidden=1, solver=Heun(64))
    partition = Partition.of(model)
    assert partition.names == ("dynamics.network.layers[0].weight[0,0]", "dynamics.network.layers[0].bias[0]")
    weights = jnp.stack([data.attributes["W"], data.attributes["b"]], axis=1)
    run = jax.jit(jax.vmap(lambda w, t, x, h: partition.combine(model, w)(t, x, h)))
    outputs = run(weights, data.times, data.inputs, data.initial)
    np.testing.assert_allclose(outputs, data.outputs, atol=1e-5)


def test_it_is_one_condition_with_a_unit_a_trajectory_and_no_input():
    data = simulate(OUParameters(), 5, key=jax.random.key(0))
    assert (data.num_trajectories, data.num_times, data.num_outputs, data.num_inputs) == (5, 100, 1, 0)
    assert (data.num_conditions, data.num_units) == (1, 5)
    assert data.is_complete
    assert data.output_names == ("y",)


def test_draws_depend_on_the_key_alone():
    first, again, other = (simulate(OUParameters(), 5, key=jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first.outputs, again.outputs)
    assert np.all(first.outputs != other.outputs)


def test_without_spread_there_is_one_true_law():
    parameters = OUParameters(rate_std=0.0, level_std=0.0, start_std=0.0)
    data = simulate(parameters, 5, key=jax.random.key(0))
    np.testing.assert_array_equal(data.attributes["W"], -8.0)
    np.testing.assert_array_equal(data.attributes["b"], 8.0)
    np.testing.assert_array_equal(data.outputs[0], data.outputs[2])
    assert exact_moments(parameters).corr == 0.0


def test_noise_has_its_standard_deviation_and_leaves_the_weights_alone():
    clean, noisy = (simulate(OUParameters(noise=s), 200, key=jax.random.key(3)) for s in (0.0, 0.05))
    np.testing.assert_array_equal(clean.attributes["W"], noisy.attributes["W"])
    np.testing.assert_array_equal(clean.initial, noisy.initial)
    standard = (noisy.outputs - clean.outputs) / 0.05
    # The mean square of n standard normals has standard error sqrt(2 / n), their mean 1 / sqrt(n).
    assert abs(np.mean(standard**2) - 1.0) < 5.0 * np.sqrt(2.0 / standard.size)
    assert abs(standard.mean()) < 5.0 / np.sqrt(standard.size)


# --- the law of the weights


def test_moments_are_the_papers():
    moments = exact_moments(OUParameters())
    np.testing.assert_allclose(moments.mean, [-8.0, 8.0], rtol=1e-14)
    np.testing.assert_allclose(moments.std**2, [0.64, 1.2864], rtol=1e-12)
    assert round(moments.std[0] ** 2, 2) == 0.64
    assert round(moments.std[1] ** 2, 2) == 1.29
    assert round(moments.corr, 2) == -0.71


@pytest.mark.parametrize("parameters", [OUParameters(), OUParameters(5.0, 0.4, -2.0, 0.5)])
def test_moments_are_those_of_a_large_sample(parameters):
    num = 100_000
    data = simulate(parameters._replace(num_times=2), num, key=jax.random.key(2))
    weights = np.stack([data.attributes["W"], data.attributes["b"]], axis=1)
    moments = exact_moments(parameters)
    centred = (weights - moments.mean) / moments.std
    # Each is a mean of products, so its standard error is that of a mean.
    for first, second, expected in [(0, 0, 1.0), (1, 1, 1.0), (0, 1, moments.corr)]:
        products = centred[:, first] * centred[:, second]
        assert abs(products.mean() - expected) < 5.0 * products.std() / np.sqrt(num)
    assert np.all(np.abs(centred.mean(0)) < 5.0 / np.sqrt(num))
    assert data.initial is not None
    start = data.initial[:, 0]
    assert abs(start.mean() - parameters.start_mean) < 5.0 * parameters.start_std / np.sqrt(num)
    assert abs(start.std() / parameters.start_std - 1.0) < 5.0 / np.sqrt(2.0 * num)


@pytest.mark.parametrize("parameters", [OUParameters(), OUParameters(5.0, 0.4, -2.0, 0.5)])
def test_density_integrates_to_one_and_has_the_exact_moments(parameters):
    moments = exact_moments(parameters)
    # The trapezoid rule over 8 standard deviations each way; W stays clear of zero, where the density has its pole.
    W = -parameters.rate_mean + parameters.rate_std * np.linspace(-8.0, 8.0, 401)
    b = moments.mean[1] + moments.std[1] * np.linspace(-10.0, 10.0, 801)
    grid = np.stack(np.meshgrid(W, b, indexing="ij"), -1)
    density = np.exp(jax.jit(jax.vmap(jax.vmap(lambda w: log_density(w, parameters))))(grid))
    mass = density * (W[1] - W[0]) * (b[1] - b[0])
    np.testing.assert_allclose(mass.sum(), 1.0, rtol=1e-8)
    mean = np.einsum("ij,ijk->k", mass, grid)
    np.testing.assert_allclose(mean, moments.mean, rtol=1e-8)
    covariance = np.einsum("ij,ijk,ijl->kl", mass, grid - mean, grid - mean)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), moments.std, rtol=1e-8)
    np.testing.assert_allclose(covariance[0, 1] / moments.std.prod(), moments.corr, rtol=1e-8)


@pytest.mark.parametrize("parameters", [OUParameters(), OUParameters(5.0, 0.4, -2.0, 0.5)])
def test_score_is_the_gradient_of_the_log_density(parameters):
    points = exact_moments(parameters).mean + np.random.default_rng(0).normal(size=(20, 2))
    found = jax.jit(jax.vmap(lambda w: score(w, parameters)))(points)
    expected = jax.jit(jax.vmap(jax.grad(lambda w: log_density(w, parameters))))(points)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
