"""Smooth curves of units in closed form: the marginal likelihood of their sizes, and the distribution of the rest.

With `y_i = Phi_i b + Psi_i xi_i + noise`, both b and xi standard normal, everything but the sizes of the features and
the noise is integrated exactly:

    S_i = s^2 I + Psi_i Psi_i^T,    B = I + sum_i Phi_i^T S_i^-1 Phi_i,    c = sum_i Phi_i^T S_i^-1 y_i
    -2 log p(y) = sum_i [y_i^T S_i^-1 y_i + log det 2 pi S_i] + log det B - c^T B^-1 c,    b | y ~ N(B^-1 c, B^-1)

Each output has sizes and noise of its own. The logarithms of both and the growth of what units add, eleven numbers,
have normal priors; they are drawn from the normal distribution about their mode and weighted by their exact posterior
density.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from langenode._compiling import quick_jit
from langenode._types import Array, Float
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.uncertainty import TRIES_PER_DRAW, chosen_places
from langenode.inference.hierarchical.units import Units
from langenode.models.smooth_curve import TYPICAL, UNCERTAINTY, Sizes, SmoothCurve
from langenode.posteriors.base import log_normal

# The prior of the noise, in units of the spread of the readings, and the least noise that is told from none.
TYPICAL_NOISE, NOISE_UNCERTAINTY, LEAST_NOISE = 0.1, 1.5, 1e-4
# Searches begin at typical sizes, there with units that differ little at first, and this far from them.
START_GROWTH, START_SPREAD, MOST_STEPS = 1.0, 0.5, 200
DIFFERENCE, SMALLEST_CURVATURE = 1e-3, 1e-3


class Probable(NamedTuple):
    """The most probable logarithms of one output's sizes and noise, and their covariance about these.

    `log_density` is the log posterior density there; common weights are integrated.
    """

    mode: Float[np.ndarray, " size"]
    covariance: Float[np.ndarray, "size size"]
    log_density: float
    has_converged: bool

    @property
    def log_evidence(self) -> float:
        """The log density of the readings, by Laplace's approximation about the mode."""
        return self.log_density + 0.5 * float(np.linalg.slogdet(2.0 * np.pi * self.covariance)[1])


class SmoothFit(NamedTuple):
    """The family at the most probable sizes, with the mean of the common weights; and what is known of every output."""

    family: Family
    outputs: list[Probable]

    @property
    def has_converged(self) -> bool:
        """Whether all searches have."""
        return all(one.has_converged for one in self.outputs)


def fit_smooth(family: Family, units: Units, *, seed: int) -> SmoothFit:
    """Find the most probable sizes and noise of every output, and the mean of the common weights there."""
    model = family.model
    found = [most_probable(model, units, output, seed=seed) for output in range(model.num_outputs)]
    means = [_common(jnp.asarray(one.mode), model, units, jnp.asarray(k))[0] for k, one in enumerate(found)]
    return SmoothFit(_with(family, np.array([one.mode for one in found]), jnp.stack(means)), found)


def most_probable(model: SmoothCurve, units: Units, output: int, *, seed: int, num_starts: int = 3) -> Probable:
    """Find the most probable sizes and noise of one output, by searches from up to three starts."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    def loss(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = _log_posterior(jnp.asarray(vector), model, units, jnp.asarray(output))
        is_finite = np.isfinite(float(value)) and np.all(np.isfinite(slope))
        return (-float(value), -np.asarray(slope)) if is_finite else (1e12, np.zeros_like(vector))

    (centre, spread), rng = _prior(), np.random.default_rng([seed, output])
    growing = centre.copy()
    growing[Sizes._fields.index("own_growth")] = START_GROWTH
    starts = [centre, growing, centre + START_SPREAD * spread * rng.standard_normal(len(centre))]
    with threadpool_limits(1, user_api="blas"):
        tried = [
            minimize(loss, at, jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS})
            for at in starts[:num_starts]
        ]
    best = min(tried, key=lambda one: one.fun)
    return Probable(best.x, _covariance(loss, best.x), -float(best.fun), bool(best.nit < MOST_STEPS))


def draw_smooth(fit: SmoothFit, units: Units, num: int, *, rng: np.random.Generator) -> list[Family]:
    """Draw sizes, noise and common weights from their posterior distribution."""
    rows, weights = [], []
    for output, one in enumerate(fit.outputs):
        white = rng.standard_normal((TRIES_PER_DRAW * num, len(one.mode)))
        tried = one.mode + white @ np.linalg.cholesky(one.covariance).T
        place = jnp.asarray(output)
        values = [_log_posterior(jnp.asarray(vector), fit.family.model, units, place)[0] for vector in tried]
        log_weights = np.array(values, float) + 0.5 * (white**2).sum(1)
        kept = tried[chosen_places(log_weights, num, rng)]
        found = []
        for vector in kept:
            mean, factor = _common(jnp.asarray(vector), fit.family.model, units, place)
            noise = rng.standard_normal(len(mean))
            found.append(np.asarray(mean) + np.asarray(solve_triangular(factor.T, jnp.asarray(noise), lower=False)))
        rows.append(kept)
        weights.append(found)
    by_draw = zip(np.swapaxes(rows, 0, 1), np.swapaxes(weights, 0, 1), strict=True)
    return [_with(fit.family, vectors, jnp.asarray(common)) for vectors, common in by_draw]


def _with(family: Family, vectors: np.ndarray, weights: Array) -> Family:
    """The family with other sizes, noise and common weights."""
    sizes = Sizes(*jnp.asarray(vectors[:, :-1].T))
    log_noise = jnp.asarray(vectors[:, -1])
    at = lambda f: (f.model.sizes, f.model.weights, f.model.log_noise)  # noqa: E731
    return eqx.tree_at(at, family, (sizes, weights, log_noise))


def _prior() -> tuple[np.ndarray, np.ndarray]:
    centre = np.array([*np.array(TYPICAL, float), np.log(TYPICAL_NOISE)])
    return centre, np.array([*np.array(UNCERTAINTY, float), NOISE_UNCERTAINTY])


def _log_prior(vector: Array) -> Array:
    centre, spread = _prior()
    return jnp.sum(log_normal(vector, jnp.asarray(centre), jnp.asarray(spread)))


class _Integrated(NamedTuple):
    """What is left of the data when the units' own weights have been integrated."""

    square: Float[Array, ""]  # sum of y' S^-1 y + log det 2 pi S
    factor: Float[Array, "feature feature"]  # lower Cholesky factor of B
    projected: Float[Array, " feature"]  # c


