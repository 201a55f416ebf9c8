"""Interacting Langevin particles: affine invariance, and moments of a normal posterior in closed form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import problems
from langenode import samplers
from langenode.posteriors import Density
from langenode.samplers.interacting import Particles, _at, advance

DIM, NUM = 3, 24
MAP = np.array([[20.0, 3.0, 0.0], [0.0, 1.0, -0.4], [0.1, 0.0, 0.05]])
OFFSET = np.array([1.0, -2.0, 0.5])


class Banana(eqx.Module):
    """A density that is not normal, of `map^-1 (z - offset)`."""

    inverse: jax.Array
    offset: jax.Array

    def __call__(self, z):
        x = self.inverse @ (z - self.offset)
        return -0.5 * jnp.sum(x**2) - 0.3 * (x[1] - x[0] ** 2) ** 2


class Rest(eqx.Module):
    """What a log posterior has beside the prior."""

    log_posterior: Any

    def __call__(self, z):
        return self.log_posterior(z) - jnp.sum(jax.scipy.stats.norm.logpdf(z))


def density_with(log_posterior, dim=DIM):
    """The density whose log posterior is given, prior and all."""
    return Density(Rest(log_posterior), None, None, dim, np.dtype(float))


def density_of(matrix, offset):
    return density_with(Banana(jnp.asarray(np.linalg.inv(matrix)), jnp.asarray(offset)))


@pytest.mark.parametrize("is_adjusted", [True, False])
def test_an_affine_change_of_the_weights_changes_the_particles_accordingly(is_adjusted):
    plain, mapped = density_of(np.eye(DIM), np.zeros(DIM)), density_of(MAP, OFFSET)
    start = jax.random.normal(jax.random.key(0), (NUM, DIM))
    here, there = _at(plain, start), _at(mapped, start @ MAP.T + OFFSET)
    acceptances = []
    for number in range(6):
        key = jax.random.key(number)
        here, one = advance(plain, here, jnp.asarray(0.3), is_adjusted, key=key)
        there, two = advance(mapped, there, jnp.asarray(0.3), is_adjusted, key=key)
        np.testing.assert_allclose(two, one, rtol=1e-9)
        acceptances.append(float(one))
    np.testing.assert_allclose(there.z, here.z @ MAP.T + OFFSET, rtol=1e-8, atol=1e-8)
    assert np.any(here.z != start) and (np.mean(acceptances) < 1.0) == is_adjusted


def test_a_step_is_its_formula():
    """Garbuno-Inigo et al. with the term of Nuesken and Reich, written out particle by particle."""
    density = density_of(np.eye(DIM), np.zeros(DIM))
    start, key, step = 0.5 * jax.random.normal(jax.random.key(1), (NUM, DIM)), jax.random.key(2), 0.1
    found, _ = advance(density, _at(density, start), jnp.asarray(step), False, key=key)
    z, noise = np.asarray(start), np.asarray(jax.random.normal(key, (NUM, NUM)))
    covariance, mean = np.cov(z.T, ddof=0), z.mean(0)
    slopes = np.asarray(jax.vmap(jax.grad(density.log_posterior))(start))
    for i in range(NUM):
        drift = covariance @ slopes[i] + (DIM + 1) / NUM * (z[i] - mean)
        spread = ((z - mean) / np.sqrt(NUM)).T @ noise[i]
        np.testing.assert_allclose(found.z[i], z[i] + step * drift + np.sqrt(2 * step) * spread, rtol=1e-8)


# --- moments, by independent ensembles whose means have honest standard errors


class Normal(eqx.Module):
    """N(0, 1) in every weight."""

    def __call__(self, z):
        return -0.5 * jnp.sum(z**2)


def ensemble_moments(num_particles, step, is_adjusted, *, num_steps, num_ensembles=256, dim=2):
    """The mean and the second moments of each of many independent ensembles, from draws of the posterior itself."""
    density = density_with(Normal(), dim)

    @problems.optimised_jit
    def run(keys):
        def one(key):
            key_start, key_run = jax.random.split(key)
            first = _at(density, jax.random.normal(key_start, (num_particles, dim)))

            def move(particles, number):
                moved, _ = advance(
                    density, particles, jnp.asarray(step), is_adjusted, key=jax.random.fold_in(key_run, number)
                )
                return moved, None

            z = jax.lax.scan(move, first, jnp.arange(num_steps))[0].z
            products = z[:, :, None] * z[:, None, :]
            return jnp.concatenate([z.mean(0), products.mean(0)[jnp.triu_indices(dim)]])

        return jax.vmap(one)(keys)

    return np.asarray(run(jax.random.split(jax.random.key(3), num_ensembles)))


EXACT = np.array([0.0, 0.0, 1.0, 0.0, 1.0])


def test_adjusted_steps_leave_the_posterior_as_it_is():
    """With a step as long as is wise, and as few particles as can be: nothing drifts."""
    moments = ensemble_moments(8, 1.0, True, num_steps=30)
    problems.assert_mean(moments, EXACT)
    assert problems.standard_error(moments)[2] < 0.03


def test_the_correction_for_few_particles_is_needed():
    """Six particles in two dimensions, small steps: right with the term (d + 1)/N, and its absence would be seen."""
    step = 0.01
    moments = ensemble_moments(6, step, False, num_steps=300)
    problems.assert_mean(moments, EXACT, bias=2.0 * step)
    assert 5.0 * problems.standard_error(moments)[2] + 2.0 * step < 0.3  # without it the variance falls to 1 - 3/N


def test_the_bias_of_unadjusted_steps_is_the_stated_one():
    """`(1 - sqrt(1 - 2 e))/e` of many particles."""
    step = 0.2
    moments = ensemble_moments(128, step, False, num_steps=60, num_ensembles=32)
    factor = (1.0 - np.sqrt(1.0 - 2.0 * step)) / step
    problems.assert_mean(moments, np.array([0.0, 0.0, factor, 0.0, factor]), bias=2.0 / 128)
    assert moments[:, 2].mean() > 1.0 + 0.25 * step


class Linear(eqx.Module):
    design: jax.Array
    outputs: jax.Array
    sigma: float = eqx.field(static=True)

    def residual(self, z):
        return (self.outputs - self.design @ z) / self.sigma

    def log_likelihood(self, z):
        return -0.5 * jnp.sum(self.residual(z) ** 2)


def test_the_sampler_has_the_moments_of_a_linear_posterior():
    problem = problems.linear_gaussian(3, num_data=6, sigma=0.02)  # ill-conditioned: the prior is far wider
    model = Linear(problem.design, problem.outputs, float(problem.sigma))
    density = Density(model.log_likelihood, model.residual, None, 3, np.dtype(float))
    found = samplers.interacting(density, key=jax.random.key(4), num_draws=10**6, num_particles=64, num_steps=256)
    assert found.trust.is_trusted, found.trust.reason
    assert 0.4 < found.diagnostics["acceptance"] < 0.8 and found.diagnostics["num_particles"] == 64
    mean, covariance = problem.posterior()
    white = np.linalg.solve(np.linalg.cholesky(covariance), (np.asarray(found.draws) - mean).T).T
    rows, columns = np.triu_indices(3)
    values = np.concatenate([white, white[:, rows] * white[:, columns]], axis=1)
    by_particle = values.reshape(-1, 64, values.shape[1]).mean(0)  # particles are independent at rest
    problems.assert_mean(by_particle, np.concatenate([np.zeros(3), (rows == columns).astype(float)]))


def test_too_few_particles_are_refused():
    model = Linear(jnp.eye(5), jnp.zeros(5), 1.0)
    density = Density(model.log_likelihood, model.residual, None, 5, np.dtype(float))
    with pytest.raises(ValueError, match=r"must be at least 12 for 5 weights.*got 10"):
        samplers.interacting(density, key=jax.random.key(0), num_particles=10)


def test_a_wild_gradient_is_no_number_in_no_particle():
    class Wall(eqx.Module):
        def __call__(self, z):
            return jnp.where(z[0] > 0.5, jnp.nan, -0.5 * jnp.sum(z**2))

    density = density_with(Wall())
    start = -jnp.abs(jax.random.normal(jax.random.key(0), (NUM, DIM)))
    particles = Particles(*_at(density, start))
    for number in range(20):
        particles, _ = advance(density, particles, jnp.asarray(0.5), True, key=jax.random.key(number))
    assert np.all(np.isfinite(particles.z)) and np.all(particles.z[:, 0] <= 0.5)
