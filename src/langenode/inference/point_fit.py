"""The point the sampler starts from: maximum likelihood, and Gauss-Newton references about it.

Algorithm 1, line 1. The reference says where and how wide the chain is without control; it must be near enough that the
control has little to do, and is never so good that the sampler would have nothing to prove: per weight scales for
`population`, the Laplace covariance for `posterior`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float
from langenode.data import Batch, Dataset
from langenode.inference.likelihood import Likelihood
from langenode.inference.partition import Partition
from langenode.inference.priors import GaussianPrior
from langenode.models import Forwards, has_own_noise
from langenode.posteriors import Reference
from langenode.samplers.gauss_newton import has_forward_mode

# Above this many weights the Laplace covariance is kept as its diagonal.
LARGEST_FULL_COVARIANCE = 256
# Independent weights of the population's reference spread the outputs at most so many times as widely as the data are.
MOST_REFERENCE_SPREAD = 2.0
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
) -> PointFit:
    """Least squares over all observed cells, each output in units of its spread: Adam, then L-BFGS.

    Adam finds the basin; L-BFGS the bottom of it, and is kept only where it lowered the loss and stayed finite.
    `penalty` times the squared weights is added, for models with more weights than data. A model with noise of its own
    has its transition likelihood maximised.
    """
    import optax  # lazy, like every import that not all users need

    given, static = eqx.partition(model, eqx.is_inexact_array)
    # In the widest precision that JAX is set to: a line search ends where rounding begins.
    dtype = jnp.result_type(float)
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), given)
    misfit = _transition_misfit(data, dtype) if has_own_noise(model) else _squared_misfit(data, dtype)

    def loss(params):
        value = misfit(eqx.combine(params, static))
        return value + penalty * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

    schedule = optax.cosine_decay_schedule(learning_rate, max(num_adam, 1), alpha=0.05)
    adam = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))
    params, losses = _minimise(loss, params, adam, num_adam)
    refined, more = _minimise(loss, params, optax.lbfgs(), num_lbfgs)
    if len(more) and np.isfinite(float(loss(refined))) and float(loss(refined)) <= float(loss(params)):
        params, losses = refined, np.concatenate([losses, more])
    if not np.isfinite(float(loss(params))):
        raise FloatingPointError(
            "the maximum-likelihood fit must stay finite; its loss did not; scale the data, add solver substeps "
            "or lower mle.learning_rate"
        )
    params = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), params, given)
    return PointFit(_with_noise_of_residuals(eqx.combine(params, static), data), losses)


def _squared_misfit(data: Dataset, dtype: Any) -> Callable[[Any], Array]:
    """Mean square of the residuals but for a constant: members that differ in outputs alone are one, their mean."""
    common = replicates_mean(data)
    batch = common.cases.arrays(dtype)
    weight = jnp.where(batch.mask, jnp.asarray(common.num_members, dtype)[:, None, None], 0.0)
    weight = weight / jnp.asarray(_output_spread(data) ** 2 * data.mask.sum(), dtype)

    def misfit(model: Any) -> Array:
        fitted = jax.vmap(model)(batch.times, batch.inputs, batch.initial)
        return jnp.sum(weight * jnp.where(batch.mask, batch.outputs - fitted, 0.0) ** 2)

    return misfit


def _transition_misfit(data: Dataset, dtype: Any) -> Callable[[Any], Array]:
    """Minus the mean log density of a reading given the one before."""
    every = max(1, data.num_trajectories // MOST_TRANSITION_TRAJECTORIES)
    batch = data.select(slice(None, None, every)).arrays(dtype)

    def misfit(model: Any) -> Array:
        return -jnp.mean(jax.vmap(model.transition_log_density)(batch.times, batch.inputs, batch.outputs, batch.mask))

    return misfit


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

    The latter is zero where there are no replicates to tell it.
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
    rms = np.maximum(rms, 1e-3 * _output_spread(data))
    return eqx.tree_at(lambda m: m.log_noise, model, jnp.asarray(np.log(rms), model.log_noise.dtype))


def _minimise(loss: Callable, params: Any, optimiser: Any, num_steps: int):
    """Run an Optax optimiser for a number of steps in one compiled loop."""
    import optax

    if num_steps == 0:
        return params, np.zeros(0)

    @jax.jit
    def run(params):
        def step(carry, _):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params)
            updates, state = optimiser.update(gradient, state, params, value=value, grad=gradient, value_fn=loss)
            return (optax.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, optimiser.init(params)), length=num_steps)
        return params, losses

    params, losses = run(params)
    return params, np.asarray(losses)


def _output_spread(data: Dataset) -> np.ndarray:
    count = np.maximum(data.mask.sum((0, 1)), 1)
    mean = data.outputs.sum((0, 1)) / count
    spread = np.sqrt((np.where(data.mask, data.outputs - mean, 0.0) ** 2).sum((0, 1)) / count)
    return np.where(spread > 0.0, spread, 1.0)


def fitted_outputs(model: Any, data: Dataset) -> np.ndarray:
    """The model's outputs for every trajectory, from its own start."""
    dtype = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    batch = data.arrays(dtype)
    run = eqx.filter_jit(lambda m, b: jax.vmap(m)(b.times, b.inputs, b.initial))
    return np.asarray(run(model, batch), float)


