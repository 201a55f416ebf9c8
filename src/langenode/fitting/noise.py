"""Observation noise as the configuration asks for it: its scale, its modes, its memory."""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from langenode.config import Config
from langenode.data import Dataset, Scaling, estimate_noise
from langenode.inference.likelihood import (
    Likelihood,
    given_noise,
    inferred_noise,
    mode_membership,
    noise_from_replicates,
    split_membership,
)
from langenode.inference.memory import estimate_correlation_time
from langenode.inference.noise import Levels
from langenode.inference.point_fit import fitted_outputs
from langenode.inference.predictions import pooled_sigma


def make_likelihood(config: Config, model: Any, data: Dataset, scaling: Scaling) -> Likelihood:
    """The observation noise of scaled data; the configuration gives it in the data's own units."""
    options = config.noise
    if config.target == "population" and config.population.noise == "estimated":
        noise = given_noise(estimated_noise(data), data)
    elif options.kind == "given" or (config.target == "population" and config.population.noise == "given"):
        assert options.sigma is not None  # the configuration has checked it
        # Where a scale has a knee, by its slope at each reading.
        noise = given_noise(options.sigma * scaling.slope_at(scaling.unscale_outputs(data.outputs)), data)
    elif options.kind == "inferred":
        noise = inferred_noise(noise_levels(config, scaling))
    else:
        modes = mode_numbers(config, data, scaling)
        noise = noise_from_replicates(data, fitted_outputs(model, data), modes=modes, has_centres=options.mode_centres)
    if options.correlation_time is not None:
        memory = _memory(options.correlation_time, noise, model, data, scaling)
        noise = Likelihood(noise.sigma, noise.mode_weights, jnp.asarray(memory), noise.levels)
    return noise


def mode_numbers(config: Config, data: Dataset, scaling: Scaling) -> np.ndarray | None:
    """The mode of each trajectory, by counting or by k-means; None where there is one mode. The data are scaled."""
    options = config.noise
    if options.num_modes == 1:
        return None
    if options.mode_split is None:
        return mode_membership(data, options.num_modes, seed=config.seed)
    levels = np.full((1, 1, data.num_outputs), options.mode_split)
    return split_membership(data, float(scaling.scale_outputs(levels)[0, 0, 0]))


def _memory(
    asked: float | Literal["estimated"], noise: Likelihood, model: Any, data: Dataset, scaling: Scaling
) -> float:
    """The decay time of the noise, in scaled time: as given, or estimated from the residuals of the point fit."""
    if asked != "estimated":
        return asked / scaling.time_scale
    sigma = pooled_sigma(noise) if noise.sigma is not None else np.exp(np.asarray(model.log_noise, float))
    residual = (data.outputs - fitted_outputs(model, data)) / sigma
    return estimate_correlation_time(residual, data.mask, data.times)


def estimated_noise(data: Dataset) -> np.ndarray:
    """Standard deviation of the measurement noise of each output; almost none where the data cannot tell."""
    found = estimate_noise(data)
    least = 1e-6 * np.array([column[seen].std() for column, seen in zip(data.outputs.T, data.mask.T, strict=True)])
    least = np.where(least > 0.0, least, 1e-6)
    return least if found is None else np.maximum(found.sigma, least)


def noise_levels(config: Config, scaling: Scaling) -> Levels | None:
    """Where the level zero of each output is, if noise is in proportion to it; on a scale with a knee none is."""
    if config.noise.kind != "inferred" or config.noise.proportional is not True:
        return None
    dtype = jnp.dtype(config.precision)
    zero = -scaling.output_shift / scaling.output_scale
    return Levels(jnp.asarray(zero, dtype), jnp.asarray(scaling.knees == 0, dtype))
