"""Gaussian references of the weights about the point fit, by Gauss-Newton.

A reference says where and how wide the chain is without control. It must be near enough that the control has little to
do, and is never so good that the sampler would have nothing to prove: scales of single weights for `population`, the
Laplace covariance for `posterior`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._compiling import quick_jit
from langenode._types import Array, Float
from langenode.data import Batch, Dataset, in_parts
from langenode.inference.likelihood import Likelihood
from langenode.inference.noise import noise_scale
from langenode.inference.partition import Partition
from langenode.inference.point_fit import distinct_cases, fitted_outputs, output_spread
from langenode.inference.priors import GaussianPrior
from langenode.models import Forwards
from langenode.posteriors import Reference
from langenode.samplers.gauss_newton import has_forward_mode
from langenode.samplers.modes import Quadratic, find_mode

# Above this many weights the Laplace covariance is kept as its diagonal.
LARGEST_FULL_COVARIANCE = 256
# Upper bound on (spread of the outputs under the population's reference) / (spread of the data).
MOST_REFERENCE_SPREAD = 2.0
# Iterations of EM for the scales of weights seen through noise.
NUM_EM = 100
# Residuals of a perfect fit are taken as this fraction of the output's spread.
SMALLEST_RELATIVE_RMS = 1e-8


def trajectory_jacobians(
    model: Any, partition: Partition, batch: Batch
) -> tuple[Float[Array, "traj time out"], Float[Array, "traj time out dim"]]:
    """Residuals (zero in missing cells) and the outputs' derivatives by the stochastic weights."""
    weights = partition.flatten(model)

    @Forwards
    def outputs(w, times, inputs, initial):
        return partition.combine(model, w)(times, inputs, initial)

    def one(times, inputs, initial):
        # Forward mode costs one pass per weight, reverse mode one per cell: take the fewer.
        cells = times.shape[0] * batch.outputs.shape[-1]
        is_forward = weights.shape[0] <= cells and has_forward_mode(outputs, weights, times, inputs, initial)
        derivative = jax.jacfwd(outputs) if is_forward else jax.jacrev(outputs)
        return outputs(weights, times, inputs, initial), derivative(weights, times, inputs, initial)

    fitted: Array
    jacobian: Array
    fitted, jacobian = jax.vmap(one)(batch.times, batch.inputs, batch.initial)
    residual = jnp.where(batch.mask, batch.outputs - fitted, 0.0)
    return residual, jnp.where(batch.mask[..., None], jacobian, 0.0)


_compiled_jacobians = quick_jit(trajectory_jacobians)


def compiled_jacobians(
    model: Any, partition: Partition, batch: Batch
) -> tuple[Float[np.ndarray, "traj time out"], Float[np.ndarray, "traj time out dim"]]:
    """`trajectory_jacobians` by the program of the batch's size class."""
    num, num_times = batch.times.shape
    found = _compiled_jacobians(model, partition, batch.in_class())
    residual, jacobian = (np.asarray(part)[:num, :num_times] for part in found)
    return residual, jacobian


def population_reference(
    model: Any,
    partition: Partition,
    data: Dataset,
    prior: GaussianPrior,
    *,
    relative_noise: float = 0.05,
    noise: np.ndarray | None = None,
) -> Reference:
    """Mean and scale of each weight between units, from one ridge step per unit about the MLE.

    `w_j = w + (J'J / s^2 + 1/prior^2)^-1 J' r_j / s^2` with s the fraction `relative_noise` of the data's spread
    about the MLE. Trajectories of one unit are solved together. Only the diagonal is used: a full covariance would
    nearly be the answer for a linear model, and prove nothing about the sampler. Weights that the data do not see get
    a tenth of the prior's scale at least. Where weights compensate each other, independent ones of these scales would
    spread the outputs hundreds of times too widely: all scales are then lowered until the factor is two.

    Where the readings' `noise` is known, one standard deviation per output, part of the steps is noise: the scales are
    then those of maximum likelihood for independent normal weights (`_noise_free_scale`).
    """
    dtype, dim = prior.mean.dtype, partition.dim
    cases, case = distinct_cases(data)  # members of a case share their derivatives
    _, jacobian = compiled_jacobians(model, partition, data.select(cases).arrays(dtype))
    jacobian = np.asarray(jacobian, float).reshape(len(cases), -1, dim)
    residual = np.where(data.mask, data.outputs - fitted_outputs(model, data), 0.0).reshape(data.num_trajectories, -1)
    ridge = relative_noise * np.sqrt((residual**2).sum() / max(data.mask.sum(), 1)) + 1e-12
    prior_scale = np.asarray(prior.scale, float)
    right = _right_sides(jacobian, residual, case, data.unit, ridge**2)
    steps = _solve_by_unit(jacobian / ridge, case, data.unit, prior_scale**-2.0, right)[0]
    centre = np.asarray(partition.flatten(model), float) + steps.mean(0)
    scale = np.maximum(steps.std(0), 0.1 * prior_scale)
    if noise is not None:
        cells = np.broadcast_to(np.maximum(noise, ridge), data.outputs.shape[1:]).ravel()
        scale = _noise_free_scale(jacobian / cells[:, None], residual / cells, case, data.unit, scale)
    scale = scale * min(1.0, MOST_REFERENCE_SPREAD / max(_relative_spread(jacobian, case, residual, scale), 1e-12))
    return Reference(placed(centre, dtype), placed(scale, dtype))


