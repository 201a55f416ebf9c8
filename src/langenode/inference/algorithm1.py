"""Algorithm 1 on one screen: draw paths of the weights, run the model, form the bound, take its gradient.

`loss_and_gradient` is one pass, `negative_elbo` the bound, `regularised_distance` what a population has instead. The
loop around them (optimiser, mini-batches, validation) is in `training`; what the data ask for is in `objectives`.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.inference.problem import Problem
from langenode.inference.sharding import ALONE, Devices
from langenode.posteriors import Draw
from langenode.posteriors.base import Estimator


class Terms(NamedTuple):
    """A loss and its two parts. The KL is the mean of `Draw.kl` whatever estimates the gradient."""

    loss: Float[Array, ""]
    data: Float[Array, ""]
    kl: Float[Array, ""]


class Outputs(NamedTuple):
    """What the model makes of one draw, in every case; for a population also the mean model from the same starts."""

    predictions: Float[Array, "*sample case time out"]
    responses: Float[Array, "*sample case time out"] | None = None


class Sample(NamedTuple):
    """One draw of the weights and its outputs; a leading axis where there are several."""

    draw: Draw
    outputs: Outputs


class Objective(eqx.Module):
    """What Algorithm 1 asks of data: how the model is run on them, and the loss of what results.

    `couples_samples`: the loss compares samples with each other, so that every device needs them all.
    """

    couples_samples: ClassVar[bool] = False

    @abc.abstractmethod
    def pick(self, key: PRNGKeyArray, num_trajectories: int | None, num_conditions: int | None) -> "Objective":
        """A random mini-batch whose loss estimates that of all data; None takes all."""

    def divided(self, devices: Devices) -> "Objective":
        """The same with its conditions (or trajectories) divided over devices, within a program; itself by default."""
        del devices
        return self

    @property
    def num_conditions(self) -> int:
        """How many conditions (or trajectories) devices may divide."""
        return 1

    @abc.abstractmethod
    def run(self, model: Any, *, key_start: PRNGKeyArray, key_noise: PRNGKeyArray) -> Outputs:
        """The model's outputs in every case; the keys are for random starts and for noise of the model's own."""

    @abc.abstractmethod
    def loss(self, problem: Problem, samples: Sample) -> Terms:
        """The loss, from all samples at once."""

    @abc.abstractmethod
    def score(self, problem: Problem, samples: Sample) -> Float[Array, ""]:
        """What early stopping watches; less is better."""


class PassOptions(NamedTuple):
    """Options of one pass: how many samples, in how many chunks, gamma where it is not the stored one, and devices."""

    num_samples: int
    num_chunks: int = 1
    diffusion: Float[Array, ""] | None = None
    devices: Devices = ALONE


# Algorithm 1


def loss_and_gradient(
    params: Any, static: Any, objective: Objective, options: PassOptions, *, key: PRNGKeyArray
) -> tuple[Terms, Any]:
    """The terms of the loss and its gradient by the trained numbers, `params`: one pass, lines 4 to 7."""

    @options.devices.each
    def samples_of(params: Any, keys: Array) -> Sample:  # lines 4 and 5: paths of the weights, and the model's outputs
        return generate(eqx.combine(params, static), objective.divided(options.devices), keys, options.diffusion)

    def evaluate(params: Any, samples: Sample) -> tuple[Array, Terms]:  # line 6: minus the bound, or the distance
        if objective.couples_samples:
            samples = options.devices.everywhere(samples)
        terms = objective.loss(eqx.combine(params, static), samples)
        return terms.loss, terms

    keys = jax.random.split(key, options.num_samples)
    if options.num_chunks > 1:
        return _two_pass(params, samples_of, evaluate, keys.reshape(options.num_chunks, -1))
    together = lambda p: evaluate(p, samples_of(p, keys))  # noqa: E731
    (_, terms), gradient = jax.value_and_grad(together, has_aux=True)(params)  # line 7
    return terms, gradient


def generate(problem: Problem, objective: Objective, keys: Array, diffusion: Array | None = None) -> Sample:
    """One sample per key: a path of the weights (line 4), and the outputs of the model at its end (line 5)."""

    def run(weights: Array, key_start: PRNGKeyArray, key_noise: PRNGKeyArray) -> Outputs:
        model = problem.partition.combine(problem.model, weights)
        return objective.run(model, key_start=key_start, key_noise=key_noise)

    keys_path, keys_start, keys_noise = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
    draws = problem.variational.draws(keys_path, diffusion=diffusion)
    return Sample(draws, jax.vmap(run)(draws.weights, keys_start, keys_noise))


def negative_elbo(
    log_target: Float[Array, " sample"], draws: Draw, *, estimator: Estimator, kl_weight: float = 1.0
) -> Terms:
    """-ELBO (line 6): `-E[log_target] + kl_weight KL`, with the gradient estimator asked for.

    `log_target` is the (tempered) log-likelihood plus log prior minus log reference at each draw. `log_variance` takes
    half the variance of the log weights, which is zero where the bound is tight and has its gradient in expectation.
    """
    data, kl = -jnp.mean(log_target), jnp.mean(draws.kl)
    if estimator == "log_variance":
        return Terms(0.5 * jnp.var(kl_weight * draws.log_ratio - log_target, ddof=1), data, kl)
    return Terms(data + kl_weight * (kl if estimator == "reparametrised" else jnp.mean(draws.log_ratio)), data, kl)


def regularised_distance(distance: Float[Array, ""], draws: Draw, *, kl_weight: float) -> Terms:
    """A population's loss (line 6): the distance of predictions from data, plus `kl_weight` KL."""
    kl = jnp.mean(draws.kl)
    return Terms(distance + kl_weight * kl, distance, kl)


# The same in less memory


def _two_pass(params: Any, samples_of: Callable, evaluate: Callable, keys: Array) -> tuple[Terms, Any]:
    """The same gradient with the memory of one chunk: outputs first, then their cotangent chunk by chunk.

    A loss that couples all samples needs them gathered; its cotangent on them is then pulled back chunk by chunk.
    """
    chunks = jax.lax.map(lambda k: samples_of(params, k), keys)
    samples = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chunks)
    (_, terms), (direct, cotangent) = jax.value_and_grad(evaluate, argnums=(0, 1), has_aux=True)(params, samples)
    cotangents = jax.tree.map(lambda leaf, like: leaf.reshape(like.shape), cotangent, chunks)

    def add_chunk(total, chunk):
        chunk_keys, chunk_cotangent = chunk
        _, pull_back = jax.vjp(lambda p: samples_of(p, chunk_keys), params)
        return jax.tree.map(jnp.add, total, pull_back(chunk_cotangent)[0]), None

    gradient, _ = jax.lax.scan(add_chunk, direct, (keys, cotangents))
    return terms, gradient
