"""Hamiltonian moves of many draws at once.

A few at the end let weighted draws spread without changing their distribution.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray

LogDensity = Callable[[Array], Array]

WANTED_ACCEPTANCE = 0.8
NUM_TRIALS = 12
NUM_LEAPFROG = 16
MAX_TRIAL_PATHS = 128


class Moved(NamedTuple):
    """The draws after the moves, the mean probability of acceptance, the step size, and the runs of the model."""

    draws: Float[Array, "sample dim"]
    acceptance: Float[Array, ""]
    step_size: Float[Array, ""]
    num_evaluations: int  # those of the trials included


def hamiltonian_moves(
    log_density: LogDensity,
    draws: Float[Array, "sample dim"],
    log_weights: Float[Array, " sample"],
    *,
    num_moves: int,
    num_leapfrog: int = NUM_LEAPFROG,
    chunk: int | None = None,
    key: PRNGKeyArray,
) -> Moved:
    """Move every draw `num_moves` times by HMC; each move leaves `log_density` invariant, so weights stay as they are.

    The metric is the draws' weighted covariance. The step size is found in trials that are discarded, so that no
    accepted move depends on its own outcome.
    """
    root = _metric_root(draws, log_weights)
    key_trials, key_moves = jax.random.split(key)

    def move_all(draws, step_size, key):
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(draws.shape[0]))

        def one(path):
            z, key = path
            return _move(log_density, root, z, step_size, num_leapfrog, key)

        return jax.lax.map(one, (draws, keys), batch_size=min(chunk or len(draws), len(draws)))

    trial_draws = draws[: min(len(draws), MAX_TRIAL_PATHS)]

    def trial(log_step, index):
        _, acceptance = move_all(trial_draws, jnp.exp(log_step), jax.random.fold_in(key_trials, index))
        change = 2.0 * (jnp.mean(acceptance) - WANTED_ACCEPTANCE) / jnp.sqrt(1.0 + index)
        return (log_step + change).astype(log_step.dtype), None

    first = jnp.log(jnp.asarray(0.5, draws.dtype))
    log_step, _ = jax.lax.scan(trial, first, jnp.arange(NUM_TRIALS))

    def move(draws, index):
        draws, acceptance = move_all(draws, jnp.exp(log_step), jax.random.fold_in(key_moves, index))
        return draws, jnp.mean(acceptance)

    draws, acceptance = jax.lax.scan(move, draws, jnp.arange(num_moves))
    num_evaluations = (NUM_TRIALS * len(trial_draws) + num_moves * len(draws)) * (num_leapfrog + 1)
    return Moved(draws, jnp.mean(acceptance), jnp.exp(log_step), num_evaluations)


def _metric_root(draws: Float[Array, "sample dim"], log_weights: Float[Array, " sample"]) -> Float[Array, "dim dim"]:
    """A Cholesky root of the draws' covariance."""
    return jnp.linalg.cholesky(shrunk_covariance(draws, jax.nn.softmax(log_weights)))


def shrunk_covariance(draws: Float[Array, "sample dim"], shares: Float[Array, " sample"]) -> Float[Array, "dim dim"]:
    """The weighted covariance, shrunk towards its diagonal where the draws are few."""
    centred = draws - shares @ draws
    covariance = (centred * shares[:, None]).T @ centred
    num_effective, dim = 1.0 / jnp.sum(shares**2), draws.shape[1]
    trust = num_effective / (num_effective + dim)
    return (
        trust * covariance + (1.0 - trust) * jnp.diag(jnp.diagonal(covariance)) + 1e-6 * jnp.eye(dim, dtype=draws.dtype)
    )


def _move(
    log_density: LogDensity, root: Array, z: Array, step_size: Array, num_leapfrog: int, key: PRNGKeyArray
) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
    """One HMC move in the coordinates u of `z + root u`, and its probability of acceptance."""
    key_momentum, key_length, key_accept = jax.random.split(key, 3)
    momentum = jax.random.normal(key_momentum, z.shape, z.dtype)
    # A random length keeps a trajectory from returning to where it started.
    step_size = step_size * jax.random.uniform(key_length, (), z.dtype, 0.8, 1.2)
    value_and_slope = jax.value_and_grad(lambda u: log_density(_shifted(z, root, u)))

    def leapfrog(state, _):
        u, momentum, slope, _ = state
        momentum = momentum + 0.5 * step_size * slope
        u = u + step_size * momentum
        value, slope = value_and_slope(u)
        return (u, momentum + 0.5 * step_size * slope, slope, value), None

    before, slope = value_and_slope(jnp.zeros_like(z))
    start = (jnp.zeros_like(z), momentum, slope, before)
    (u, end_momentum, _, after), _ = jax.lax.scan(leapfrog, start, None, length=num_leapfrog)
    gain = after - before + 0.5 * (jnp.sum(momentum**2) - jnp.sum(end_momentum**2))
    acceptance = jnp.where(jnp.isnan(gain), 0.0, jnp.exp(jnp.minimum(gain, 0.0)))
    is_accepted = jax.random.uniform(key_accept, (), z.dtype) < acceptance
    return jnp.where(is_accepted, _shifted(z, root, u), z), acceptance


def _shifted(z: Array, root: Array, u: Array) -> Float[Array, " dim"]:
    """`z + root u`, as a sum and not a product of matrices, whose rounding would depend on how paths are chunked."""
    return z + jnp.sum(root * u, axis=1)
