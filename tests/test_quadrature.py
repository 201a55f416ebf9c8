"""Sums over a grid against closed forms: a linear model, and a skewed distribution."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from langenode.inference.quadrature import QuadratureError, integrate
from langenode.posteriors import Density


def density_of(log_likelihood, dim):
    return Density(log_likelihood, None, None, dim, jnp.float64)


def linear(matrix, readings, sigma):
    """Readings of `matrix z` with noise: the posterior is normal, the evidence that of normal readings."""

    def log_likelihood(z):
        standard = (readings - matrix @ z) / sigma
        return -0.5 * jnp.sum(standard**2) - len(readings) * (jnp.log(sigma) + 0.5 * jnp.log(2.0 * jnp.pi))

    precision = np.eye(matrix.shape[1]) + matrix.T @ matrix / sigma**2
    mean = np.linalg.solve(precision, matrix.T @ readings) / sigma**2
    marginal = sigma**2 * np.eye(len(readings)) + matrix @ matrix.T
    squares = readings @ np.linalg.solve(marginal, readings)
    evidence = -0.5 * (squares + np.linalg.slogdet(2.0 * np.pi * marginal)[1])
    return log_likelihood, mean, np.linalg.inv(precision), evidence


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("sigma", [3.0, 0.02])
def test_a_linear_model_is_exact(dim, sigma):
    rng = np.random.default_rng(dim)
    matrix, readings = rng.normal(size=(6, dim)), rng.normal(size=6)
    log_likelihood, mean, covariance, evidence = linear(matrix, readings, sigma)
    found = integrate(density_of(log_likelihood, dim), jnp.zeros(dim))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-8)
    np.testing.assert_allclose(found.log_evidence, evidence, rtol=1e-8)
    assert found.error < 1e-8


def test_a_skewed_distribution():
    """One reading of exp(z): the integrals by adaptive quadrature."""

    def log_likelihood(z):
        return -0.5 * jnp.sum(((1.0 - jnp.exp(z)) / 0.1) ** 2)

    def weighted(power):
        return quad(
            lambda z: z**power * np.exp(-0.5 * ((1.0 - np.exp(z)) / 0.1) ** 2 - 0.5 * z**2) / np.sqrt(2.0 * np.pi),
            *(-4.0, 4.0),
            epsabs=1e-14,
            epsrel=1e-12,
            points=[0.0],
        )[0]

    found = integrate(density_of(log_likelihood, 1), jnp.ones(1))
    total, first, second = (weighted(power) for power in range(3))
    assert found.log_evidence == pytest.approx(np.log(total), rel=1e-8)
    assert found.mean[0] == pytest.approx(first / total, rel=1e-8)
    assert found.covariance[0, 0] == pytest.approx(second / total - (first / total) ** 2, rel=1e-8)
    assert found.error < 1e-6


def test_what_a_grid_cannot_do_is_refused():
    with pytest.raises(QuadratureError, match="one or two weights; there are 3"):
        integrate(density_of(lambda z: -jnp.sum(z**2), 3), jnp.zeros(3))
    # Heavy tails are not left behind in any box.
    heavy = density_of(lambda z: 0.5 * jnp.sum(z**2) - 2.0 * jnp.sum(jnp.log1p(z**2)), 1)
    with pytest.raises(QuadratureError, match="vanish at the edge"):
        integrate(heavy, jnp.zeros(1))