def _relative_spread(jacobian: np.ndarray, case: np.ndarray, residual: np.ndarray, scale: np.ndarray) -> float:
    """How widely independent weights of these scales would spread the outputs, over the data's spread about the MLE."""
    variances = np.array([((rows * scale) ** 2).sum() for rows in jacobian])
    return float(np.sqrt(variances[case].sum() / max((residual**2).sum(), 1e-300)))


def _noise_free_scale(
    jacobian: np.ndarray, residual: np.ndarray, case: np.ndarray, unit: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Standard deviations between units of independent normal weights, by maximum likelihood (EM) from `scale`.

    Jacobian and residuals are in units of their noise. Weights that the data do not see keep the scale they have.
    """
    right = _right_sides(jacobian, residual, case, unit, 1.0)
    for _ in range(NUM_EM):
        means, variances = _solve_by_unit(jacobian, case, unit, scale**-2.0, right)
        scale = np.maximum(np.sqrt((means**2 + variances).mean(0)), 1e-6 * scale)
    return scale


def _right_sides(
    jacobian: np.ndarray, residual: np.ndarray, case: np.ndarray, unit: np.ndarray, variance: float
) -> np.ndarray:
    """`J' r / variance` of every unit, over all its trajectories."""
    right = np.zeros((int(unit.max()) + 1, jacobian.shape[-1]))
    for number, rows in enumerate(jacobian):
        np.add.at(right, unit[case == number], residual[case == number] @ rows / variance)
    return right


def _solve_by_unit(
    jacobian: np.ndarray, case: np.ndarray, unit: np.ndarray, precision: np.ndarray, right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations of every unit, solved once for all units that were seen in the same cases; and the variances."""
    groups: dict[tuple[int, ...], list[int]] = {}
    by_unit = np.split(case[np.argsort(unit, kind="stable")], np.cumsum(np.bincount(unit))[:-1])
    for number, cases in enumerate(by_unit):
        groups.setdefault(tuple(sorted(cases.tolist())), []).append(number)
    steps, variances = np.empty_like(right), np.empty_like(right)
    for cases, units in groups.items():
        normal = np.diag(precision) + sum(jacobian[c].T @ jacobian[c] for c in cases)
        steps[units] = np.linalg.solve(normal, right[units].T).T
        variances[units] = np.diag(np.linalg.inv(normal))
    return steps, variances


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
    """The normal at the posterior's mode with covariance `(J' J / (sigma^2 temperature) + 1/prior^2)^-1` (Laplace).

    Damped Gauss-Newton iterations first move the MLE to the mode. In the curvature of the other weights an inferred
    noise scale is held at the rms of the MLE's residuals. Its own information is two per cell, and its mean the log of
    the rms of the mode's residuals, drawn to the prior accordingly.
    """
    dtype = prior.mean.dtype
    sigma = np.where(data.mask, reference_sigma(model, data, likelihood), 1.0)
    inverse = np.where(data.mask, 1.0 / (sigma**2 * temperature), 0.0)
    # Derivatives of all readings at once would need more memory than the data themselves, times the weights.
    parts = [(part.arrays(dtype), inverse[rows, : part.num_times]) for rows, part in in_parts(data)]
    prior_mean, precision = np.asarray(prior.mean, float), np.asarray(prior.scale, float) ** -2.0

    def quadratic(weights: np.ndarray) -> Quadratic:
        current = partition.combine(model, placed(weights, dtype))
        value, gradient, hessian = 0.0, np.zeros(partition.dim), np.zeros((partition.dim, partition.dim))
        for batch, share in parts:
            found = _normal_equations(*compiled_jacobians(current, partition, batch), share)
            value, gradient, hessian = value + found[0], gradient + found[1], hessian + found[2]
        offset = weights - prior_mean
        value += 0.5 * float((precision * offset**2).sum())
        return Quadratic(value, gradient - precision * offset, hessian + np.diag(precision))

    start = np.asarray(partition.flatten(model), float)
    mean, hessian = find_mode(quadratic, start, num_iterations=num_iterations)
    if likelihood.sigma is None:
        final = partition.combine(model, placed(mean, dtype))
        sigma = reference_sigma(final, data, likelihood)
        information, log_sigma = _noise_information(model, partition, data, sigma)
        information = information / temperature
        # The least squares above do not see the noise scale: its mode is that of the residuals, drawn to the prior.
        mode = (information * log_sigma + precision * prior_mean) / (information + precision)
        mean = np.where(information > 0.0, mode, mean)
        hessian = hessian + np.diag(information)
    return _gaussian(mean, hessian, np.asarray(prior.scale, float), dtype)


def _normal_equations(
    residual: Float[np.ndarray, "traj time out"], jacobian: Float[np.ndarray, "traj time out dim"], inverse: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """`r' S^-1 r / 2`, `J' S^-1 r` and `J' S^-1 J`, in 64 bits: in 32 the small curvatures drown in the large ones."""
    dim = jacobian.shape[-1]
    objective, gradient, hessian = 0.0, np.zeros(dim), np.zeros((dim, dim))
    for r, j, weight in zip(residual, jacobian, inverse, strict=True):
        values, rows, weight = r.ravel().astype(float), j.reshape(-1, dim).astype(float), weight.ravel()
        objective += 0.5 * float((weight * values**2).sum())
        gradient += rows.T @ (weight * values)
        hessian += rows.T @ (weight[:, None] * rows)
    return objective, gradient, hessian


def _gaussian(mean: np.ndarray, hessian: np.ndarray, unit: np.ndarray, dtype: Any) -> Reference:
    """The normal of that mean and precision. With weights in units `unit`, its root is symmetric: `s (I + F F')`."""
    if len(mean) > LARGEST_FULL_COVARIANCE:
        return Reference(placed(mean, dtype), placed(np.sqrt(np.diag(np.linalg.inv(hessian))), dtype))
    values, vectors = np.linalg.eigh(hessian * np.outer(unit, unit))
    roots = values**-0.5
    factor = vectors * np.sqrt(roots / roots.min() - 1.0)
    return Reference(*(placed(part, dtype) for part in (mean, unit * roots.min(), factor)))


def reference_sigma(model: Any, data: Dataset, likelihood: Likelihood) -> np.ndarray:
    """The noise scale of every cell; where it is inferred, the rms of the model's residuals."""
    if likelihood.sigma is not None:
        # Of a mixture, the widest mode: the reference must cover the posterior.
        return np.sqrt(likelihood.mean_squares()).max(0)
    fitted = fitted_outputs(model, data)
    if likelihood.levels is not None:
        levels = likelihood.levels
        return np.asarray(noise_scale(model.log_noise[None], jnp.asarray(fitted)[None], levels)[0], float)
    residual = np.where(data.mask, data.outputs - fitted, 0.0)
    rms = np.sqrt((residual**2).sum((0, 1)) / np.maximum(data.mask.sum((0, 1)), 1))
    return np.broadcast_to(np.maximum(rms, SMALLEST_RELATIVE_RMS * output_spread(data)), data.outputs.shape)


def _noise_information(
    model: Any, partition: Partition, data: Dataset, sigma: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fisher information of an inferred log noise scale, two per observed cell of its output, and its estimate.

    Both are zero at the other weights.
    """
    information, log_sigma = np.zeros(partition.dim), np.zeros(partition.dim)
    where = _noise_weights(model, partition)
    if where is None:
        return information, log_sigma
    parts = np.asarray(model.log_noise, float)
    if parts.ndim == 1:
        information[where] = 2.0 * data.mask.sum((0, 1))
        log_sigma[where] = np.log(sigma[0, 0])
        return information, log_sigma
    # Of a constant and a proportional part each has the information of its share in the variance; both stay as fitted.
    constant = np.where(data.mask, np.exp(2.0 * parts[0]) / sigma**2, 0.0)
    proportional = np.where(data.mask, 1.0 - constant, 0.0)
    shares = np.stack([(constant**2).sum((0, 1)), (proportional**2).sum((0, 1))])
    information[where] = 2.0 * np.ravel(shares)
    log_sigma[where] = np.ravel(parts)
    return information, log_sigma


def _noise_weights(model: Any, partition: Partition) -> slice | None:
    """Where the log noise scales stand among the stochastic weights; None where they are not stochastic."""
    (position,) = Partition.of(model, lambda m: m.log_noise).positions
    if position not in partition.positions:
        return None
    number = partition.positions.index(position)
    begin = sum(partition.sizes[:number])
    return slice(begin, begin + partition.sizes[number])
