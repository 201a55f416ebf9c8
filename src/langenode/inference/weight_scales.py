"""Natural scales of a model's weights: the units in which a point estimate is sought, and the widths of a prior.

A model of the user's own has weights in units of its own: a rate in 1/s, a stiffness in Pa. Neither a step of a search
nor the width of a prior may then be a plain number. Both are taken from the model and the data, so that another unit of
a weight changes nothing but that weight's number.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._compiling import quick_jit
from langenode._types import Array, Bool, Float
from langenode.data import Batch, Dataset
from langenode.inference.likelihood import Likelihood
from langenode.inference.partition import Partition, network_positions, noise_positions
from langenode.inference.point_fit import distinct_cases, output_spread
from langenode.inference.references import LARGEST_FULL_COVARIANCE, compiled_jacobians, reference_sigma
from langenode.models import has_own_noise

# Random combinations of all readings by which sensitivities are estimated: a unit need not be known to 20 %.
NUM_PROBES = 16
# A search's unit stays within this factor of a weight's own magnitude: far from the data sensitivities may vanish.
MOST_UNIT_RATIO = 100.0
# Share of a weight in directions without data above which it counts as undetermined.
SMALLEST_PART = 1e-4


class PriorScales(NamedTuple):
    """Standard deviations of a prior, one per stochastic weight, and the names of weights that no data determine."""

    scale: Float[np.ndarray, " dim"]
    unidentified: tuple[str, ...]


def search_units(model: Any, data: Dataset) -> Any:
    """Units in which all weights of a model are of comparable effect, as a tree in the shape of the model.

    Outside networks, the unit of a leaf is the change of its weights that moves the outputs by their own spread (rms
    over all readings), within a factor of 100 of the leaf's rms. Networks, and the log noise, keep the unit 1.
    """
    params, static = eqx.partition(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(params)
    unscaled = _unscaled_leaves(model)
    if all(unscaled):
        return jax.tree.unflatten(structure, [1.0] * len(leaves))
    squares = [0.0] * len(leaves) if has_own_noise(model) else _sensitivities(params, static, data)
    units = [
        1.0 if is_unscaled else _unit(_rms(leaf), square)
        for leaf, square, is_unscaled in zip(leaves, squares, unscaled, strict=True)
    ]
    return jax.tree.unflatten(structure, units)


def _unscaled_leaves(model: Any) -> list[bool]:
    """Whether each real leaf of a model is free of units: in a network, or a log noise scale."""
    free = network_positions(model) | noise_positions(model)
    return [i in free for i, leaf in enumerate(jax.tree.leaves(model)) if eqx.is_inexact_array(leaf)]


def _sensitivities(params: Any, static: Any, data: Dataset) -> list[float]:
    """Of every leaf the mean square change of the outputs, in spreads, by a unit random change of its weights."""
    first, _ = distinct_cases(data)
    batch = data.select(first).arrays(jnp.result_type(float))
    weight = placed(np.where(batch.mask, 1.0 / output_spread(data), 0.0), jnp.result_type(float))
    params = jax.tree.map(lambda leaf: placed(leaf, jnp.result_type(float)), params)
    squares = _squares(params, static, batch, weight)
    return [float(value) / max(int(np.sum(batch.mask)), 1) for value in jax.tree.leaves(squares)]


@quick_jit
def _squares(params: Any, static: Any, batch: Batch, weight: Float[Array, "traj time out"]) -> Any:
    """Of every leaf the mean square change of the weighted outputs by a unit random change."""

    def outputs(params: Any) -> Array:
        return weight * jax.vmap(eqx.combine(params, static))(batch.times, batch.inputs, batch.initial)

    _, pull_back = jax.vjp(outputs, params)
    probes = jax.random.rademacher(jax.random.key(0), (NUM_PROBES, *weight.shape), weight.dtype)
    pulled = jax.vmap(lambda probe: pull_back(probe)[0])(probes)
    return jax.tree.map(lambda leaf: jnp.sum(leaf**2) / NUM_PROBES, pulled)


def _unit(magnitude: float, square: float) -> float:
    sensible = 1.0 / np.sqrt(square) if np.isfinite(square) and square > 0.0 else np.inf
    if magnitude > 0.0 and np.isfinite(magnitude):
        return float(np.clip(sensible, magnitude / MOST_UNIT_RATIO, magnitude * MOST_UNIT_RATIO))
    return float(sensible) if np.isfinite(sensible) else 1.0


def prior_scales(
    start: Any, model: Any, partition: Partition, data: Dataset, likelihood: Likelihood, *, is_population: bool
) -> PriorScales:
    """Weakly informative standard deviations for the stochastic weights of a model in units of its own.

    `start` is the model before and `model` at the point estimate; `data` are those that the estimate was made from.

    - In a network: the rms of the leaf, at the start or at the estimate, whichever is larger.
    - A log noise scale: 1, a factor of e.
    - Any other weight: the same rms of its leaf or `sqrt(n)` times its Laplace standard deviation for n readings,
      whichever is larger. The second is the information of one reading (the unit-information prior): with it the
      prior holds at most a fraction d / n of the data's information on d such weights, in any direction of theirs.
    - A weight that the data do not determine has the rms of its leaf alone, or 1 where that is zero, and is named.

    For a population the rms counts only where the data say nothing: `sqrt(n)` standard deviations about the mean model
    are then the spread of the weight between units, which the magnitude of the weight may exceed by far.
    """
    magnitude = _magnitudes(start, model, partition)
    has_units = weights_with_units(model, partition)
    if not has_units.any() or has_own_noise(model) or partition.dim > LARGEST_FULL_COVARIANCE:
        return PriorScales(magnitude, ())
    information = _unit_information(model, partition, data, likelihood, np.where(has_units, np.inf, magnitude))
    is_known = has_units & np.isfinite(information)
    wide = information if is_population else np.maximum(magnitude, information)
    names = np.array(partition.names)[has_units & ~is_known]
    return PriorScales(np.where(is_known, wide, magnitude), tuple(names.tolist()))


def weights_with_units(model: Any, partition: Partition) -> Bool[np.ndarray, " dim"]:
    """Which stochastic weights can have a unit: those that are neither in a network nor a log noise scale.

    A weight of a network has no meaning alone: many together make a function.
    """
    free = network_positions(model) | noise_positions(model)
    return _by_weight(partition, [position not in free for position in partition.positions])


def _magnitudes(start: Any, model: Any, partition: Partition) -> np.ndarray:
    """The rms of every weight's leaf before and after the point fit, the larger; 1 where it is zero, and for noise."""
    before, after, noise = jax.tree.leaves(start), jax.tree.leaves(model), noise_positions(model)
    found = [1.0 if i in noise else max(_rms(before[i]), _rms(after[i])) for i in partition.positions]
    return _by_weight(partition, [value if value > 0.0 else 1.0 for value in found])


