"""Cases with known answers, and what every test of a posterior needs: draws, weights, training, standard errors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.stats
from jax.flatten_util import ravel_pytree

from langenode.inference.algorithm1 import negative_elbo
from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Posterior
from langenode.models import Heun, NeuralODE
from langenode.posteriors import Draw, Empirical, Gaussian, Reference

# Most tests spend their time compiling what runs once: let the compiler try less hard.
QUICK: dict[str, Any] = {"xla_backend_optimization_level": 0}


def quick_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """`eqx.filter_jit` for programs that run once or twice."""
    jit: Any = eqx.filter_jit
    return jit(function, compiler_options=QUICK)


def optimised_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """`eqx.filter_jit` for programs that run longer than they compile: some optimisation pays, all of it does not."""
    jit: Any = eqx.filter_jit
    return jit(function, compiler_options={"xla_backend_optimization_level": 1})


def programs_within(equation: Any) -> list[Any]:
    """The programs (jaxprs) that an equation of a program holds: bodies of loops, branches, compiled parts."""
    leaves = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns"))
    return [getattr(leaf, "jaxpr", leaf) for leaf in leaves if hasattr(leaf, "eqns")]


class LinearGaussian(eqx.Module):
    """`outputs = design w + sigma noise` with `w ~ N(prior_mean, prior_covariance)`: everything about it is known."""

    design: jax.Array
    outputs: jax.Array
    sigma: jax.Array
    prior_mean: jax.Array
    prior_covariance: jax.Array

    def log_joint(self, weights):
        """Log-likelihood plus log prior."""
        noise = (self.outputs - self.design @ weights) / self.sigma
        log_likelihood = jnp.sum(-0.5 * noise**2 - jnp.log(self.sigma) - 0.5 * jnp.log(2.0 * jnp.pi))
        log_prior = jax.scipy.stats.multivariate_normal.logpdf(weights, self.prior_mean, self.prior_covariance)
        return log_likelihood + log_prior

    def log_target(self, draw: Draw):
        """What `negative_elbo` takes: log-likelihood plus log prior minus log reference."""
        return self.log_joint(draw.weights) - draw.log_reference

    def posterior(self):
        """Mean and covariance of the weights given the outputs."""
        design, covariance = np.asarray(self.design), np.asarray(self.prior_covariance)
        precision = design.T @ design / float(self.sigma) ** 2 + np.linalg.inv(covariance)
        residual = np.asarray(self.outputs) - design @ np.asarray(self.prior_mean)
        shift = np.linalg.solve(precision, design.T @ residual) / float(self.sigma) ** 2
        return np.asarray(self.prior_mean) + shift, np.linalg.inv(precision)

    @property
    def log_evidence(self):
        """Log of the marginal density of the outputs."""
        design, outputs = np.asarray(self.design), np.asarray(self.outputs)
        covariance = design @ np.asarray(self.prior_covariance) @ design.T + float(self.sigma) ** 2 * np.eye(
            len(outputs)
        )
        return log_normal(outputs, design @ np.asarray(self.prior_mean), covariance)


def linear_gaussian(dim, *, num_data, sigma, prior: Reference | None = None, seed=0):
    """A problem with correlated columns; the prior is N(0, I), or the distribution of a `Reference`."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(num_data, dim)) + 0.7 * rng.normal(size=(num_data, 1))
    outputs = design @ rng.normal(size=dim) + sigma * rng.normal(size=num_data)
    root = np.eye(dim) if prior is None else dense_root(prior)
    mean = np.zeros(dim) if prior is None else prior.mean
    arrays = (design, outputs, sigma, mean, root @ root.T)
    return LinearGaussian(*(jnp.asarray(array, float) for array in arrays))


def dense_root(reference: Reference):
    """L of a reference as a matrix, written out: `diag(scale) (I + factor factor^T)`."""
    inner = np.eye(reference.mean.shape[0])
    if reference.factor is not None:
        inner = inner + np.asarray(reference.factor) @ np.asarray(reference.factor).T
    return np.diag(np.asarray(reference.scale)) @ inner


def reference_of(dim, *, rank=None, dtype=float, seed=1):
    """A reference with nothing equal to zero or one; with a low-rank factor where a rank is given."""
    rng = np.random.default_rng(seed)
    mean, scale = 0.3 * rng.normal(size=dim), np.exp(0.2 * rng.normal(size=dim))
    factor = None if rank is None else jnp.asarray(0.4 * rng.normal(size=(dim, rank)), dtype)
    return Reference(jnp.asarray(mean, dtype), jnp.asarray(scale, dtype), factor)


def gaussian_at(moments, reference: Reference, estimator: Any = "reparametrised"):
    """The full Gaussian posterior with the given mean and covariance of the weights."""
    mean, covariance = moments
    inverse = np.linalg.inv(dense_root(reference))
    root = np.linalg.cholesky(inverse @ covariance @ inverse.T)
    shift = inverse @ (mean - np.asarray(reference.mean))
    return Gaussian(
        reference=reference,
        shift=jnp.asarray(shift),
        log_scale=jnp.asarray(np.log(np.diag(root))),
        lower=jnp.asarray(np.tril(root, -1)),
        factor=None,
        estimator=estimator,
    )


