"""What a fitted problem predicts: the model's outputs, and new observations of them with their noise."""

from typing import Any, NamedTuple

import jax
import numpy as np

from langenode._arrays import placed
from langenode._compiling import light_jit, quick_jit
from langenode._types import Array, Float, PRNGKeyArray
from langenode.data import Dataset, Scaling, class_of, extended, refine
from langenode.inference.likelihood import Likelihood
from langenode.inference.noise import noise_scale
from langenode.inference.partition import Partition
from langenode.inference.problem import Problem, draw_members, simulate
from langenode.inference.sharding import ALONE, Devices, devices_for, gathered
from langenode.inference.targets import Hierarchical, Population, Posterior
from langenode.models import has_own_noise
from langenode.posteriors import AbstractPosterior

compiled_simulate = light_jit(simulate)
_compiled_members = quick_jit(draw_members)
_compiled_normal = quick_jit(jax.random.normal)


class Rule(NamedTuple):
    """What a fit's predictions need besides the problem.

    `scaling` is that of the fit: it is applied to times, inputs and starts, and undone in the predictions. Intervals
    longer than `largest_step` (in scaled time) are cut for the integrator. The noise of new observations is
    `noise_factor` (one number per output, or one for all) times that of the fit; so is the noise of a trajectory's
    start where it `starts_at_reading`.
    """

    scaling: Scaling | None = None
    largest_step: float | None = None
    noise_factor: Float[np.ndarray, " out"] | float = 1.0
    starts_at_reading: bool = False

    def scaled(self, outputs: Float[np.ndarray, "*batch out"]) -> Float[np.ndarray, "*batch out"]:
        """Outputs in the fit's units, where its noise is added."""
        return outputs if self.scaling is None else self.scaling.scale_outputs(outputs)

    def unscaled(self, outputs: Float[np.ndarray, "*batch out"]) -> Float[np.ndarray, "*batch out"]:
        """Outputs in the data's own units."""
        return outputs if self.scaling is None else self.scaling.unscale_outputs(outputs)


PLAIN = Rule()


class Prediction(NamedTuple):
    """The model's outputs in the data's own units, and the weights that made them."""

    outputs: Float[np.ndarray, "sample condition time out"]
    weights: Float[Array, "sample dim"]


