"""The reference and the Gaussian posteriors against linear algebra written out."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import problems
from langenode.inference.algorithm1 import negative_elbo
from langenode.posteriors import Draw, Reference, gaussian
from langenode.posteriors.base import ESTIMATORS

COVARIANCES = ("full", "diagonal", "lowrank")
DIM = 3
# The same for all tests, so that what one compiles serves the others.
KEYS = jax.random.split(jax.random.key(1), 16384)
BATCH_KEYS = KEYS.reshape(4096, 4)


# --- the reference


@pytest.mark.parametrize("rank", [None, 2])
def test_reference_is_the_affine_map_it_says(rank):
    reference = problems.reference_of(DIM, rank=rank)
    root = problems.dense_root(reference)
    z = np.random.default_rng(0).normal(size=DIM)
    weights = reference.to_weights(jnp.asarray(z))
    np.testing.assert_allclose(weights, reference.mean + root @ z, rtol=1e-12)
    np.testing.assert_allclose(reference.to_standard(weights), z, rtol=1e-12)
    np.testing.assert_allclose(reference.log_det, np.linalg.slogdet(root)[1], rtol=1e-8)


# --- the distribution


def example(covariance, *, rank=2, estimator: Any = "reparametrised", size=0.3):
    """A Gaussian away from its reference."""
    reference = problems.reference_of(DIM, rank=2 if covariance == "lowrank" else None)
    posterior = gaussian(reference, covariance, rank=rank, estimator=estimator, key=jax.random.key(0))
    return problems.perturbed(posterior, size)


def moments_of(posterior):
    """Mean and covariance of the weights, from the fields alone."""
    spread = np.diag(np.exp(np.asarray(posterior.log_scale)))
    if posterior.lower is not None:
        spread = spread + np.tril(posterior.lower, -1)
    covariance = spread @ spread.T
    if posterior.factor is not None:
        covariance = covariance + np.asarray(posterior.factor) @ np.asarray(posterior.factor).T
    root = problems.dense_root(posterior.reference)
    return np.asarray(posterior.reference.mean) + root @ np.asarray(posterior.shift), root @ covariance @ root.T


def reference_moments(reference):
    root = problems.dense_root(reference)
    return np.asarray(reference.mean), root @ root.T


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gaussian_is_the_moments_of_its_fields(covariance):
    posterior = example(covariance)
    moments, reference = moments_of(posterior), reference_moments(posterior.reference)
    draws = problems.draw_many(posterior, KEYS)
    deviations = np.asarray(draws.weights) - moments[0]
    problems.assert_mean(deviations, 0.0)
    problems.assert_mean(deviations[:, :, None] * deviations[:, None, :], moments[1])

    ours, theirs = problems.log_normal(draws.weights, *moments), problems.log_normal(draws.weights, *reference)
    np.testing.assert_allclose(draws.log_reference, theirs, rtol=1e-8)
    np.testing.assert_allclose(draws.log_ratio, ours - theirs, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(draws.kl, problems.normal_kl(*moments, *reference), rtol=1e-8)
    root = posterior.covariance_root()
    dense = problems.dense_root(posterior.reference) @ np.asarray(root)
    np.testing.assert_allclose(dense @ dense.T, moments[1], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_gaussian_starts_at_the_reference(covariance):
    posterior = gaussian(problems.reference_of(DIM), covariance, key=jax.random.key(0))
    assert posterior.kl() == 0.0


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_weights_average_to_the_evidence(covariance):
    posterior = example(covariance, size=0.15)
    reference = posterior.reference
    for prior in (reference, Reference(reference.mean + 0.2, 0.8 * reference.scale)):
        problem = problems.linear_gaussian(DIM, num_data=5, sigma=1.0, prior=prior)
        _, log_weights = problems.weigh(posterior, problem, KEYS)
        problems.assert_evidence(log_weights, problem, precision=0.05)


# --- gradients


@pytest.fixture(scope="module")
def problem():
    return problems.linear_gaussian(DIM, num_data=6, sigma=0.9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradient_is_that_of_the_exact_bound(covariance, estimator, problem):
    """-ELBO = KL from the exact posterior - log evidence; its gradient by finite differences."""
    posterior = example(covariance, estimator=estimator)
    numbers, rest = eqx.partition(posterior, posterior.trained())
    flat, unravel = ravel_pytree(numbers)

    def negative_elbo(flat):
        return problems.normal_kl(*moments_of(eqx.combine(unravel(jnp.asarray(flat)), rest)), *problem.posterior())

    step = 1e-5 * np.eye(flat.size)
    exact = [(negative_elbo(flat + move) - negative_elbo(flat - move)) / 2e-5 for move in step]
    gradients = problems.batch_gradients(posterior, problem, BATCH_KEYS)
    problems.assert_mean(gradients, np.array(exact), bias=1e-8)
    # The test has power: the gradient is far from zero.
    assert np.linalg.norm(exact) > 10.0 * np.linalg.norm(problems.standard_error(gradients))


@pytest.mark.parametrize("covariance", ["full", "lowrank"])
def test_reparametrised_gradient_equals_finite_differences(covariance, problem):
    posterior = example(covariance)
    numbers, rest = eqx.partition(posterior, posterior.trained())
    flat, unravel = ravel_pytree(numbers)
    step = 1e-5

    @problems.quick_jit
    def losses(rows):
        return jax.vmap(lambda row: problems.negative_bound(eqx.combine(unravel(row), rest), problem, BATCH_KEYS[0]))(
            rows
        )

    up, down = np.split(np.asarray(losses(flat + step * jnp.concatenate([jnp.eye(flat.size), -jnp.eye(flat.size)]))), 2)
    gradient = np.asarray(problems.batch_gradients(posterior, problem, BATCH_KEYS))[0]
    np.testing.assert_allclose(gradient, (up - down) / (2.0 * step), rtol=1e-5, atol=1e-7 * np.abs(gradient).max())


def test_at_the_exact_posterior_every_weight_is_the_evidence(problem):
    reference = problems.reference_of(DIM)
    posterior = problems.gaussian_at(problem.posterior(), reference)
    np.testing.assert_allclose(moments_of(posterior)[0], problem.posterior()[0], rtol=1e-12)
    _, log_weights = problems.weigh(posterior, problem, KEYS)
    np.testing.assert_allclose(log_weights, problem.log_evidence, rtol=1e-8)
    zeros = jnp.zeros(len(log_weights))
    draws = Draw(zeros[:, None], zeros, zeros, zeros)
    terms = negative_elbo(jnp.asarray(log_weights), draws, estimator="log_variance")
    np.testing.assert_allclose(terms.loss, 0.0, atol=1e-20)


@pytest.mark.parametrize("estimator", ["sticking", "log_variance"])
def test_at_the_exact_posterior_the_gradient_of_every_draw_vanishes(estimator, problem):
    """Sticking the landing and log-variance have no noise there; the reparametrised gradient has."""
    posterior = problems.gaussian_at(problem.posterior(), problems.reference_of(DIM), estimator)
    np.testing.assert_allclose(problems.batch_gradients(posterior, problem, BATCH_KEYS), 0.0, atol=1e-10)
    plain = problems.gaussian_at(problem.posterior(), posterior.reference)
    assert np.abs(problems.batch_gradients(plain, problem, BATCH_KEYS)).max() > 0.1


def test_trained_gaussian_is_the_posterior(problem):
    """With sticking the gradient's noise goes away with the error, so the fit is exact, not only close."""
    posterior = gaussian(problems.reference_of(DIM), "full", estimator="sticking", key=jax.random.key(0))
    posterior = problems.train(posterior, problem, num_updates=2000, num_samples=16, key=jax.random.key(1))
    mean, covariance = moments_of(posterior)
    np.testing.assert_allclose(mean, problem.posterior()[0], rtol=1e-4)
    np.testing.assert_allclose(covariance, problem.posterior()[1], rtol=1e-4, atol=1e-6)
