"""The moments and the evidence of a posterior of one or two weights, by sums over a grid: the truth for samplers."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float
from langenode.posteriors import Density
from langenode.samplers.modes import Quadratic, find_mode

MOST_WEIGHTS = 2
# Half-width of the box in standard deviations, and how often the box is fitted anew.
REACH, NUM_BOXES = 10.0, 3
# Points along each axis, by the number of weights. The sum of a smooth density over steps of h standard deviations
# has an error of about exp(-2 pi^2 / h^2): with h = 0.4 that is rounding, and a point may cost a thousand trajectories.
NUM_POINTS = {1: 101, 2: 51}
WIDER = 2
LEAST_FALL = 15.0  # nats by which the log density must have fallen at the edge of the box
NUM_NEWTON = 200


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


def integrate(
    density: Density, start: Float[Array, " dim"], judged: Callable[[Array], Array] | None = None
) -> GridMoments:
    """Sums over a grid about the mode that is found from `start`; a mode elsewhere would not be seen.

    With `judged` the moments are those of that function of the whitened weights, in as many numbers.
    """
    if not 1 <= density.dim <= MOST_WEIGHTS:
        raise QuadratureError(
            f"a grid needs one or two weights; there are {density.dim}; compare with a sampler such as nuts instead"
        )
    centre, covariance = _mode(density, start)
    steps = np.linspace(-REACH, REACH, NUM_POINTS[density.dim])
    for _ in range(NUM_BOXES - 1):  # which need only find their place
        found, _ = _sums(density, centre, covariance, steps[::2])
        centre, covariance = found.mean, found.covariance
    found, fall = _sums(density, centre, covariance, steps, judged)
    if fall < LEAST_FALL:  # a skewed one, as within bounds, may need a wider box, with as small steps
        finer = np.linspace(-REACH, REACH, WIDER * (len(steps) - 1) + 1)
        found, fall = _sums(density, centre, WIDER**2 * covariance, finer, judged)
    if fall < LEAST_FALL:
        raise QuadratureError(
            f"a posterior must vanish at the edge of its grid; it falls by {fall:.1f} nats only, so it is far from "
            "normal; compare with a sampler such as nuts instead"
        )
    return found


def _sums(
    density: Density,
    centre: np.ndarray,
    covariance: np.ndarray,
    steps: np.ndarray,
    judged: Callable[[Array], Array] | None = None,
) -> tuple[GridMoments, float]:
    """The moments over one box, and by how much the log density falls to its edge."""
    units = np.array(list(itertools.product(steps, repeat=density.dim)))
    root = np.linalg.cholesky(covariance)
    points = centre + units @ root.T
    logs = np.asarray(_log_posteriors(density, jnp.asarray(points, density.dtype)), float)
    fall = logs.max() - logs[np.any(np.abs(units) >= REACH, axis=1)].max()
    values = points if judged is None else np.asarray(judged(jnp.asarray(points, density.dtype)), float)
    return _moments(values, units, logs, np.linalg.slogdet(root)[1], steps[1] - steps[0]), float(fall)


@eqx.filter_jit
def _log_posteriors(density: Density, points: Float[Array, "point dim"]) -> Float[Array, " point"]:
    return jax.lax.map(density.log_posterior, points, batch_size=1024)


def _mode(density: Density, start: Float[Array, " dim"]) -> tuple[np.ndarray, np.ndarray]:
    """A mode, and the inverse of the curvature there."""

    def quadratic(z: np.ndarray) -> Quadratic:
        parts = _value_gradient_hessian(density, jnp.asarray(z, density.dtype))
        value, gradient, hessian = (np.asarray(part, float) for part in parts)
        if not all(np.all(np.isfinite(part)) for part in (value, gradient, hessian)):
            return Quadratic(np.inf, np.zeros(density.dim), np.eye(density.dim))
        # The prior alone has curvature one: anything flatter is an inflection, not the width of the mode.
        values, vectors = np.linalg.eigh(-hessian)
        return Quadratic(-float(value), gradient, (vectors * np.maximum(values, 1.0)) @ vectors.T)

    begin = np.asarray(start, float)
    if not np.isfinite(quadratic(begin).value):
        raise QuadratureError("a posterior must be finite where its mode is sought; it is not; check data and prior")
    point, curvature = find_mode(quadratic, begin, num_iterations=NUM_NEWTON)
    return point, np.linalg.inv(curvature)


@eqx.filter_jit
def _value_gradient_hessian(density: Density, z: Float[Array, " dim"]) -> tuple[Array, Array, Array]:
    value = density.log_posterior
    return value(z), jax.grad(value)(z), jax.hessian(value)(z)


def _moments(points: np.ndarray, units: np.ndarray, logs: np.ndarray, log_volume: float, step: float) -> GridMoments:
    from scipy.special import logsumexp

    dim = units.shape[1]
    log_evidence = logsumexp(logs) + dim * np.log(step) + log_volume
    is_coarse = np.all(np.round((units + REACH) / step).astype(int) % 2 == 0, axis=1)
    coarse = logsumexp(logs[is_coarse]) + dim * np.log(2.0 * step) + log_volume
    shares = np.exp(logs - logsumexp(logs))
    mean = shares @ points
    away = points - mean
    covariance = (shares[:, None] * away).T @ away
    return GridMoments(mean, covariance, float(log_evidence), float(abs(log_evidence - coarse)))
