"""A plain tempered SMC with many HMC moves: slow and nothing tuned, to make references with."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array
from langenode.posteriors.density import Density
from langenode.posteriors.particles import systematic
from langenode.samplers.moves import hamiltonian_moves

WANTED_ESS = 0.8


class Tempered(NamedTuple):
    """Equally weighted draws, the log-evidence and the powers of the likelihood on the way."""

    draws: Array
    log_evidence: float
    powers: tuple[float, ...]


def tempered_smc(density: Density, *, num: int, num_moves: int, num_last_moves: int, key: Array) -> Tempered:
    """From the prior to the posterior by powers of the likelihood, each leaving 0.8 of the effective sample size."""
    key_start, key_run = jax.random.split(key)
    draws = jax.random.normal(key_start, (num, density.dim), density.dtype)
    powers, log_evidence = [0.0], 0.0
    while powers[-1] < 1.0:
        key_move, key_resample = jax.random.split(jax.random.fold_in(key_run, len(powers)))
        values = np.nan_to_num(np.asarray(_values(density, draws), float), nan=-1e30, neginf=-1e30)
        change = next_change(values, 1.0 - powers[-1])
        log_weights = change * values
        log_evidence += float(np.log(np.mean(np.exp(log_weights - log_weights.max()))) + log_weights.max())
        draws = draws[systematic(jnp.asarray(log_weights - log_weights.max(), density.dtype), key=key_resample)]
        powers.append(1.0 if change == 1.0 - powers[-1] else powers[-1] + change)
        many = num_moves if powers[-1] < 1.0 else num_last_moves
        # The metric is learnt anew every ten moves.
        for block in range(0, many, 10):
            key_block, power = jax.random.fold_in(key_move, block), jnp.asarray(powers[-1], density.dtype)
            draws = _move(density, power, draws, min(10, many - block), key=key_block)
    return Tempered(draws, log_evidence, tuple(powers))


def next_change(log_likelihoods: np.ndarray, largest: float) -> float:
    """By bisection the change of power that leaves the wanted relative effective sample size."""

    def ess(change: float) -> float:
        weights = np.exp(change * (log_likelihoods - log_likelihoods.max()))
        return weights.sum() ** 2 / (weights**2).sum() / len(weights)

    low, high = 0.0, largest
    if ess(high) >= WANTED_ESS:
        return largest
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if ess(middle) > WANTED_ESS else (low, middle)
    return low


@eqx.filter_jit
def _values(density: Density, draws: Array) -> Array:
    return jax.vmap(density.log_likelihood)(draws)


@eqx.filter_jit
def _move(density: Density, power: Array, draws: Array, num_moves: int, *, key: Array) -> Array:
    def log_density(z):
        return power * density.log_likelihood(z) - 0.5 * jnp.sum(z**2)

    return hamiltonian_moves(log_density, draws, jnp.zeros(len(draws), draws.dtype), num_moves=num_moves, key=key).draws
