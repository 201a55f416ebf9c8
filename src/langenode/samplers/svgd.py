"""Stein variational gradient descent (blackjax), in the coordinates of Laplace's approximation.

Particles follow `phi(u) = mean_j [k(u_j, u) grad log p(u_j) + grad_j k(u_j, u)]` by Adam; the kernel is a Gaussian bump
whose width is set by the median distance. Its spread is known to be too small where there are many weights.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors import Density, Sampled, cast
from langenode.samplers.common import at_least, bounded_gradient, finish, library, unchecked
from langenode.samplers.laplace import LaplaceFit, laplace_fit, start_about


def svgd(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_draws: int = 256,
    num_steps: int = 500,
    learning_rate: float = 0.05,
) -> Sampled:
    """Particles after `num_steps`, from about the mode. Time and memory grow with the square of `num_draws`."""
    library("svgd")
    at_least(2, num_draws=num_draws)
    at_least(1, num_steps=num_steps)
    key_fit, key_start = jax.random.split(key)
    fit = laplace_fit(density, key=key_fit)
    start = start_about(density, fit, num_draws, key=key_start)
    particles = _run(density, fit, start, num_steps, jnp.asarray(learning_rate, density.dtype))
    found = {"num_evaluations": fit.num_evaluations + num_steps * num_draws}
    return finish("svgd", density, jax.vmap(fit)(particles), None, found, unchecked("svgd"))


@eqx.filter_jit
def _run(
    density: Density, fit: LaplaceFit, start: Float[Array, "sample dim"], num_steps: int, learning_rate: Array
) -> Float[Array, "sample dim"]:
    import blackjax
    import optax

    def slope(u: Array) -> Array:
        return bounded_gradient(jax.grad(lambda u: density.log_posterior(fit(u)))(u), u)[0]

    rate = optax.cosine_decay_schedule(1.0, num_steps, alpha=0.02)
    algorithm: Any = blackjax.svgd(slope, optax.adam(lambda step: learning_rate * rate(step)))
    one = jnp.ones((), density.dtype)
    state = algorithm.init(start, {"length_scale": one * density.dim})

    def step(state: Any, _: Any) -> tuple[Any, None]:
        return cast(algorithm.step(state), density.dtype), None

    return jax.lax.scan(step, cast(state, density.dtype), None, length=num_steps)[0].particles
