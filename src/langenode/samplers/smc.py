"""Sequential Monte Carlo from the prior to the posterior (blackjax): adaptive powers of the likelihood, moves by HMC.

`pi_k ~ N(z; 0, I) L(z)^lambda_k`, the powers so that the weights keep a share of effective draws. Islands of particles
run independently: their log-evidences and draws are compared, which is the one check of this method. Draws
carry their island's evidence as weight, so that the mean weight is the evidence.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, OnStep, PRNGKeyArray
from langenode.posteriors import Density, Sampled, Trust
from langenode.samplers.common import (
    LOWEST_LOG_LIKELIHOOD,
    agreement,
    at_least,
    describe_r_hat,
    finish,
    judged_r_hat,
    library,
    settle,
)
from langenode.samplers.modes import check_prior
from langenode.samplers.moves import shrunk_covariance
from langenode.scores.diagnostics import log_evidence, relative_ess

WANTED_ACCEPTANCE = 0.8
FIRST_STEP_SIZE = 0.2
MOST_TEMPERATURES = 400
LARGEST_R_HAT = 1.1
LARGEST_EVIDENCE_SPREAD = 0.5  # standard deviation between islands in nats; four are then within about one
LOWEST_ACCEPTANCE = 0.4


class _Island(NamedTuple):
    """Weighted particles at a power of the likelihood, how they move, and the log-evidence so far."""

    state: Any
    step_size: Float[Array, "*island"]
    covariance: Float[Array, "*island dim dim"]
    log_evidence: Float[Array, "*island"]
    acceptance: Float[Array, "*island"]


class _Options(NamedTuple):
    target_ess: float
    num_moves: int
    num_leapfrog: int


def smc(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_draws: int = 1024,
    num_islands: int = 4,
    target_ess: float = 0.7,
    num_moves: int = 4,
    num_leapfrog: int = 16,
    num_last_moves: int = 20,
    on_step: OnStep | None = None,
) -> Sampled:
    """Draws of all islands, weighted by their evidence.

    `num_moves` HMC moves at every power, in the metric of the island's particles; `num_last_moves` at the end.
    """
    library("smc")
    at_least(2, num_islands=num_islands)
    at_least(4 * num_islands, num_draws=num_draws)
    at_least(1, num_moves=num_moves)
    options = _Options(target_ess, num_moves, num_leapfrog)
    key_start, key_steps = jax.random.split(key)
    islands = _start(density, num_draws // num_islands, jax.random.split(key_start, num_islands))
    check_prior(density, islands.state.particles.reshape(-1, density.dim).astype(density.dtype))
    num_left, num_steps = -(-num_last_moves // num_moves), 0
    while num_steps < MOST_TEMPERATURES and num_left > 0:
        num_left -= int(np.all(np.asarray(islands.state.tempering_param) >= 1.0))
        islands = _step(density, options, islands, key=jax.random.fold_in(key_steps, num_steps))
        num_steps += 1
        if on_step is not None:  # how many there will be is found on the way
            on_step(num_steps, None, f"power {float(np.min(islands.state.tempering_param)):.2g} of 1")
    return _result(density, options, islands, num_steps)


@eqx.filter_jit
def _start(density: Density, num: int, keys: Array) -> _Island:
    """Islands of draws of the prior, its own covariance as metric."""
    import blackjax

    def one(key: Array) -> _Island:
        state = blackjax.smc.tempered.init(jax.random.normal(key, (num, density.dim)))
        state = state._replace(tempering_param=jnp.zeros(()))
        zero, eye = jnp.zeros(()), jnp.eye(density.dim)
        # The library's own numbers are in the default precision, so all are.
        return settle(_Island(state, zero + FIRST_STEP_SIZE, eye, zero, zero))

    return jax.vmap(one)(keys)


@eqx.filter_jit
def _step(density: Density, options: _Options, islands: _Island, *, key: PRNGKeyArray) -> _Island:
    """Resample, move, and raise the power; an island that is done only moves, its evidence unchanged."""
    from blackjax import adaptive_tempered_smc, hmc
    from blackjax.smc.resampling import systematic
    from blackjax.smc.tuning.from_kernel_info import update_scale_from_acceptance_rate

    def move(key: Array, state: Any, log_density: Any, step_size: Array, inverse_mass_matrix: Array) -> tuple[Any, Any]:
        key_move, key_length = jax.random.split(key)
        # A random length keeps a trajectory from returning to where it started.
        step_size = step_size * jax.random.uniform(key_length, minval=0.6, maxval=1.2)
        state, info = hmc.build_kernel()(
            key_move, state, log_density, step_size, inverse_mass_matrix, options.num_leapfrog
        )
        return state, info.acceptance_rate

    def one(island: _Island, key: Array) -> _Island:
        parameters = {"step_size": island.step_size[None], "inverse_mass_matrix": island.covariance[None]}
        algorithm: Any = adaptive_tempered_smc(
            density.log_prior,
            lambda z: _log_likelihood(density, z),
            move,
            hmc.init,
            parameters,
            systematic,
            options.target_ess,
            num_mcmc_steps=options.num_moves,
        )
        state, info = algorithm.step(key, island.state)
        acceptance = jnp.mean(info.update_info)
        step_size = update_scale_from_acceptance_rate(island.step_size[None], acceptance[None], WANTED_ACCEPTANCE)[0]
        covariance = shrunk_covariance(state.particles, state.weights)
        log_evidence = island.log_evidence + info.log_likelihood_increment
        return settle(_Island(state, step_size, covariance, log_evidence, acceptance))

    return jax.vmap(one)(islands, jax.random.split(key, islands.step_size.shape[0]))


def _log_likelihood(density: Density, z: Array) -> Array:
    """The log-likelihood, very low but finite where the model gives no number: its power zero must be one."""
    value = density.log_likelihood(z.astype(density.dtype)).astype(z.dtype)
    return jnp.where(value > LOWEST_LOG_LIKELIHOOD, value, LOWEST_LOG_LIKELIHOOD)


def _result(density: Density, options: _Options, islands: _Island, num_steps: int) -> Sampled:
    """Draws, evidence and verdict."""
    particles = islands.state.particles.astype(density.dtype)
    num_islands, num, dim = particles.shape
    values = np.asarray(islands.log_evidence, float)
    is_done = bool(np.all(np.asarray(islands.state.tempering_param) >= 1.0))
    found: dict[str, Any] = {
        **agreement(density, particles),
        "acceptance": np.mean(np.asarray(islands.acceptance)),
        "num_temperatures": num_steps,
        "evidence_spread": np.std(values, ddof=1),
        "relative_ess": relative_ess(values),
        # A move's first gradient, its leapfrog steps, and the likelihoods that set the power and weigh.
        "num_evaluations": num_steps * num_islands * num * (options.num_moves * options.num_leapfrog + 3),
    }
    if is_done:
        estimate = log_evidence(values)
        found |= {"log_evidence": estimate.value, "log_evidence_se": estimate.standard_error}
    log_weights = jnp.repeat(jnp.asarray(values, density.dtype), num)
    return finish("smc", density, particles.reshape(-1, dim), log_weights, found, _judge(found, is_done))


def _judge(found: dict[str, Any], is_done: bool) -> Trust:
    figures = (
        f"log-evidences of the islands spread by {found['evidence_spread']:.2f} nats, {describe_r_hat(found)}, "
        f"acceptance {found['acceptance']:.2f}"
    )
    if not is_done:
        return Trust(False, f"the posterior was not reached in {MOST_TEMPERATURES} powers: {figures}; use more moves")
    if not found["evidence_spread"] <= LARGEST_EVIDENCE_SPREAD or not judged_r_hat(found) <= LARGEST_R_HAT:
        return Trust(False, f"islands disagree: {figures}; use more draws or moves")
    if found["acceptance"] < LOWEST_ACCEPTANCE:
        return Trust(False, f"few moves are accepted: {figures}; use more leapfrog steps")
    return Trust(True, figures)
