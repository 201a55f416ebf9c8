"""The point that the sampler starts from: maximum likelihood (Algorithm 1, line 1)."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, OnStep
from langenode.data import Batch, Dataset
from langenode.inference.errors import FitError
from langenode.models import has_own_noise

# Blocks of steps between which progress is shown.
NUM_BLOCKS = 10
# A transition is learned from each interval, so that this many trajectories are plenty.
MOST_TRANSITION_TRAJECTORIES = 256


class PointFit(NamedTuple):
    """A fitted model and the loss along the way."""

    model: Any
    losses: np.ndarray


def fit_mle(
    model: Any,
    data: Dataset,
    *,
    num_adam: int = 500,
    num_lbfgs: int = 200,
    learning_rate: float = 1e-2,
    penalty: float = 0.0,
    units: Any = None,
    on_step: OnStep | None = None,
) -> PointFit:
    """Least squares over all observed cells, each output in units of its spread: Adam, then L-BFGS.

    Adam finds the basin; L-BFGS the bottom of it, and is kept only where it lowered the loss and stayed finite.
    `penalty` times the squared weights is added, for models with more weights than data. A model with noise of its own
    has its transition likelihood maximised. Where `units` are given, one positive number per leaf of the model, steps
    and penalty see weights in these units (`weight_scales.search_units`). `on_step` is called now and then.
    """
    given, static = eqx.partition(model, eqx.is_inexact_array)
    # In the widest precision that JAX is set to: a line search ends where rounding begins.
    dtype = jnp.result_type(float)
    units = jax.tree.map(lambda leaf: 1.0, given) if units is None else units
    params = jax.tree.map(lambda leaf, unit: leaf.astype(dtype) / unit, given, units)
    misfit = _transition_misfit(data, dtype) if has_own_noise(model) else _squared_misfit(data, dtype)
    # Numbers are arrays, so that another data set of the same shape runs the same program.
    as_array = functools.partial(jnp.asarray, dtype=dtype)
    loss = _Loss(misfit, static, jax.tree.map(as_array, units), as_array(penalty))
    params, losses = _minimise(loss, params, learning_rate, num_adam, on_step)
    refined, more = _minimise(loss, params, None, num_lbfgs, on_step)
    reached, lowest = float(_value(loss, params)), float(_value(loss, refined))
    if len(more) and np.isfinite(lowest) and lowest <= reached:
        params, reached, losses = refined, lowest, np.concatenate([losses, more])
    if not np.isfinite(reached):
        raise FitError(
            "the maximum-likelihood fit must stay finite; its loss did not; scale the data, add solver substeps "
            "or lower mle.learning_rate"
        )
    params = jax.tree.map(lambda leaf, unit, like: (leaf * unit).astype(like.dtype), params, units, given)
    return PointFit(_with_noise_of_residuals(eqx.combine(params, static), data), losses)


class _SquaredMisfit(eqx.Module):
    """Weighted sum of the squared residuals."""

    batch: Batch
    weight: Float[Array, "case time out"]

    def __call__(self, model: Any) -> Array:
        batch = self.batch
        fitted = jax.vmap(model)(batch.times, batch.inputs, batch.initial)
        return jnp.sum(self.weight * jnp.where(batch.mask, batch.outputs - fitted, 0.0) ** 2)


class _TransitionMisfit(eqx.Module):
    """Minus the mean log density of a reading given the one before."""

    batch: Batch

    def __call__(self, model: Any) -> Array:
        batch = self.batch
        return -jnp.mean(jax.vmap(model.transition_log_density)(batch.times, batch.inputs, batch.outputs, batch.mask))


class _Loss(eqx.Module):
    """Misfit plus penalty, as a function of the weights in their units."""

    misfit: _SquaredMisfit | _TransitionMisfit
    static: Any  # of the model, all but its weights
    units: Any
    penalty: Float[Array, ""]

    def __call__(self, params: Any) -> Array:
        value = self.misfit(eqx.combine(jax.tree.map(jnp.multiply, params, self.units), self.static))
        return value + self.penalty * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


def _squared_misfit(data: Dataset, dtype: Any) -> _SquaredMisfit:
    """Mean square of the residuals up to a constant: members that differ in outputs alone are one, their mean."""
    common = replicates_mean(data)
    batch = common.cases.arrays(dtype)
    weight = jnp.where(batch.mask, jnp.asarray(common.num_members, dtype)[:, None, None], 0.0)
    return _SquaredMisfit(batch, weight / jnp.asarray(output_spread(data) ** 2 * data.mask.sum(), dtype))


def _transition_misfit(data: Dataset, dtype: Any) -> _TransitionMisfit:
    every = max(1, data.num_trajectories // MOST_TRANSITION_TRAJECTORIES)
    return _TransitionMisfit(data.select(slice(None, None, every)).arrays(dtype))


def distinct_cases(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The first trajectory of every case, and each trajectory's case: one condition, start and pattern of readings."""
    numbers: dict[bytes, int] = {}
    first, case = [], np.empty(data.num_trajectories, int)
    for row in range(data.num_trajectories):
        start = b"" if data.initial is None else data.initial[row].tobytes()
        label = int(data.condition[row]).to_bytes(8, "little") + start + np.packbits(data.mask[row]).tobytes()
        if label not in numbers:
            numbers[label] = len(first)
            first.append(row)
        case[row] = numbers[label]
    return np.array(first, int), case


