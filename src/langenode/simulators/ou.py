"""Langevin dynamics without noise: relaxation to a random level at a random rate, with the exact solution.

    dy = -gamma (y - y_bar) dt,    gamma ~ N(8, 0.8),  y_bar ~ N(1, 0.1),  y_0 ~ N(2, 0.02)        (paper, section 4.1)

As a linear equation `dh/dt = W h + b` the weights are `W = -gamma`, `b = gamma y_bar`. The second numbers are standard
deviations.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.data import Dataset


class OUParameters(NamedTuple):
    """The distributions of the generator's parameters; with zero spreads there is one true (W, b)."""

    rate_mean: float = 8.0
    rate_std: float = 0.8
    level_mean: float = 1.0
    level_std: float = 0.1
    start_mean: float = 2.0
    start_std: float = 0.02
    noise: float = 0.0
    num_times: int = 100
    end_time: float = 1.0


def simulate(parameters: OUParameters, num: int, *, key: PRNGKeyArray) -> Dataset:
    """Simulate trajectories of one condition; the drawn (W, b) are kept as attributes."""
    draws = np.asarray(jax.random.normal(key, (3, num)), float)
    rate = parameters.rate_mean + parameters.rate_std * draws[0]
    level = parameters.level_mean + parameters.level_std * draws[1]
    start = parameters.start_mean + parameters.start_std * draws[2]
    times = np.linspace(0.0, parameters.end_time, parameters.num_times)
    outputs = level[:, None] + (start - level)[:, None] * np.exp(-rate[:, None] * times)
    if parameters.noise > 0.0:
        key_noise = jax.random.fold_in(key, 1)
        outputs = outputs + parameters.noise * np.asarray(jax.random.normal(key_noise, outputs.shape), float)
    return Dataset.from_arrays(
        times,
        outputs[..., None],
        initial=start[:, None],
        output_names=("y",),
        attributes={"W": -rate, "b": rate * level},
    )


class WeightMoments(NamedTuple):
    """Mean, standard deviation and correlation of (W, b)."""

    mean: np.ndarray
    std: np.ndarray
    corr: float


def exact_moments(parameters: OUParameters) -> WeightMoments:
    """Return the moments of (W, b) = (-gamma, gamma y_bar) for independent normal gamma and y_bar."""
    rate, rate_variance = parameters.rate_mean, parameters.rate_std**2
    level, level_variance = parameters.level_mean, parameters.level_std**2
    b_variance = rate_variance * level_variance + rate**2 * level_variance + rate_variance * level**2
    std = np.sqrt([rate_variance, b_variance])
    corr = -rate_variance * level / (std[0] * std[1]) if std.all() else 0.0
    return WeightMoments(np.array([-rate, rate * level]), std, float(corr))


def log_density(weights: Float[Array, "2"], parameters: OUParameters) -> Float[Array, ""]:
    """Return the log density of (W, b) with `y_bar = -b / W` (paper, appendix C)."""
    W, b = weights
    rate = (W + parameters.rate_mean) / parameters.rate_std
    level = (-b / W - parameters.level_mean) / parameters.level_std
    constant = jnp.log(2.0 * jnp.pi * parameters.rate_std * parameters.level_std)
    return -jnp.log(jnp.abs(W)) - constant - 0.5 * rate**2 - 0.5 * level**2


def score(weights: Float[Array, "2"], parameters: OUParameters) -> Float[Array, "2"]:
    """Return the gradient of the log density of (W, b) (appendix C): the drift of a Langevin SDE that samples it."""
    W, b = weights
    offset = b / W + parameters.level_mean
    by_W = -1.0 / W - (W + parameters.rate_mean) / parameters.rate_std**2 + b * offset / (parameters.level_std * W) ** 2
    by_b = -offset / (parameters.level_std**2 * W)
    return jnp.stack([by_W, by_b])
