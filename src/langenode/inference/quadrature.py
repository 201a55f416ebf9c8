"""The moments and the evidence of a posterior of one or two weights, by sums over a grid: what samplers are held to."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from langenode._types import Array, Float
from langenode.posteriors import Density

MOST_WEIGHTS = 2
# Standard deviations of the box to either side, points along each, and how often the box is fitted anew.
REACH, NUM_POINTS, NUM_BOXES = 10.0, 101, 3
# By so much the density must have fallen at the edge of the box, in nats.
LEAST_FALL = 15.0


class QuadratureError(ValueError):
    """What must hold of a posterior that is summed over a grid, what was found and what to do."""


class GridMoments(NamedTuple):
    """Mean and covariance in whitened coordinates, the log-evidence, and its change when every second point goes.

    The sum of equal steps converges faster than any power of the step, so that change is far above the error itself.
    """

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float
    error: float


def integrate(density: Density, start: Float[Array, " dim"]) -> GridMoments:
    """Sums over a grid about the mode that is found from `start`; a mode elsewhere would not be seen."""
    if not 1 <= density.dim <= MOST_WEIGHTS:
        raise QuadratureError(
            f"a grid needs one or two weights; there are {density.dim}; compare with a sampler such as nuts instead"
        )
    centre, covariance = _mode(density, start)
    steps = np.linspace(-REACH, REACH, NUM_POINTS)
    units = np.array(list(itertools.product(steps, repeat=density.dim)))
    for _ in range(NUM_BOXES - 1):
        found, _ = _sums(density, centre, covariance, units)
        centre, covariance = found.mean, found.covariance
    found, fall = _sums(density, centre, covariance, units)
    if fall < LEAST_FALL:
        raise QuadratureError(
            f"a posterior must vanish at the edge of its grid; it falls by {fall:.1f} nats only, so it is far from "
            "normal; compare with a sampler such as nuts instead"
        )
    return found


def _sums(density: Density, centre: np.ndarray, covariance: np.ndarray, units: np.ndarray) -> tuple[GridMoments, float]:
    """The moments over one box, and by how much the log density falls to its edge."""
    root = np.linalg.cholesky(covariance)
    points = centre + units @ root.T
    logs = np.asarray(_log_posteriors(density, jnp.asarray(points, density.dtype)), float)
    fall = logs.max() - logs[np.any(np.abs(units) >= REACH, axis=1)].max()
    return _moments(points, units, logs, np.linalg.slogdet(root)[1]), float(fall)


@eqx.filter_jit
def _log_posteriors(density: Density, points: Float[Array, "point dim"]) -> Float[Array, " point"]:
    return jax.lax.map(density.log_posterior, points, batch_size=1024)


def _mode(density: Density, start: Float[Array, " dim"]) -> tuple[np.ndarray, np.ndarray]:
    """A mode, and the inverse of the curvature there."""

    @eqx.filter_jit
    def value_and_slope(density: Density, z: Array) -> tuple[Array, Array]:
        return jax.value_and_grad(lambda z: -density.log_posterior(z))(z)

    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = value_and_slope(density, jnp.asarray(z, density.dtype))
        return float(value), np.asarray(slope, float)

    mode = minimize(objective, np.asarray(start, float), jac=True, method="BFGS").x
    curvature = jax.jit(jax.hessian(lambda z: -density.log_posterior(z)))(jnp.asarray(mode, density.dtype))
    values, vectors = np.linalg.eigh(np.asarray(curvature, float))
    if not np.all(np.isfinite(values)):
        raise QuadratureError("a posterior must be finite at its mode; it is not; check the data and the prior")
    # The prior alone has curvature one: anything flatter is an inflection, not the width of the mode.
    return mode, (vectors / np.maximum(values, 1.0)) @ vectors.T


def _moments(points: np.ndarray, units: np.ndarray, logs: np.ndarray, log_volume: float) -> GridMoments:
    dim, step = units.shape[1], 2.0 * REACH / (NUM_POINTS - 1)
    log_evidence = logsumexp(logs) + dim * np.log(step) + log_volume
    is_coarse = np.all(np.round((units + REACH) / step).astype(int) % 2 == 0, axis=1)
    coarse = logsumexp(logs[is_coarse]) + dim * np.log(2.0 * step) + log_volume
    shares = np.exp(logs - logsumexp(logs))
    mean = shares @ points
    away = points - mean
    covariance = (shares[:, None] * away).T @ away
    return GridMoments(mean, covariance, float(log_evidence), float(abs(log_evidence - coarse)))