def sample_weights(posterior: AbstractPosterior, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
    """Draws of the stochastic weights, compiled, and divided over the devices of this process where there are several.

    Each has a key of its own, so they do not depend on the number of devices.
    """
    devices = devices_for(num_samples)
    weights = _sampled(posterior, num_samples, devices, key=key)
    return weights if devices == ALONE else jax.device_put(gathered(weights))


@quick_jit
def _sampled(
    posterior: AbstractPosterior, num_samples: int, devices: Devices, *, key: PRNGKeyArray
) -> Float[Array, "sample dim"]:
    return devices.by_sample(posterior.sample(num_samples, key=key))


class PredictionKeys(NamedTuple):
    """What a prediction's key is split into: one key for everything that is drawn."""

    weights: PRNGKeyArray
    members: PRNGKeyArray  # whose start a sample takes
    start_noise: PRNGKeyArray
    model_noise: PRNGKeyArray

    @classmethod
    def of(cls, key: PRNGKeyArray) -> "PredictionKeys":
        """The keys of a prediction; with the same key `weights` draws the weights behind `predict`."""
        return cls(*jax.random.split(key, len(cls._fields)))


def predict(
    problem: Problem,
    data: Dataset,
    num_samples: int,
    rule: Rule = PLAIN,
    *,
    key: PRNGKeyArray,
    chunk: int = 1024,
) -> Prediction:
    """Predictions for every condition; a random start is drawn from those of the condition."""
    data = data if rule.scaling is None else data.scaled(rule.scaling)
    rows = None
    if rule.largest_step is not None:
        data, rows = refine(data, rule.largest_step)
    keys = PredictionKeys.of(key)
    weights = sample_weights(problem.posterior, num_samples, key=keys.weights)
    start = _starts(problem, data, weights, rule, keys)
    noise_keys = jax.random.split(keys.model_noise, len(weights)) if has_own_noise(problem.model) else None
    outputs = _simulated(problem, data, weights, start, noise_keys, chunk)
    if rows is not None:
        outputs = np.take_along_axis(outputs, rows[None, :, :, None], axis=2)
    return Prediction(rule.unscaled(outputs), weights)


def _starts(
    problem: Problem, data: Dataset, weights: Array, rule: Rule, keys: PredictionKeys
) -> Float[Array, "sample condition known"] | None:
    """Where every sample starts in every condition: at the start of a random member.

    A reading is the true start plus noise. Nothing else being known of it, the truth is the reading plus noise.
    """
    replicates = data.replicates()
    if replicates.initial is None:
        return None
    # Plain arithmetic by NumPy: JAX would compile a program for every step of it.
    present = replicates.present
    members = np.zeros((len(weights), present.shape[1]), int)
    if len(present) > 1:
        members = np.asarray(_compiled_members(keys.members, placed(present), len(weights)))
    start = replicates.initial.astype(weights.dtype)[members, np.arange(members.shape[1])]
    if rule.starts_at_reading:
        scales = rule.noise_factor * noise_scales(problem, weights, start[:, :, None])[:, :, 0]
        start = start + scales.astype(start.dtype) * _normal(keys.start_noise, start, data.num_times)
    return jax.device_put(start)


def _normal(key: PRNGKeyArray, like: np.ndarray, num_times: int) -> np.ndarray:
    """Normal numbers for starts, the first of as many as their size class needs: each depends on its place alone."""
    num_samples, num, num_known = like.shape
    in_class = num_samples * class_of(num, num_times)[0] * num_known
    return np.asarray(_compiled_normal(key, (in_class,), like.dtype))[: like.size].reshape(like.shape)


def _simulated(
    problem: Problem,
    data: Dataset,
    weights: Array,
    start: Array | None,
    noise_keys: Array | None,
    chunk: int,
) -> np.ndarray:
    dtype, cases = weights.dtype, data.cases()
    num, num_times = cases.times.shape
    # Padded to a size class, but where noise of the model's own is drawn for every time.
    sizes = (num, num_times) if num == 0 or noise_keys is not None else class_of(num, num_times)
    times, inputs = (placed(extended(values, sizes), dtype) for values in (cases.times, cases.inputs))
    if start is not None and sizes[0] > num:
        start = placed(extended(np.asarray(start), (len(start), sizes[0])))
    parts = []
    for i in range(0, len(weights), chunk):
        some = weights[i : i + chunk]
        starts = None if start is None else start[i : i + chunk]
        keys = None if noise_keys is None else noise_keys[i : i + chunk]
        devices = devices_for(len(some), len(times))
        given = (problem.model, problem.partition, some, times, inputs, starts, keys)
        found = compiled_simulate(*given) if devices == ALONE else gathered(_simulated_over(devices, *given))
        parts.append(np.asarray(found)[:, :num, :num_times])
    return np.concatenate(parts)


@light_jit
def _simulated_over(
    devices: Devices,
    model: Any,
    partition: Partition,
    weights: Float[Array, "sample dim"],
    times: Float[Array, "case time"],
    inputs: Float[Array, "case time in"],
    initial: Float[Array, "sample case known"] | None,
    keys: Array | None,
) -> Float[Array, "sample case time out"]:
    """`simulate` with samples and cases divided over devices."""
    weights, initial, keys = devices.by_sample((weights, initial, keys))
    times, inputs = devices.by_condition((times, inputs))
    return simulate(model, partition, weights, times, inputs, initial, keys)


def noise_scales(
    problem: Problem,
    weights: Float[Array, "sample dim"],
    outputs: Float[Array | np.ndarray, "sample condition time out"],
) -> Float[np.ndarray, "sample #condition #time #out"]:
    """The standard deviation of readings of these outputs under every draw, in the fit's units; zero without noise.

    Of noise stored for every trajectory and time, the rms.
    """
    likelihood = problem.likelihood
    if likelihood is None:
        return np.zeros((len(weights), 1, 1, 1))
    if likelihood.sigma is not None:
        pooled = pooled_sigma(likelihood)
        return np.broadcast_to(pooled, (len(weights), 1, 1, len(pooled)))
    log_noise = _log_noises(problem.model, problem.partition, weights)
    on_device: Array = jax.device_put(np.asarray(outputs, log_noise.dtype))
    return np.asarray(noise_scale(log_noise, on_device, likelihood.levels), float)


@quick_jit
def _log_noises(model: Any, partition: Partition, weights: Float[Array, "sample dim"]) -> Float[Array, "sample *noise"]:
    """The log noise scales of the model under every draw."""
    return jax.vmap(lambda w: partition.combine(model, w).log_noise)(weights)


def pooled_sigma(likelihood: Likelihood) -> Float[np.ndarray, " out"]:
    """The rms of noise that is stored for every trajectory and time, about the prediction."""
    mode_weights = np.asarray(likelihood.mode_weights, float)[:, None, None, None]
    return np.sqrt((mode_weights * likelihood.mean_squares()).sum(0).mean((0, 1)))


def measurement_noise(problem: Problem) -> Float[np.ndarray, " out"] | None:
    """The standard deviation of a population's measurement noise, in the fit's units; None where it has none."""
    if not isinstance(problem.target, Population) or not problem.target.has_noise or problem.likelihood is None:
        return None
    return pooled_sigma(problem.likelihood)


def with_noise(
    problem: Problem, prediction: Prediction, rule: Rule, *, rng: np.random.Generator
) -> Float[np.ndarray, "sample condition time out"]:
    """Samples of new observations: the model's outputs plus noise."""
    outputs = rule.scaled(np.asarray(prediction.outputs, float))
    scales = np.asarray(rule.noise_factor) * noise_scales(problem, prediction.weights, outputs)
    return rule.unscaled(outputs + scales * rng.standard_normal(outputs.shape))


def observable(
    problem: Problem, prediction: Prediction, rule: Rule, *, rng: np.random.Generator
) -> Float[np.ndarray, "sample condition time out"]:
    """The distribution that new data are compared with: noisy where there is a likelihood, else that of the outputs.

    (A population's spread, and the sigma of a tempered fit, are between trajectories: the push-forward is meant to
    have them already.) A population with measurement noise has it on top.
    """
    outputs = for_new_units(problem, np.asarray(prediction.outputs, float))
    if not isinstance(problem.target, Posterior | Hierarchical) and measurement_noise(problem) is None:
        return outputs
    return with_noise(problem, prediction._replace(outputs=outputs), rule, rng=rng)


def for_new_units(
    problem: Problem, outputs: Float[np.ndarray, "sample condition time out"]
) -> Float[np.ndarray, "sample condition time out"]:
    """Samples for a new unit of a population, of which n units are known: as many, wider by what n leaves open.

    In every cell the sample at level u becomes the quantile at level `Phi(c t(u))`, with t the quantile function of
    Student's t with n - 1 degrees of freedom and `c = sqrt((n + 1) / (n - 1))`. For a normal population these are the
    exact prediction limits about its mean and standard deviation (divisor n), whatever their sampling errors; for
    another the levels move by as much, and separate modes stay as narrow as they are. Ranks are kept over times and
    outputs, so that trajectories stay together. Unchanged for other targets and where the number of units is not given.
    """
    target = problem.target
    if not isinstance(target, Population) or target.num_units is None or target.num_units < 2:
        return outputs
    levels = (np.arange(len(outputs)) + 0.5) / len(outputs)
    wanted = predictive_levels(levels, target.num_units)
    ordered = np.sort(outputs, axis=0)
    place = np.clip(wanted * len(outputs) - 0.5, 0.0, len(outputs) - 1.0)
    low = np.floor(place).astype(int)
    fraction = (place - low)[:, None, None, None]
    high = np.minimum(low + 1, len(outputs) - 1)
    wider = (1.0 - fraction) * ordered[low] + fraction * ordered[high]
    ranks = np.argsort(np.argsort(outputs, axis=0), axis=0)
    return np.take_along_axis(wider, ranks, axis=0)


def predictive_levels(levels: np.ndarray, num_units: int) -> np.ndarray:
    """Levels of a distribution fitted to `num_units` that new units exceed as often as `levels` say."""
    from scipy.stats import norm, t

    factor = np.sqrt((num_units + 1) / (num_units - 1))
    return norm.cdf(factor * t.ppf(levels, num_units - 1))