class CommonPart(NamedTuple):
    """Trajectories that differ in outputs alone, as one with their mean; rms over cells of the mean's standard error.

    The latter is zero where there are no replicates to estimate it from.
    """

    cases: Dataset
    num_members: np.ndarray  # (case,)
    standard_error: float


def replicates_mean(data: Dataset) -> CommonPart:
    """What replicates have in common."""
    cases, case = distinct_cases(data)
    first, members = data.select(cases), np.bincount(case)
    count = members[:, None, None]
    sums = np.zeros(first.outputs.shape)
    np.add.at(sums, case, data.outputs)
    mean, squares = sums / count, np.zeros(first.outputs.shape)
    np.add.at(squares, case, (data.outputs - mean[case]) ** 2)
    variance = np.where(first.mask & (count > 1), squares / np.maximum(count - 1, 1) / count, 0.0)
    error = float(np.sqrt(variance.sum() / max(first.mask.sum(), 1)))
    return CommonPart(dataclasses.replace(first, outputs=mean), members, error)


def _with_noise_of_residuals(model: Any, data: Dataset) -> Any:
    """The model with its noise scale, if it has one, at maximum likelihood too: the rms of each output's residuals."""
    if getattr(model, "log_noise", None) is None:
        return model
    residual = np.where(data.mask, data.outputs - fitted_outputs(model, data), 0.0)
    rms = np.sqrt((residual**2).sum((0, 1)) / np.maximum(data.mask.sum((0, 1)), 1))
    # A perfect fit has no smallest noise: a thousandth of the spread is where we stop.
    rms = np.maximum(rms, 1e-3 * output_spread(data))
    # Of two parts the second, in proportion to the level, is found later.
    full = np.broadcast_to(np.log(rms), model.log_noise.shape)
    return eqx.tree_at(lambda m: m.log_noise, model, jnp.asarray(full, model.log_noise.dtype))


def _minimise(
    loss: _Loss, params: Any, learning_rate: float | None, num_steps: int, on_step: OnStep | None
) -> tuple[Any, np.ndarray]:
    """Run Adam, or L-BFGS where there is no learning rate, for a number of steps, in blocks of one compiled loop."""
    if num_steps == 0:
        return params, np.zeros(0)
    carry, block = _begin(params, learning_rate, num_steps), -(-num_steps // NUM_BLOCKS)
    for begin in range(0, num_steps, block):
        end = min(begin + block, num_steps)
        # Bounds are data, not shape, so that a shorter last block runs the same program.
        carry = jax.block_until_ready(_run(loss, carry, learning_rate, num_steps, jnp.asarray(begin), jnp.asarray(end)))
        if on_step is not None:
            on_step(end, num_steps, "L-BFGS" if learning_rate is None else "Adam")
    return carry[0], np.asarray(carry[2])


def _optimiser(learning_rate: float | None, num_steps: int) -> Any:
    import optax  # lazy, like every import that not all users need

    if learning_rate is None:
        return optax.lbfgs()
    schedule = optax.cosine_decay_schedule(learning_rate, num_steps, alpha=0.05)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


@eqx.filter_jit
def _begin(params: Any, learning_rate: float | None, num_steps: int) -> tuple[Any, Any, Array]:
    """The weights, the optimiser's state and room for the losses, in types that the loop returns: it compiles once."""
    state = _optimiser(learning_rate, num_steps).init(params)
    carry = (params, state, jnp.zeros(num_steps, jnp.result_type(float)))
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, leaf.dtype), carry)


@eqx.filter_jit
def _run(
    loss: _Loss, carry: Any, learning_rate: float | None, num_steps: int, begin: Int[Array, ""], end: Int[Array, ""]
) -> tuple[Any, Any, Array]:
    """Steps `begin` to `end` of `num_steps`."""
    import optax

    optimiser = _optimiser(learning_rate, num_steps)

    def step(index, carry):
        params, state, losses = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradient, state, params, value=value, grad=gradient, value_fn=loss)
        return optax.apply_updates(params, updates), state, losses.at[index].set(value)

    return jax.lax.fori_loop(begin, end, step, carry)


@eqx.filter_jit
def _value(loss: _Loss, params: Any) -> Array:
    return loss(params)


def output_spread(data: Dataset) -> np.ndarray:
    """The standard deviation of every output over all readings; 1 where it is constant."""
    count = np.maximum(data.mask.sum((0, 1)), 1)
    mean = data.outputs.sum((0, 1)) / count
    spread = np.sqrt((np.where(data.mask, data.outputs - mean, 0.0) ** 2).sum((0, 1)) / count)
    return np.where(spread > 0.0, spread, 1.0)


def fitted_outputs(model: Any, data: Dataset) -> np.ndarray:
    """The model's outputs for every trajectory, from its own start."""
    dtype = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    batch = data.arrays(dtype)
    return np.asarray(_outputs(model, batch), float)


@eqx.filter_jit
def _outputs(model: Any, batch: Batch) -> Array:
    return jax.vmap(model)(batch.times, batch.inputs, batch.initial)


def rms_error(model: Any, data: Dataset) -> float:
    """Root mean square of the residuals of what replicates have in common, their mean; infinite where it diverges."""
    common = replicates_mean(data)
    residual = np.where(common.cases.mask, common.cases.outputs - fitted_outputs(model, common.cases), 0.0)
    error = float(np.sqrt((residual**2).sum() / max(common.cases.mask.sum(), 1)))
    return error if np.isfinite(error) else np.inf
