"""Importance weights of a trained posterior: the bound, the evidence, and how far draws are from the truth."""

import jax
import jax.numpy as jnp

from langenode._compiling import quick_jit
from langenode._types import Array, Float, PRNGKeyArray
from langenode.data import Dataset
from langenode.inference.density import whiten
from langenode.inference.problem import Problem
from langenode.posteriors import Density

# Predicted numbers at a time where no gradient is taken.
LARGEST_CHUNK = 2**23


def log_weights(
    problem: Problem, data: Dataset, num_samples: int, *, key: PRNGKeyArray, chunk: int | None = None
) -> tuple[Float[Array, "sample dim"], Float[Array, " sample"]]:
    """Draws and their log importance weights: their mean is the ELBO, their log-mean-exp the log-evidence.

    `data` must be scaled already. Draws are evaluated in chunks of about 100 MB unless `chunk` is given.
    """
    density = whiten(problem, data, problem.prior.mean.dtype, in_class=True)
    assert density.residual is not None
    num_cells = jax.eval_shape(density.residual, problem.prior.mean).shape[0]
    chunk = max(1, min(256, LARGEST_CHUNK // max(num_cells, 1))) if chunk is None else chunk
    keys = jax.random.split(key, num_samples)
    parts = [_weighted_draws(problem, density, keys[i : i + chunk]) for i in range(0, num_samples, chunk)]
    return jnp.concatenate([w for w, _ in parts]), jnp.concatenate([lw for _, lw in parts])


@quick_jit
def _weighted_draws(problem: Problem, density: Density, keys: Array) -> tuple[Array, Array]:
    posterior, prior = problem.variational, problem.prior

    def one(key: Array) -> tuple[Array, Array]:
        draw = posterior.draw(key=key)
        log_target = density.log_likelihood(prior.to_standard(draw.weights)) + prior.log_density(draw.weights)
        log_weight = log_target - draw.log_reference - draw.log_ratio
        # Where the model gives no number the draw explains nothing.
        return draw.weights, jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)

    return jax.vmap(one)(keys)
