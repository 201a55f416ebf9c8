"""The posterior of a problem in coordinates where its prior is N(0, I): the input of samplers.

Trajectories that differ in their outputs alone enter through their mean and their scatter about it, so that a thousand
replicates cost as much as one.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._compiling import quick_jit
from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.data import Batch, Dataset, extended
from langenode.inference.likelihood import Likelihood, standard_innovations
from langenode.inference.noise import Levels, noise_scale
from langenode.inference.partition import Partition
from langenode.inference.point_fit import distinct_cases
from langenode.inference.priors import GaussianPrior
from langenode.inference.probes import Probe, outside
from langenode.inference.problem import Problem
from langenode.inference.targets import Hierarchical, Population
from langenode.models import Forwards
from langenode.posteriors import Density, cast

# With fewer cases than this all are taken: there is little to save.
FEWEST_FOR_MINIBATCH = 16
# Innovations of a point fit whose mean square is below this part of its noise's are those of a perfect fit.
SMALLEST_MEAN_SQUARE = 1e-6


class WhitenedModel(eqx.Module):
    """The model as a function of whitened weights."""

    model: Any
    partition: Partition
    prior: GaussianPrior

    def at(self, z: Float[Array, " dim"]) -> Any:
        """The model at a whitened point."""
        return self.partition.combine(self.model, self.prior.to_weights(z))

    def error(self, z: Float[Array, " dim"], cases: Batch) -> Float[Array, "case time out"]:
        """Observed minus predicted in all cases; zero where nothing was observed."""
        outputs: Array = jax.vmap(self.at(z))(cases.times, cases.inputs, cases.initial)
        return jnp.where(cases.mask, cases.outputs - outputs, 0.0)


class GivenNoise(eqx.Module):
    """Independent Gaussian noise of known scale: the sum of squares of the replicates' weighted means."""

    model: WhitenedModel
    cases: Batch
    seen: Int[Array, " cells"] | None  # the places of observed cells among all; None takes all
    root_precision: Float[Array, "case time out"]  # sqrt(sum of 1 / sigma^2) over replicates; zero where unobserved
    constant: Float[Array, ""]  # what does not depend on the weights
    temperature: float = eqx.field(static=True)

    def residual(self, z: Float[Array, " dim"]) -> Float[Array, " cells"]:
        """Standardised residuals; their half squares are all of the log-likelihood that depends on z."""
        standard = self.root_precision * self.model.error(z, self.cases)
        return _chosen(standard, self.seen) / math.sqrt(self.temperature)

    def log_likelihood(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """The tempered log-likelihood of all data."""
        return self.constant / self.temperature - 0.5 * jnp.sum(self.residual(z) ** 2)

    def minibatch(self, z: Float[Array, " dim"], chosen: Int[Array, " batch"]) -> Float[Array, ""]:
        """The same estimated from some of the cases."""
        standard = self.root_precision[chosen] * self.model.error(z, _take(self.cases, chosen))
        share = len(chosen) / len(self.root_precision)
        return (self.constant - 0.5 * jnp.sum(standard**2) / share) / self.temperature


class InferredNoise(eqx.Module):
    """Independent Gaussian noise whose scale is a weight of the model.

    Residuals only steer a sampler, so they use the noise of the point fit; one more residual per output pulls its log
    scale to that of the fit, with weight `sqrt(2 n)` for n readings.
    """

    model: WhitenedModel
    cases: Batch
    seen: Int[Array, " cells"] | None  # the places of observed cells among all; None takes all
    num_replicates: Float[Array, "case time out"]  # zero where unobserved
    scatter: Float[Array, "case time out"]  # sum of squares of the replicates about their mean
    log_noise: Float[Array, "*part out"]  # of the point fit
    scale: Float[Array, "#case #time out"]  # of the point fit
    levels: Levels | None
    temperature: float = eqx.field(static=True)

    def residual(self, z: Float[Array, " dim"]) -> Float[Array, " residuals"]:
        """Standardised residuals of outputs and of log noise scales."""
        error = self.model.error(z, self.cases)
        standard = jnp.sqrt(self.num_replicates) * error / self.scale
        pull = _noise_pull(self.model.at(z).log_noise, self.log_noise, self.num_replicates.sum((0, 1)))
        return jnp.concatenate([_chosen(standard, self.seen), pull]) / math.sqrt(self.temperature)

    def log_likelihood(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """The tempered log-likelihood of all data."""
        return self._sum(z, self.cases, self.num_replicates, self.scatter) / self.temperature

    def _sum(self, z: Array, cases: Batch, num_replicates: Array, scatter: Array) -> Float[Array, ""]:
        error = self.model.error(z, cases)
        scale = noise_scale(self.model.at(z).log_noise[None], (cases.outputs - error)[None], self.levels)[0]
        squares = num_replicates * error**2 + scatter
        log_scale = jnp.log(scale) + 0.5 * math.log(2.0 * math.pi)
        return -jnp.sum(0.5 * squares / scale**2 + num_replicates * log_scale)

    def minibatch(self, z: Float[Array, " dim"], chosen: Int[Array, " batch"]) -> Float[Array, ""]:
        """The same estimated from some of the cases."""
        total = self._sum(z, _take(self.cases, chosen), self.num_replicates[chosen], self.scatter[chosen])
        return total * len(self.scatter) / (len(chosen) * self.temperature)


class GeneralNoise(eqx.Module):
    """Noise with several modes or with a memory, trajectory by trajectory.

    With a memory the residuals are the innovations. With several modes the likelihood is no sum of squares: residuals
    have the pooled scale, and only steer. So they do where the scale is a weight of the model: they have the scale
    `log_noise` that suits the point fit, and one more per output pulls to it, as those of `InferredNoise`.
    """

    model: WhitenedModel
    cases: Batch
    likelihood: Likelihood
    log_noise: Float[Array, "*part out"] | None  # None where the scale is given
    temperature: float = eqx.field(static=True)

    def residual(self, z: Float[Array, " dim"]) -> Float[Array, " residuals"]:
        """Standardised residuals, decorrelated where the noise has a memory; then those of log noise scales."""
        noise, mask = self.likelihood, self.cases.mask
        error = self.model.error(z, self.cases)
        if noise.sigma is None:
            assert self.log_noise is not None
            sigma = noise_scale(self.log_noise[None], (self.cases.outputs - error)[None], noise.levels)[0]
        else:
            precision = jnp.tensordot(noise.mode_weights, 1.0 / noise.sigma**2, 1)
            sigma = 1.0 / jnp.sqrt(precision)
            if noise.shift is not None:
                error = error - jnp.tensordot(noise.mode_weights, noise.shift / noise.sigma**2, 1) / precision
        standard = _whitened_errors(error, jnp.where(mask, sigma, 1.0), self.cases, noise)
        parts = [jnp.ravel(standard)]
        if self.log_noise is not None:
            parts.append(_noise_pull(self.model.at(z).log_noise, self.log_noise, mask.sum((0, 1))))
        return jnp.concatenate(parts) / math.sqrt(self.temperature)

    def log_likelihood(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """The tempered log-likelihood of all data."""
        return self._trajectory_terms(z).sum() / self.temperature

    def _trajectory_terms(self, z: Float[Array, " dim"]) -> Float[Array, " case"]:
        predictions = (self.cases.outputs - self.model.error(z, self.cases))[None]
        log_noise = self.model.at(z).log_noise[None] if self.likelihood.sigma is None else None
        return self.likelihood.log_density(
            predictions, self.cases.outputs, self.cases.mask, self.cases.times, log_noise
        )[0]

    def minibatch(self, z: Float[Array, " dim"], chosen: Int[Array, " batch"]) -> Float[Array, ""]:
        """The same estimated from some of the trajectories."""
        cases, noise = _take(self.cases, chosen), self.likelihood.select(chosen)
        part = GeneralNoise(self.model, cases, noise, self.log_noise, 1.0)
        share = len(chosen) / len(self.cases.times)
        return part._trajectory_terms(z).sum() / (share * self.temperature)


DataTerm = GivenNoise | InferredNoise | GeneralNoise


def _noise_pull(log_noise: Array, fitted: Array, num_readings: Array) -> Float[Array, " scale"]:
    """Residuals of log noise scales: half their squares have the curvature of the likelihood, two per reading."""
    return jnp.ravel(jnp.sqrt(2.0 * num_readings.astype(fitted.dtype)) * (log_noise - fitted))


def _whitened_errors(error: Array, sigma: Array, cases: Batch, noise: Likelihood) -> Float[Array, "case time out"]:
    """Errors over their scale, decorrelated where the noise has a memory; zero where nothing was observed."""
    standard = error / sigma
    if noise.correlation_time is not None:
        found = standard_innovations(standard, cases.mask, cases.times, noise.correlation_time)
        standard = found.value / jnp.sqrt(found.variance)
    return jnp.where(cases.mask, standard, 0.0)


class _Minibatches(eqx.Module):
    """Random cases, each as likely as another."""

    term: DataTerm
    size: int = eqx.field(static=True)

    def __call__(self, z: Float[Array, " dim"], key: PRNGKeyArray) -> Float[Array, ""]:
        num = len(self.term.cases.times)
        return self.term.minibatch(z, jax.random.choice(key, num, (self.size,), replace=False))


def whiten(problem: Problem, data: Dataset, dtype: Any, *, batch: int | None = None, in_class: bool = False) -> Density:
    """The posterior (or tempered posterior) of a problem given scaled data, in whitened coordinates.

    `prior.to_weights` leads back. `batch` is the number of cases in a mini-batch; by default a quarter of them, or all
    where they are few. With `in_class` the data are padded to their size class, without mini-batches and probe.
    """
    if isinstance(problem.target, Population | Hierarchical) or problem.likelihood is None:
        raise ValueError(
            "drawing from a posterior needs a likelihood of one weight vector; units that differ have none; use "
            "target='posterior', or a method that is trained, such as langevin"
        )
    noise = cast(problem.likelihood, dtype)
    model = cast(WhitenedModel(problem.model, problem.partition, problem.prior), dtype)
    term = _data_term(model, noise, data, problem.target.temperature, dtype, in_class=in_class)
    dim, dtype = problem.partition.dim, jnp.dtype(dtype)
    if in_class:
        return Density(term.log_likelihood, Forwards(term.residual), None, dim, dtype, None)
    num = len(term.cases.times)
    size = max(1, num // 4) if batch is None else min(batch, num)
    minibatch = _Minibatches(term, size) if num >= FEWEST_FOR_MINIBATCH and size < num else None
    probe = Probe(model, outside(term.cases))
    return Density(term.log_likelihood, Forwards(term.residual), minibatch, dim, dtype, probe)


class Place(NamedTuple):
    """Where predictions are, in scaled units: times, and first numbers of the starts (NaN where there are none)."""

    times: np.ndarray
    starts: np.ndarray


def places(density: Density) -> tuple[Place, Place]:
    """Where the residuals of outputs and the probe's predictions are, for a density made by `whiten`."""
    term: Any = getattr(density.residual, "function").__self__  # noqa: B009
    probe: Any = density.probe
    seen = np.asarray(term.seen) if getattr(term, "seen", None) is not None else slice(None)
    num_outputs = term.cases.outputs.shape[-1]
    return _place(term.cases, num_outputs, seen), _place(probe.cases, num_outputs, slice(None))


def _place(cases: Batch, num_outputs: int, seen: Any) -> Place:
    times = np.asarray(cases.times, float)
    starts = np.full(len(times), np.nan) if cases.initial is None else np.asarray(cases.initial, float)[:, 0]
    shape = (*times.shape, num_outputs)
    return Place(*(np.broadcast_to(part, shape).ravel()[seen] for part in (times[..., None], starts[:, None, None])))


def _data_term(
    model: WhitenedModel, noise: Likelihood, data: Dataset, temperature: float, dtype: Any, *, in_class: bool
) -> DataTerm:
    batch_of = lambda part: part.arrays(dtype).in_class() if in_class else part.arrays(dtype)  # noqa: E731
    if noise.correlation_time is not None or noise.mode_weights.shape[0] > 1:
        cases = batch_of(data)
        noise = noise.extended(*cases.times.shape)
        log_noise = _fitted_log_noise(model.model, cases, noise) if noise.sigma is None else None
        return GeneralNoise(model, cases, noise, log_noise, temperature)
    first, case = distinct_cases(data)
    shape = (len(first), *data.outputs.shape[1:])
    if noise.sigma is not None:
        sigma = np.broadcast_to(np.asarray(noise.sigma[0], float), data.outputs.shape)
        precision = np.where(data.mask, sigma**-2.0, 0.0)
        weight, mean, scatter = _pooled(data, case, precision, shape)
        log_scales = np.log(sigma[data.mask]) + 0.5 * np.log(2.0 * np.pi)
        constant = -0.5 * scatter.sum() - log_scales.sum()
        cases = batch_of(data.select(first))
        sizes = cases.times.shape
        cases = cases._replace(outputs=placed(extended(mean, sizes, 0.0), dtype))
        root, seen = placed(extended(np.sqrt(weight), sizes, 0.0), dtype), None if in_class else _seen(cases)
        return GivenNoise(model, cases, seen, root, placed(constant, dtype), temperature)
    weight, mean, scatter = _pooled(data, case, np.where(data.mask, 1.0, 0.0), shape)
    cases = batch_of(data.select(first))
    cases = cases._replace(outputs=placed(extended(mean, cases.times.shape, 0.0), dtype))
    count, scatter = (placed(extended(part, cases.times.shape, 0.0), dtype) for part in (weight, scatter))
    log_noise, seen = model.model.log_noise, None if in_class else _seen(cases)
    scale = _fitted_scale(model, cases, noise.levels)
    return InferredNoise(model, cases, seen, count, scatter, log_noise, scale, noise.levels, temperature)


@quick_jit
def _fitted_scale(model: WhitenedModel, cases: Batch, levels: Levels | None) -> Float[Array, "#case #time out"]:
    """The noise scale of the point fit."""
    point = model.prior.to_standard(model.partition.flatten(model.model))
    fitted = cases.outputs - model.error(point, cases)
    return noise_scale(model.model.log_noise[None], fitted[None], levels)[0]


@quick_jit
def _fitted_log_noise(model: Any, cases: Batch, noise: Likelihood) -> Float[Array, "*part out"]:
    """The log noise scale that suits the point fit's errors given their memory: the rms of their innovations.

    The point fit's own scale is that of independent errors. A few correlated ones know it far less well than their
    innovations do.
    """
    fitted: Array = jax.vmap(model)(cases.times, cases.inputs, cases.initial)
    scale = noise_scale(model.log_noise[None], fitted[None], noise.levels)[0]
    error = jnp.where(cases.mask, cases.outputs - fitted, 0.0)
    standard = _whitened_errors(error, jnp.where(cases.mask, scale, 1.0), cases, noise)
    mean_square = (standard**2).sum((0, 1)) / jnp.maximum(cases.mask.sum((0, 1)), 1)
    is_sound = jnp.isfinite(mean_square) & (mean_square > SMALLEST_MEAN_SQUARE)
    return model.log_noise + 0.5 * jnp.log(jnp.where(is_sound, mean_square, 1.0))


def _pooled(
    data: Dataset, case: np.ndarray, precision: np.ndarray, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every case the sum of precisions, the weighted mean, and the weighted sum of squares about it."""
    weight, total, scatter = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    outputs = np.where(data.mask, data.outputs, 0.0)
    np.add.at(weight, case, precision)
    np.add.at(total, case, precision * outputs)
    mean = np.divide(total, weight, out=np.zeros(shape), where=weight > 0.0)
    np.add.at(scatter, case, precision * (outputs - mean[case]) ** 2)
    return weight, mean, scatter


def _seen(cases: Batch) -> Int[Array, " cells"]:
    # By NumPy: JAX would compile a program for every step of it.
    return jax.device_put(np.flatnonzero(np.asarray(cases.mask)))


def _chosen(values: Array, seen: Array | None) -> Array:
    return jnp.ravel(values) if seen is None else jnp.ravel(values)[seen]


def _take(cases: Batch, chosen: Array) -> Batch:
    return jax.tree.map(lambda leaf: leaf[chosen], cases)