def _integrate(vector: Array, model: SmoothCurve, units: Units, output: Array) -> _Integrated:
    sizes = Sizes(*vector[:-1])
    variance = jnp.exp(2.0 * vector[-1]) + LEAST_NOISE**2
    is_anchored = units.initial is not None

    starts = jnp.zeros(units.times.shape[:2]) if units.initial is None else units.initial[..., output]

    def of_unit(times: Array, inputs: Array, values: Array, seen: Array, start: Array) -> tuple[Array, Array, Array]:
        made = jax.vmap(lambda t, x: model.features(sizes, t, x, is_anchored=is_anchored))(times, inputs)
        # Rows in units of the noise, zero where there is no reading.
        rows = lambda part: (part * (seen / jnp.sqrt(variance))[..., None]).reshape(seen.size, -1)  # noqa: E731
        rest = values - made.of_start * start[:, None]
        own, both = rows(made.own), jnp.concatenate([rows(made.common), rows(rest[..., None])], axis=1)
        root = jnp.linalg.cholesky(jnp.eye(own.shape[1]) + own.T @ own)
        half = solve_triangular(root, own.T @ both, lower=True)
        log_det = 2.0 * jnp.sum(jnp.log(jnp.diag(root))) + seen.sum() * jnp.log(2.0 * jnp.pi * variance)
        return both, half, log_det

    seen = units.mask[..., output].astype(units.times.dtype)
    both, half, log_det = jax.vmap(of_unit)(units.times, units.inputs, units.outputs[..., output], seen, starts)
    whole = _products(both, units.weight) - _products(half, units.weight)  # of (Phi, y) with S^-1
    size = whole.shape[0] - 1
    factor = jnp.linalg.cholesky(jnp.eye(size) + whole[:size, :size])
    return _Integrated(whole[-1, -1] + units.weight @ log_det, factor, whole[:size, -1])


def _products(rows: Float[Array, "unit row column"], weight: Float[Array, " unit"]) -> Float[Array, "column column"]:
    """The sum of the units' `rows^T rows` as one product of matrices."""
    flat = (jnp.sqrt(weight)[:, None, None] * rows).reshape(-1, rows.shape[-1])
    return flat.T @ flat


@quick_jit
def _log_posterior(vector: Array, model: SmoothCurve, units: Units, output: Array) -> tuple[Array, Array]:
    """The log posterior density of the logarithms of one output's sizes and noise, and its gradient."""

    def value(vector: Array) -> Array:
        found = _integrate(vector, model, units, output)
        half = solve_triangular(found.factor, found.projected, lower=True)
        log_det = 2.0 * jnp.sum(jnp.log(jnp.diag(found.factor)))
        return _log_prior(vector) - 0.5 * (found.square + log_det - half @ half)

    return jax.value_and_grad(value)(vector)


@quick_jit
def _common(vector: Array, model: SmoothCurve, units: Units, output: Array) -> tuple[Array, Array]:
    """The mean of the common weights given the sizes, and the Cholesky factor of their precision."""
    found = _integrate(vector, model, units, output)
    return cho_solve((found.factor, True), found.projected), found.factor


def _covariance(loss: Any, mode: np.ndarray) -> Float[np.ndarray, "size size"]:
    """The inverse curvature at the mode, by central differences of the gradient; never wider than the prior."""
    curvature = np.zeros((len(mode), len(mode)))
    for place in range(len(mode)):
        step = np.zeros_like(mode)
        step[place] = DIFFERENCE
        curvature[place] = (loss(mode + step)[1] - loss(mode - step)[1]) / (2.0 * DIFFERENCE)
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    least = 1.0 / np.max(_prior()[1]) ** 2
    return (vectors / np.maximum(values, least)) @ vectors.T