def log_normal(x, mean, covariance: Any):
    """Log density of N(mean, covariance), by SciPy."""
    return scipy.stats.multivariate_normal.logpdf(x, mean, covariance)


def normal_kl(mean, covariance, other_mean, other_covariance):
    """KL of N(mean, covariance) from another normal, from the textbook."""
    difference = other_mean - mean
    other_precision = np.linalg.inv(other_covariance)
    trace = np.trace(other_precision @ covariance) + difference @ other_precision @ difference - len(mean)
    return 0.5 * (trace + np.linalg.slogdet(other_covariance)[1] - np.linalg.slogdet(covariance)[1])


# --- posteriors


def perturbed(posterior, size, *, seed=0):
    """The same posterior with normal numbers of the given size added to what is trained."""
    rng = np.random.default_rng(seed)
    numbers, rest = eqx.partition(posterior, posterior.trained())
    moved = jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf) + size * rng.normal(size=leaf.shape), leaf.dtype), numbers
    )
    return eqx.combine(moved, rest)


@quick_jit
def draw_many(posterior, keys):
    """One draw per key."""
    return jax.vmap(lambda key: posterior.draw(key=key))(keys)


@quick_jit
def _log_joints(problem, weights):
    return jax.vmap(problem.log_joint)(weights)


def weigh(posterior, problem, keys):
    """One draw per key: the weights and their log importance weights."""
    draws = draw_many(posterior, keys)
    log_weights = _log_joints(problem, draws.weights) - draws.log_reference - draws.log_ratio
    return np.asarray(draws.weights), np.asarray(log_weights)


def negative_bound(posterior, problem, keys):
    """The training loss of `posterior` by its own estimator, from one draw per key."""
    draws = jax.vmap(lambda key: posterior.draw(key=key))(keys)
    log_target = jax.vmap(problem.log_target)(draws)
    return negative_elbo(log_target, draws, estimator=posterior.estimator).loss


@quick_jit
def batch_gradients(posterior, problem, keys):
    """The gradient of the loss for each row of keys, as rows of numbers."""
    numbers, rest = eqx.partition(posterior, posterior.trained())

    def one(keys):
        gradient = jax.grad(lambda n: negative_bound(eqx.combine(n, rest), problem, keys))(numbers)
        return ravel_pytree(gradient)[0]

    return jax.vmap(one)(keys)


class _Training(NamedTuple):
    numbers: Any
    averaged: Any
    optimiser: Any


@optimised_jit
def train(posterior, problem, *, num_updates, num_samples=64, learning_rate=1e-2, average=0.99, key):
    """Train a posterior on a problem: Adam with a cosine decay, and the running average of what it finds."""
    numbers, rest = eqx.partition(posterior, posterior.trained())
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num_updates))

    def update(training, step):
        keys = jax.random.split(jax.random.fold_in(key, step), num_samples)
        loss = lambda numbers: negative_bound(eqx.combine(numbers, rest), problem, keys)  # noqa: E731
        changes, state = optimiser.update(jax.grad(loss)(training.numbers), training.optimiser)
        new = optax.apply_updates(training.numbers, changes)
        averaged = jax.tree.map(lambda old, now: average * old + (1.0 - average) * now, training.averaged, new)
        return _Training(new, averaged, state), None

    first = _Training(numbers, numbers, optimiser.init(numbers))
    last, _ = jax.lax.scan(update, first, jnp.arange(num_updates))
    return eqx.combine(last.averaged, rest)


# --- Monte Carlo


def standard_error(values):
    """Standard error of the mean over the first axis."""
    return np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


def assert_mean(values, exact, *, bias=0.0):
    """The mean over the first axis is `exact` within 5 standard errors, and a discretisation bias where one is stated.

    Rounding is allowed for: a mean of equal numbers has no standard error.
    """
    values = np.asarray(values)
    assert np.all(np.isfinite(values))
    rounding = 1e-12 * (1.0 + np.abs(exact))
    allowed = 5.0 * standard_error(values) + bias + rounding
    error = np.abs(values.mean(axis=0) - exact)
    assert np.all(error <= allowed), f"off by {np.max(error / allowed) * 5.0:.1f} standard errors"


def assert_evidence(log_weights, problem, *, precision):
    """The mean importance weight is the evidence, known to a relative `precision` (else the test has no power)."""
    ratio = np.exp(np.asarray(log_weights) - problem.log_evidence)
    assert standard_error(ratio) <= precision
    assert_mean(ratio, 1.0)


def fitted_order(step_sizes, errors):
    """Slope of log error over log step size."""
    return np.polyfit(np.log(step_sizes), np.log(errors), 1)[0]


def random_strain(seed, size=0.3):
    values = size * np.random.default_rng(seed).normal(size=(3, 3))
    return 0.5 * (values + values.T)


def rotation(seed):
    orthogonal, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    return orthogonal * np.sign(np.linalg.det(orthogonal))


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
