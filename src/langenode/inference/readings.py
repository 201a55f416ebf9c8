"""The log-likelihood of a fitted problem reading by reading, for scores such as leave-one-out cross-validation."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array, Float
from langenode.data import Batch, Dataset
from langenode.inference.likelihood import Likelihood
from langenode.inference.problem import Problem, simulate

CHUNK_CELLS = 2**24  # cells of predictions in work at once


def reading_log_densities(
    problem: Problem, data: Dataset, weights: Float[Array, "sample dim"], *, is_training: bool
) -> Float[np.ndarray, "sample traj time out"]:
    """Log density of every reading of scaled data under every draw: the problem's own, neither tempered nor calibrated.

    Noise scales that are stored for every reading of the training data apply to them alone; other data have their rms,
    mode by mode.
    """
    if problem.likelihood is None:
        raise ValueError("readings need a likelihood; a population has none; use target='posterior' or 'tempered'")
    batch, noise = data.arrays(weights.dtype), noise_for(problem.likelihood, data, is_training)
    chunk = max(1, CHUNK_CELLS // max(1, data.outputs.size))
    parts = [_densities(problem, noise, batch, weights[i : i + chunk]) for i in range(0, len(weights), chunk)]
    return np.concatenate([np.asarray(part, float) for part in parts])


def noise_for(noise: Likelihood, data: Dataset, is_training: bool) -> Likelihood:
    """The noise as it applies to some data."""
    if noise.sigma is None or is_training:
        return noise
    pooled = jnp.sqrt(jnp.mean(noise.sigma**2, axis=(1, 2), keepdims=True))
    sigma = jnp.broadcast_to(pooled, (len(noise.sigma), *data.outputs.shape))
    return Likelihood(sigma, noise.mode_weights, noise.correlation_time)


@quick_jit
def _densities(problem: Problem, noise: Likelihood, batch: Batch, weights: Array) -> Array:
    outputs = simulate(problem.model, problem.partition, weights, batch.times, batch.inputs, batch.initial)
    log_noise = None
    if noise.sigma is None:
        log_noise = eqx.filter_vmap(lambda w: problem.partition.combine(problem.model, w).log_noise)(weights)
    return noise.reading_log_densities(outputs, batch.outputs, batch.mask, batch.times, log_noise)
