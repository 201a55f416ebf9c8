"""What a fitted problem predicts: the model's outputs, and new observations of them with their noise."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.data import Dataset, Scaling, refine
from langenode.posteriors import AbstractPosterior
from langenode.problem import Problem, draw_members, simulate
from langenode.targets import Posterior

_compiled_simulate = eqx.filter_jit(simulate)

# Of the absolute value of a standard normal number.
NORMAL_QUANTILE_90 = 1.6448536269514722
# Tails that ask for more than this mean another model, not another noise.
LIMITS_OF_TAIL = (0.5, 2.0)


class Prediction(NamedTuple):
    """The model's outputs in the data's own units, and the weights that made them."""

    outputs: Float[np.ndarray, "sample condition time out"]
    weights: Float[Array, "sample dim"]


@eqx.filter_jit
def sample_weights(posterior: AbstractPosterior, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
    """Draws of the stochastic weights, compiled."""
    return posterior.sample(num_samples, key=key)


def weights_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """The part of a prediction's key that its weights are drawn with."""
    return jax.random.split(key)[0]


def predict(
    problem: Problem,
    data: Dataset,
    num_samples: int,
    *,
    key: PRNGKeyArray,
    scaling: Scaling | None = None,
    largest_step: float | None = None,
    chunk: int = 1024,
) -> Prediction:
    """Predictions once a condition; a random start is drawn from the condition's.

    `scaling` is that of the fit: it is applied to the data's times, inputs and starts, and undone in the predictions.
    Intervals longer than `largest_step` (in scaled time) are cut for the integrator.
    """
    data = data if scaling is None else data.scaled(scaling)
    rows = None
    if largest_step is not None:
        data, rows = refine(data, largest_step)
    weights = sample_weights(problem.posterior, num_samples, key=weights_key(key))
    outputs = _simulated(problem, data, weights, jax.random.split(key)[1], chunk)
    if rows is not None:
        outputs = np.take_along_axis(outputs, rows[None, :, :, None], axis=2)
    return Prediction(outputs if scaling is None else scaling.unscale_outputs(outputs), weights)


def _simulated(problem: Problem, data: Dataset, weights: Array, key: PRNGKeyArray, chunk: int) -> np.ndarray:
    dtype = weights.dtype
    cases, replicates = data.cases(), data.replicates()
    start = None
    if replicates.initial is not None:
        members = draw_members(key, jnp.asarray(replicates.present), len(weights))
        initial = jnp.asarray(replicates.initial, dtype)
        start = initial[members, jnp.arange(members.shape[1])]
    times, inputs = jnp.asarray(cases.times, dtype), jnp.asarray(cases.inputs, dtype)
    parts = [
        _compiled_simulate(
            problem.model,
            problem.partition,
            weights[i : i + chunk],
            times,
            inputs,
            None if start is None else start[i : i + chunk],
        )
        for i in range(0, len(weights), chunk)
    ]
    return np.concatenate(parts)


def noise_scales(problem: Problem, weights: Float[Array, "sample dim"]) -> Float[np.ndarray, "sample out"]:
    """The standard deviation of the observation noise under every draw, in the fit's units; zero where there is none.

    Of noise stored for every trajectory and time, the rms.
    """
    likelihood = problem.likelihood
    if likelihood is None:
        return np.zeros((len(weights), 1))
    if likelihood.sigma is None:
        log_noise = jax.vmap(lambda w: problem.partition.combine(problem.model, w).log_noise)(weights)
        return np.exp(np.asarray(log_noise, float))
    mode_weights = np.asarray(likelihood.mode_weights, float)[:, None, None, None]
    pooled = (mode_weights * np.asarray(likelihood.sigma, float) ** 2).sum(0).mean((0, 1))
    return np.broadcast_to(np.sqrt(pooled), (len(weights), len(pooled)))


def with_noise(
    problem: Problem, prediction: Prediction, *, scaling: Scaling, factor: float, rng: np.random.Generator
) -> Float[np.ndarray, "sample condition time out"]:
    """Samples of new observations: the model's outputs plus noise, `factor` times that of the fit."""
    scales = scaling.unscale_spread(factor * noise_scales(problem, prediction.weights))
    outputs = np.asarray(prediction.outputs, float)
    return outputs + scales[:, None, None, :] * rng.standard_normal(outputs.shape)


def observable(
    problem: Problem, prediction: Prediction, *, scaling: Scaling, factor: float, rng: np.random.Generator
) -> Float[np.ndarray, "sample condition time out"]:
    """The law that new data are compared with: with noise for a posterior, else the push-forward of the weights.

    (A population's spread, and the sigma of a tempered fit, are between trajectories: the push-forward is meant to
    have them already.)
    """
    if not isinstance(problem.target, Posterior):
        return np.asarray(prediction.outputs, float)
    return with_noise(problem, prediction, scaling=scaling, factor=factor, rng=rng)


def noise_factor(
    problem: Problem, train: Dataset, validation: Dataset, num_samples: int, *, key: PRNGKeyArray
) -> float:
    """By how much the noise of predictions must change for 90 % bands to hold 90 % of new trajectories' readings.

    Two things make it differ from the noise that was inferred. Residuals have heavier tails than a Gaussian where
    trajectories differ from each other: the 90 % quantile of the standardised training errors tells. And new
    trajectories scatter more than those that the weights were fitted to: the ratio of the mean squares of validation
    and training trajectories tells, by medians over trajectories, so that one outside the range of training does not
    set it, and never below one. Both data sets are scaled, on the integrator's grid.
    """
    fitted = _standardised_errors(problem, train, num_samples, key)
    new = _standardised_errors(problem, validation, num_samples, key)
    tail = np.quantile(np.abs(np.concatenate(fitted)), 0.9) / NORMAL_QUANTILE_90
    growth = np.median([np.mean(z**2) for z in new]) / np.median([np.mean(z**2) for z in fitted])
    return float(np.clip(tail, *LIMITS_OF_TAIL) * np.sqrt(max(1.0, growth)))


def _standardised_errors(
    problem: Problem, data: Dataset, num_samples: int, key: PRNGKeyArray
) -> list[Float[np.ndarray, " cell"]]:
    """For every trajectory its readings' distance from the mean prediction, in predicted standard deviations."""
    prediction = predict(problem, data, num_samples, key=key)
    outputs = np.asarray(prediction.outputs, float)
    variance = outputs.var(0) + (noise_scales(problem, prediction.weights) ** 2).mean(0)
    members = data.replicates()
    z = (members.outputs - outputs.mean(0)) / np.sqrt(variance)
    seen = [(i, c) for i, c in np.argwhere(members.present) if members.mask[i, c].any()]
    return [z[i, c][members.mask[i, c]] for i, c in seen]
