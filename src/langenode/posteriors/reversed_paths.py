"""Maximum likelihood of given draws under a Langevin chain: a bound from paths of the reference that run backwards.

The reference is an OU process and reversible: from a draw at its end, `z_k = a_k z_(k+1) + s_k xi` are the steps back
to its start. With the chain's own density of the same path,

    log q(w) >= E [ log q_0(z_0) + sum_k log q(z_(k+1) | z_k) - log N(z_k; a_k z_(k+1), s_k^2) ] - log |det L|

which is tight where the chain's paths given their end are those of the reference.
"""

import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import normal_log_density
from langenode.posteriors.langevin import Langevin


def log_density_bound(chain: Langevin, weights: Float[Array, " dim"], *, key: PRNGKeyArray) -> Float[Array, ""]:
    """An unbiased estimate of the bound at a weight vector, from one path.

    The chain must have exact steps, and its reference must start at N(0, I).
    """
    coefficients = chain._coefficients()
    end = chain.reference.to_standard(weights)
    white = jax.random.normal(key, (chain.num_steps, chain.dim), end.dtype)

    def back(carry: tuple[Array, Array], step: tuple) -> tuple[tuple[Array, Array], None]:
        later, total = carry
        index, here, noise = step
        z = here.decay * later + here.noise * noise
        jump = (later - here.decay * z) / here.noise
        ours = chain.noise.log_density(index, jump - chain._shift(z, index, here))
        return (z, total + ours - normal_log_density(noise, 0.0, 1.0)), None

    steps = (jnp.arange(chain.num_steps), coefficients, white)
    (first, total), _ = jax.lax.scan(back, (end, jnp.zeros((), end.dtype)), steps, reverse=True)
    start = chain.start if chain.learn_start else chain.reference_start
    return total + start.log_density(first) - chain.reference.log_det