def _rms(leaf: Any) -> float:
    return float(np.sqrt(np.mean(np.asarray(leaf, float) ** 2))) if np.size(leaf) else 0.0


def _by_weight(partition: Partition, by_leaf: Any) -> np.ndarray:
    return np.repeat(np.asarray(by_leaf), np.asarray(partition.sizes, int))


def _unit_information(
    model: Any, partition: Partition, data: Dataset, likelihood: Likelihood, width: np.ndarray
) -> np.ndarray:
    """`sqrt(n)` times the Laplace standard deviation of every weight; infinite where the data do not determine it.

    `width` are the prior standard deviations of weights that are held by one, infinite for the others.
    """
    dtype = partition.flatten(model).dtype
    sigma = np.where(data.mask, reference_sigma(model, data, likelihood), 1.0)
    precision = np.diag(width**-2.0) + _information(model, partition, data, sigma**-2.0)
    deviation = _standard_deviations(precision, smallest=_rounding(dtype))
    return np.sqrt(data.mask.sum()) * deviation


def _information(model: Any, partition: Partition, data: Dataset, weight: np.ndarray) -> np.ndarray:
    """`J' W J` by the stochastic weights, with a weight for every cell of the data."""
    dtype, dim = partition.flatten(model).dtype, partition.dim
    first, case = distinct_cases(data)
    _, jacobian = compiled_jacobians(model, partition, data.select(first).arrays(dtype))
    by_case = np.zeros((len(first), *data.outputs.shape[1:]))
    np.add.at(by_case, case, np.where(data.mask, weight, 0.0))
    found = np.zeros((dim, dim))
    for rows, cells in zip(np.asarray(jacobian, float).reshape(len(first), -1, dim), by_case, strict=True):
        found += rows.T @ (cells.reshape(-1, 1) * rows)
    return found


