"""The point that the sampler starts from: maximum likelihood (Algorithm 1, line 1)."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._compiling import quick_jit
from langenode._types import Array, Float, OnStep
from langenode.data import Batch, Dataset, extended
from langenode.inference import descent
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
    sigma: Float[np.ndarray, "traj time out"] | None = None,
    units: Any = None,
    on_step: OnStep | None = None,
) -> PointFit:
    """Least squares over all observed cells, each output in units of its spread: Adam, then L-BFGS.

    Where `sigma` is given, a standard deviation for every reading, each error is in units of its own: the maximum of
    a likelihood with this noise.

    Adam finds the basin; L-BFGS the bottom of it: every step of it lowers the loss.
    `penalty` times the squared weights is added, for models with more weights than data. A model with noise of its own
    has its transition likelihood maximised. Where `units` are given, one positive number per leaf of the model, steps
    and penalty see weights in these units (`weight_scales.search_units`). `on_step` is called now and then.
    """
    given, static = eqx.partition(model, eqx.is_inexact_array)
    # In the widest precision that JAX is set to: a line search ends where rounding begins.
    dtype = jnp.result_type(float)
    units = jax.tree.map(lambda leaf: 1.0, given) if units is None else units
    params = jax.tree.map(lambda leaf, unit: _rescaled(leaf, unit, np.divide, dtype), given, units)
    misfit = _transition_misfit(data, dtype) if has_own_noise(model) else _squared_misfit(data, sigma, dtype)
    # Numbers are arrays, so that another data set of the same shape runs the same program.
    as_array = functools.partial(placed, dtype=dtype)
    loss = _Loss(misfit, static, jax.tree.map(as_array, units), as_array(penalty))
    like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)

    def function(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _value_and_gradient(loss, like, placed(flat, dtype))
        return float(value), np.asarray(gradient, float)

    flat, losses = descent.adam(
        function, _flattened(params), learning_rate, num_adam, _shown(on_step, num_adam, "Adam")
    )
    refined, more = descent.l_bfgs(function, flat, num_lbfgs, _shown(on_step, num_lbfgs, "L-BFGS"))
    reached = more[-1]
    if len(more) > 1:
        flat, losses = refined, np.concatenate([losses, more])
    if not np.isfinite(reached):
        raise FitError(
            "the maximum-likelihood fit must stay finite; its loss did not; scale the data, add solver substeps "
            "or lower mle.learning_rate"
        )
    found = _unflattened(flat, params)
    params = jax.tree.map(lambda leaf, unit, like: _rescaled(leaf, unit, np.multiply, like.dtype), found, units, given)
    return PointFit(_with_noise_of_residuals(eqx.combine(params, static), data), losses)


def _rescaled(leaf: Any, unit: Any, combine: np.ufunc, dtype: Any) -> Array:
    """Weights divided or multiplied by their units. By NumPy: JAX would compile a program for every shape."""
    widest = jnp.result_type(float)
    return jax.device_put(combine(np.asarray(leaf, widest), np.asarray(unit, widest)).astype(dtype))


class _SquaredMisfit(eqx.Module):
    """Weighted sum of the squared residuals."""

    batch: Batch
    weight: Float[Array, "case time out"]

    def __call__(self, model: Any) -> Array:
        batch = self.batch
        fitted: Array = jax.vmap(model)(batch.times, batch.inputs, batch.initial)
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


def _squared_misfit(data: Dataset, sigma: np.ndarray | None, dtype: Any) -> _SquaredMisfit:
    """Mean square of the residuals up to a constant: members that differ in outputs alone are one, their mean."""
    if sigma is not None:
        return _weighted_misfit(data, sigma, dtype)
    common = replicates_mean(data)
    weight = np.where(common.cases.mask, common.num_members[:, None, None], 0.0)
    return _in_class(common.cases, weight / (output_spread(data) ** 2 * data.mask.sum()), dtype)


def _weighted_misfit(data: Dataset, sigma: np.ndarray, dtype: Any) -> _SquaredMisfit:
    """The same with a standard deviation for every reading; the mean of members is weighted."""
    cases, case = distinct_cases(data)
    first, precision = data.select(cases), np.where(data.mask, sigma, np.inf) ** -2.0
    weight, sums = np.zeros(first.outputs.shape), np.zeros(first.outputs.shape)
    np.add.at(weight, case, precision)
    np.add.at(sums, case, precision * data.outputs)
    mean = np.divide(sums, weight, out=np.zeros_like(sums), where=weight > 0.0)
    return _in_class(dataclasses.replace(first, outputs=mean), weight / data.mask.sum(), dtype)


def _in_class(cases: Dataset, weight: np.ndarray, dtype: Any) -> _SquaredMisfit:
    """The misfit with its arrays padded, for the program of their size class."""
    batch = cases.arrays(dtype).in_class()
    return _SquaredMisfit(batch, placed(extended(weight, batch.times.shape, 0.0), dtype))


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
    return eqx.tree_at(lambda m: m.log_noise, model, placed(full, model.log_noise.dtype))


@quick_jit
def _value_and_gradient(loss: _Loss, like: Any, flat: Float[Array, " weight"]) -> tuple[Array, Array]:
    """The loss and its gradient at weights that are laid out one after the other, in the order of `like`."""
    return jax.value_and_grad(lambda flat: loss(_unflattened(flat, like)))(flat)


def _flattened(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)] or [np.zeros(0)])


def _unflattened(flat: Any, like: Any) -> Any:
    leaves, tree = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    parts = [
        flat[end - math.prod(leaf.shape) : end].reshape(leaf.shape) for end, leaf in zip(ends, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, parts)


def _shown(on_step: OnStep | None, total: int, name: str) -> Callable[[int], None]:
    """Report the end of every tenth of a search."""
    block = max(-(-total // NUM_BLOCKS), 1)

    def on_done(done: int) -> None:
        if on_step is not None and (done % block == 0 or done == total):
            on_step(done, total, name)

    return on_done


def output_spread(data: Dataset) -> np.ndarray:
    """The standard deviation of every output over all readings; 1 where it is constant."""
    count = np.maximum(data.mask.sum((0, 1)), 1)
    mean = data.outputs.sum((0, 1)) / count
    spread = np.sqrt((np.where(data.mask, data.outputs - mean, 0.0) ** 2).sum((0, 1)) / count)
    return np.where(spread > 0.0, spread, 1.0)


def fitted_outputs(model: Any, data: Dataset) -> np.ndarray:
    """The model's outputs for every trajectory, from its own start."""
    dtype = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    outputs = np.asarray(_outputs(model, data.arrays(dtype).in_class()), float)
    return outputs[: data.num_trajectories, : data.num_times]


@quick_jit
def _outputs(model: Any, batch: Batch) -> Array:
    return jax.vmap(model)(batch.times, batch.inputs, batch.initial)


def rms_error(model: Any, data: Dataset) -> float:
    """Root mean square of the residuals of what replicates have in common, their mean; infinite where it diverges."""
    common = replicates_mean(data)
    residual = np.where(common.cases.mask, common.cases.outputs - fitted_outputs(model, common.cases), 0.0)
    error = float(np.sqrt((residual**2).sum() / max(common.cases.mask.sum(), 1)))
    return error if np.isfinite(error) else np.inf
