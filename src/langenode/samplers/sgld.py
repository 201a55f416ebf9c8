"""Stochastic gradient Langevin dynamics (blackjax), in the coordinates of Laplace's approximation.

`u <- u + e g(u) + sqrt(2 e) n` with g an estimate of the gradient of the log posterior. Nothing is ever rejected: the
step size e biases the distribution (a normal of variance one gets `1/(1 - e/2)`), and the noise of minibatches adds to
it.
"""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, OnStep, PRNGKeyArray
from langenode.posteriors import Density, Sampled, Trust
from langenode.samplers.common import (
    agreement,
    at_least,
    bounded_gradient,
    describe_r_hat,
    finish,
    judged_r_hat,
    library,
)
from langenode.samplers.laplace import LaplaceFit, laplace_fit, start_about

LARGEST_R_HAT = 1.1
MOST_BOUNDED = 0.05  # of all gradients
# In Laplace's coordinates a normal posterior takes the first; one that bends away from them needs a smaller one.
STEP_SIZES = (0.05, 0.0125, 3e-3, 8e-4, 2e-4)
NUM_TRIAL_BLOCKS = 5


def sgld(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_chains: int = 64,
    num_warmup: int = 200,
    num_draws: int = 1024,
    thinning: int = 20,
    step_size: float | None = None,
    budget: float | None = None,
    on_step: OnStep | None = None,
) -> Sampled:
    """Draws of many chains at a constant step, from about the mode; one draw every `thinning` steps.

    Without a step size the largest of a few is taken at which gradients seldom have to be bounded.
    Gradients come from minibatches where the density has them, else from all data. `budget` is in seconds; at least
    one draw per chain is made.
    """
    library("sgld")
    at_least(2, num_chains=num_chains)
    at_least(1, num_draws=num_draws, thinning=thinning)
    deadline = None if budget is None else time.monotonic() + budget
    key_fit, key_start, key_run, key_trials = jax.random.split(key, 4)
    fit = laplace_fit(density, key=key_fit)
    u = start_about(density, fit, num_chains, key=key_start)
    num_trials = 0
    if step_size is None:
        step_size, num_trials = _choose_step(density, fit, u, thinning, key=key_trials)
    num_warm_blocks, per_chain = -(-num_warmup // thinning), -(-num_draws // num_chains)
    blocks, num_bounded = [], 0
    for block in range(num_warm_blocks + per_chain):
        if block and deadline is not None and time.monotonic() > deadline:
            break
        u, count = _block(
            density, fit, u, thinning, jnp.asarray(step_size, density.dtype), jax.random.fold_in(key_run, block)
        )
        blocks.append(np.asarray(jax.vmap(fit)(u)))
        num_bounded += int(count)
        if on_step is not None:
            on_step((block + 1) * thinning, (num_warm_blocks + per_chain) * thinning, "steps")
    num_steps = len(blocks) * thinning * num_chains
    kept = np.stack(blocks[min(num_warm_blocks, len(blocks) - 1) :])
    found = agreement(density, jnp.swapaxes(jnp.asarray(kept), 0, 1)) | {
        "step_size": step_size,
        "bounded": num_bounded / num_steps,
        "stopped": len(blocks) < num_warm_blocks + per_chain,
        "num_evaluations": fit.num_evaluations + num_steps + num_trials,
    }
    return finish("sgld", density, jnp.asarray(kept.reshape(-1, density.dim)[:num_draws]), None, found, _judge(found))


def _choose_step(
    density: Density, fit: LaplaceFit, start: Float[Array, "chain dim"], thinning: int, *, key: PRNGKeyArray
) -> tuple[float, int]:
    """The largest step at which few gradients are bounded after a while, and how many gradients the trials took."""
    step_size, num_trials = STEP_SIZES[-1], 0
    for step_size in STEP_SIZES:
        u, count = start, 0
        for block in range(NUM_TRIAL_BLOCKS):
            step = jnp.asarray(step_size, density.dtype)
            u, count = _block(density, fit, u, thinning, step, jax.random.fold_in(key, block))
        num_trials += NUM_TRIAL_BLOCKS * thinning * len(start)
        if int(count) <= MOST_BOUNDED * thinning * len(start):
            break
    return step_size, num_trials


@eqx.filter_jit
def _block(
    density: Density, fit: LaplaceFit, u: Float[Array, "chain dim"], num: int, step_size: Array, key: PRNGKeyArray
) -> tuple[Float[Array, "chain dim"], Array]:
    """Some steps of every chain, and how many gradients had to be bounded."""
    import blackjax

    def log_density(u: Array, key: Array) -> Array:
        z = fit(u)
        return density.log_prior(z) + (
            density.log_likelihood(z) if density.minibatch is None else density.minibatch(z, key)
        )

    kernel = blackjax.sgld.build_kernel()

    def one(u: Array, key: Array) -> tuple[Array, Array]:
        def step(u: Array, index: Array) -> tuple[Array, Array]:
            key_noise, key_batch = jax.random.split(jax.random.fold_in(key, index))
            gradient, is_bounded = bounded_gradient(jax.grad(log_density)(u, key_batch), u)
            u = kernel(key_noise, u, lambda *_: gradient, None, step_size)
            return u.astype(density.dtype), is_bounded

        return jax.lax.scan(step, u, jnp.arange(num))

    u, is_bounded = jax.vmap(one)(u, jax.random.split(key, len(u)))
    return u, jnp.sum(is_bounded)


def _judge(found: dict[str, Any]) -> Trust:
    figures = f"{describe_r_hat(found)}, {100 * found['bounded']:.1f} % of the gradients bounded"
    if found["bounded"] > MOST_BOUNDED:
        return Trust(False, f"many gradients had to be bounded: {figures}; use a smaller step")
    if not judged_r_hat(found) <= LARGEST_R_HAT:
        return Trust(False, f"chains disagree: {figures}; use more draws or a larger step")
    return Trust(True, f"{figures}; the bias of the step size is not checked")