def _rounding(dtype: Any) -> float:
    """Relative precision below which a direction of the weights cannot be told from one without information."""
    return max(float(jnp.finfo(dtype).eps), 1e-12)


def _standard_deviations(precision: np.ndarray, *, smallest: float) -> np.ndarray:
    """Marginal standard deviations of a normal; infinite for a weight that takes part in a direction without precision.

    Directions are judged in units of every weight's own precision: below the fraction `smallest` they have none.
    """
    scale = np.sqrt(np.diag(precision))
    seen = np.isfinite(scale) & (scale > 0.0)
    deviation = np.full(len(scale), np.inf)
    if not seen.any():
        return deviation
    inside = precision[np.ix_(seen, seen)] / np.outer(scale[seen], scale[seen])
    values, vectors = np.linalg.eigh(inside)
    is_open = values < smallest * len(values)
    variance = (vectors[:, ~is_open] ** 2 / values[~is_open]).sum(1)
    takes_part = (vectors[:, is_open] ** 2).sum(1) > SMALLEST_PART
    deviation[seen] = np.where(takes_part, np.inf, np.sqrt(variance) / scale[seen])
    return deviation


def penalty_shift(
    model: Any, partition: Partition, data: Dataset, likelihood: Likelihood, *, penalty: float, units: Any = None
) -> float:
    """By how many standard errors a penalty moved the point estimate, rms over the stochastic weights.

    The estimate balances the misfit's gradient by the penalty's, g; a Newton step `(2 J' W J)^-1 g` undoes the penalty,
    with W the misfit's weights. Its length is measured by the likelihood's information.
    """
    every = jax.tree.leaves(jax.tree.map(lambda leaf: 1.0 if eqx.is_inexact_array(leaf) else 0.0, model))
    if units is not None:
        real = [i for i, leaf in enumerate(jax.tree.leaves(model)) if eqx.is_inexact_array(leaf)]
        for place, unit in zip(real, jax.tree.leaves(units), strict=True):
            every[place] = unit
    noise = noise_positions(model)
    unit = _by_weight(partition, [every[i] for i in partition.positions])
    free = _by_weight(partition, [i not in noise for i in partition.positions])
    gradient = (2.0 * penalty * np.asarray(partition.flatten(model), float) / unit**2)[free]
    spread = np.broadcast_to(output_spread(data), data.outputs.shape)
    curvature = _information(model, partition, data, 2.0 / (spread**2 * data.mask.sum()))[np.ix_(free, free)]
    sigma = np.where(data.mask, reference_sigma(model, data, likelihood), 1.0)
    information = _information(model, partition, data, sigma**-2.0)[np.ix_(free, free)]
    scale = np.sqrt(np.where(np.diag(curvature) > 0.0, np.diag(curvature), np.inf))
    inverse = np.linalg.pinv(curvature / np.outer(scale, scale), rcond=_rounding(partition.flatten(model).dtype))
    step = inverse @ (gradient / scale) / scale
    return float(np.sqrt(step @ information @ step / max(len(step), 1)))