def rms_error(model: Any, data: Dataset) -> float:
    """Root mean square of the residuals of what replicates have in common, their mean; infinite where it diverges."""
    common = replicates_mean(data)
    residual = np.where(common.cases.mask, common.cases.outputs - fitted_outputs(model, common.cases), 0.0)
    error = float(np.sqrt((residual**2).sum() / max(common.cases.mask.sum(), 1)))
    return error if np.isfinite(error) else np.inf


def trajectory_jacobians(
    model: Any, partition: Partition, batch: Batch
) -> tuple[Float[Array, "traj time out"], Float[Array, "traj time out dim"]]:
    """Residuals (zero in missing cells) and the outputs' derivatives by the stochastic weights."""
    weights = partition.flatten(model)

    @Forwards
    def outputs(w, times, inputs, initial):
        return partition.combine(model, w)(times, inputs, initial)

    def one(times, inputs, initial):
        # Forward mode costs one pass a weight, reverse mode one a cell: take the fewer.
        cells = times.shape[0] * batch.outputs.shape[-1]
        is_forward = weights.shape[0] <= cells and has_forward_mode(outputs, weights, times, inputs, initial)
        derivative = jax.jacfwd(outputs) if is_forward else jax.jacrev(outputs)
        return outputs(weights, times, inputs, initial), derivative(weights, times, inputs, initial)

    fitted, jacobian = jax.vmap(one)(batch.times, batch.inputs, batch.initial)
    residual = jnp.where(batch.mask, batch.outputs - fitted, 0.0)
    return residual, jnp.where(batch.mask[..., None], jacobian, 0.0)


def population_reference(
    model: Any, partition: Partition, data: Dataset, prior: GaussianPrior, *, relative_noise: float = 0.05
) -> Reference:
    """Mean and scale of each weight between units, from one ridge step a trajectory about the MLE.

    `w_j = w + (J'J / s^2 + 1/prior^2)^-1 J' r_j / s^2` with s the fraction `relative_noise` of the data's spread
    about the MLE. Trajectories of one unit are solved together. Only the diagonal is used: a full covariance would
    nearly be the answer for a linear model, and prove nothing about the sampler. Weights that the data do not see get
    a tenth of the prior's scale at least. Where weights compensate each other, independent ones of these scales would
    spread the outputs hundreds of times too widely: all scales are then lowered until it is twice.
    """
    dtype, dim = prior.mean.dtype, partition.dim
    cases, case = distinct_cases(data)  # members of a case share their derivatives
    _, jacobian = eqx.filter_jit(trajectory_jacobians)(model, partition, data.select(cases).arrays(dtype))
    jacobian = np.asarray(jacobian, float).reshape(len(cases), -1, dim)
    residual = np.where(data.mask, data.outputs - fitted_outputs(model, data), 0.0).reshape(data.num_trajectories, -1)
    noise = relative_noise * np.sqrt((residual**2).sum() / max(data.mask.sum(), 1)) + 1e-12
    right = np.zeros((data.num_units, dim))
    for number in range(len(cases)):
        np.add.at(right, data.unit[case == number], residual[case == number] @ jacobian[number] / noise**2)
    prior_scale = np.asarray(prior.scale, float)
    steps = _solve_by_unit(jacobian / noise, case, data.unit, prior_scale**-2.0, right)
    centre = np.asarray(partition.flatten(model), float) + steps.mean(0)
    scale = np.maximum(steps.std(0), 0.1 * prior_scale)
    scale = scale * min(1.0, MOST_REFERENCE_SPREAD / max(_relative_spread(jacobian, case, residual, scale), 1e-12))
    return Reference(jnp.asarray(centre, dtype), jnp.asarray(scale, dtype))


def _relative_spread(jacobian: np.ndarray, case: np.ndarray, residual: np.ndarray, scale: np.ndarray) -> float:
    """How widely independent weights of these scales would spread the outputs, over the data's spread about the MLE."""
    variances = np.array([((rows * scale) ** 2).sum() for rows in jacobian])
    return float(np.sqrt(variances[case].sum() / max((residual**2).sum(), 1e-300)))


def _solve_by_unit(
    jacobian: np.ndarray, case: np.ndarray, unit: np.ndarray, precision: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Normal equations of every unit, solved once for all units that were seen in the same cases."""
    groups: dict[tuple[int, ...], list[int]] = {}
    by_unit = np.split(case[np.argsort(unit, kind="stable")], np.cumsum(np.bincount(unit))[:-1])
    for number, cases in enumerate(by_unit):
        groups.setdefault(tuple(sorted(cases.tolist())), []).append(number)
    steps = np.empty_like(right)
    for cases, units in groups.items():
        normal = np.diag(precision) + sum(jacobian[c].T @ jacobian[c] for c in cases)
        steps[units] = np.linalg.solve(normal, right[units].T).T
    return steps


def laplace_reference(
    model: Any,
    partition: Partition,
    data: Dataset,
    prior: GaussianPrior,
    likelihood: Likelihood,
    *,
    temperature: float = 1.0,
    num_iterations: int = 50,
) -> Reference:
    """The Gauss-Newton (Laplace) law at the posterior's mode: `(J' J / (sigma^2 temperature) + 1/prior^2)^-1`.

    Damped Gauss-Newton iterations first move the MLE to the mode. An inferred noise scale is held at the
    MLE's residuals' rms in the curvature of the other weights; its own information is two a cell, and its mean the
    log of the mode's residuals' rms drawn to the prior accordingly.
    """
    dtype = prior.mean.dtype
    batch = data.arrays(dtype)
    sigma = np.where(data.mask, _reference_sigma(model, data, likelihood), 1.0)
    inverse = np.where(data.mask, 1.0 / (sigma**2 * temperature), 0.0)
    prior_mean, precision = np.asarray(prior.mean, float), np.asarray(prior.scale, float) ** -2.0

    @eqx.filter_jit
    def linearise(model, weights, batch):
        return trajectory_jacobians(partition.combine(model, weights), partition, batch)

    def curvature(weights):
        linear = linearise(model, jnp.asarray(weights, dtype), batch)
        objective, gradient, hessian = _normal_equations(*linear, inverse)
        offset = weights - prior_mean
        objective += 0.5 * (precision * offset**2).sum()
        return objective, gradient - precision * offset, hessian + np.diag(precision)

    mean, hessian = _mode(curvature, np.asarray(partition.flatten(model), float), num_iterations)
    if likelihood.sigma is None:
        final = partition.combine(model, jnp.asarray(mean, dtype))
        information, log_sigma = _noise_information(partition, data, _reference_sigma(final, data, likelihood))
        information = information / temperature
        # The least squares above do not see the noise scale: its mode is that of the residuals, drawn to the prior.
        mode = (information * log_sigma + precision * prior_mean) / (information + precision)
        mean = np.where(information > 0.0, mode, mean)
        hessian = hessian + np.diag(information)
    return _gaussian(mean, hessian, dtype)


def _normal_equations(
    residual: Float[Array, "traj time out"], jacobian: Float[Array, "traj time out dim"], inverse: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """`r' S^-1 r / 2`, `J' S^-1 r` and `J' S^-1 J`, in 64 bits: in 32 the small curvatures drown in the large ones."""
    dim = jacobian.shape[-1]
    objective, gradient, hessian = 0.0, np.zeros(dim), np.zeros((dim, dim))
    for r, j, weight in zip(np.asarray(residual), np.asarray(jacobian), inverse, strict=True):
        values, rows, weight = r.ravel().astype(float), j.reshape(-1, dim).astype(float), weight.ravel()
        objective += 0.5 * float((weight * values**2).sum())
        gradient += rows.T @ (weight * values)
        hessian += rows.T @ (weight[:, None] * rows)
    return objective, gradient, hessian


def _mode(curvature: Callable, weights: np.ndarray, num_iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Damped Gauss-Newton, until a step would gain less than a millionth of a nat: the mode and the Hessian there."""
    objective, gradient, hessian = curvature(weights)
    damping = 0.0
    for _ in range(num_iterations):
        step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), gradient)
        if gradient @ step < 1e-6:
            break
        new = curvature(weights + step)
        if new[0] <= objective:
            weights, damping = weights + step, damping / 10.0
            objective, gradient, hessian = new
        else:
            damping = max(10.0 * damping, 1e-4)
    return weights, hessian


def _gaussian(mean: np.ndarray, hessian: np.ndarray, dtype: Any) -> Reference:
    """The law of that mean and precision; the covariance's symmetric root is `s (I + F F')`."""
    if len(mean) > LARGEST_FULL_COVARIANCE:
        return Reference(jnp.asarray(mean, dtype), jnp.asarray(np.sqrt(np.diag(np.linalg.inv(hessian))), dtype))
    values, vectors = np.linalg.eigh(hessian)
    roots = values**-0.5
    factor = vectors * np.sqrt(roots / roots.min() - 1.0)
    scale = np.full(len(mean), roots.min())
    return Reference(*(jnp.asarray(part, dtype) for part in (mean, scale, factor)))


def _reference_sigma(model: Any, data: Dataset, likelihood: Likelihood) -> np.ndarray:
    if likelihood.sigma is not None:
        # Of a mixture, the widest mode: the reference must cover the posterior.
        return np.asarray(likelihood.sigma, float).max(0)
    residual = np.where(data.mask, data.outputs - fitted_outputs(model, data), 0.0)
    rms = np.sqrt((residual**2).sum((0, 1)) / np.maximum(data.mask.sum((0, 1)), 1))
    return np.broadcast_to(np.maximum(rms, 1e-8), data.outputs.shape)


def _noise_information(partition: Partition, data: Dataset, sigma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fisher information of an inferred log noise scale, two for each observed cell of its output, and its estimate.

    Both are zero at the other weights.
    """
    information, log_sigma = np.zeros(partition.dim), np.zeros(partition.dim)
    for position, name in enumerate(partition.names):
        if name.startswith("log_noise"):
            output = int(name.split("[")[1].rstrip("]"))
            information[position] = 2.0 * data.mask[..., output].sum()
            log_sigma[position] = np.log(sigma[0, 0, output])
    return information, log_sigma
