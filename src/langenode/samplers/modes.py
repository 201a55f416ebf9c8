"""Modes of a posterior, and coordinates in which it is about N(0, I) near one of them.

`find_modes` searches from many starts in one compiled program, in the density's own precision: by the damped
Gauss-Newton search of guided paths where there are residuals, else by Adam and then L-BFGS. `find_mode` searches from
one start on the host, and stops as soon as nothing is left to gain. It is apart because its algebra is in 64 bits
whatever the model's precision, and because its caller linearises: a reference trajectory by trajectory, which a density
of one long vector of residuals cannot, and quadrature by the exact Hessian.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors import Density, cast
from langenode.samplers.common import evaluate
from langenode.samplers.gauss_newton import (
    Form,
    Linearised,
    Objective,
    jacobian_at,
    linearise,
    num_passes,
    search,
    smaller_form,
    step_cost,
)

# A draw of the prior that the model cannot take is shrunk to the origin.
SHRINKS = (1.0, 0.5, 0.25, 0.125, 0.0)
# Starts leave a mode by twice its normal approximation, or by less where the posterior bends away from it.
JITTERS = (2.0, 1.0, 0.5, 0.25, 0.1, 0.03, 0.0)
NUM_POLISHING = 3
NUM_ADAM = 200
LARGEST_LOCAL_COVARIANCE = 512
SMALLEST_GAIN = 1e-6  # nats that a step of `find_mode` must promise


class Modes(NamedTuple):
    """Where the searches ended, their log posteriors (minus infinity where not finite), and the runs of the model."""

    points: Float[Array, "start dim"]
    log_posteriors: Float[Array, " start"]
    num_evaluations: int

    def best(self) -> Float[Array, " dim"]:
        """The highest of them."""
        values = np.asarray(self.log_posteriors)
        if not np.any(np.isfinite(values)):
            raise ValueError(
                f"a search must end where the posterior is finite; none of {len(values)} did; check that the model "
                "gives numbers under the prior, or use more starts"
            )
        return self.points[int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))]

    def is_sound(self) -> np.ndarray:
        """Which searches found a mode and not a place they could not leave, hopelessly far below the best."""
        values = np.asarray(self.log_posteriors)
        return np.isfinite(values) & (values >= np.max(values) - 100.0 - 10.0 * self.points.shape[1])


class Whitening(NamedTuple):
    """Coordinates u of `z = centre + root u`; no root stands for the identity."""

    centre: Float[Array, "*chain dim"]
    root: Float[Array, "*chain dim dim"] | None

    def __call__(self, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The point z."""
        return self.centre + (u if self.root is None else self.root @ u)


def jittered(density: Density, frame: Callable[[Array], Array], *, key: PRNGKeyArray) -> Float[Array, " dim"]:
    """Coordinates u of a start about a mode: wider than the posterior, but not where it has no mass at all.

    Twice its normal approximation costs 2 nats per weight. A curved posterior may cost thousands, from where no
    sampler returns.
    """
    white = jax.random.normal(key, (density.dim,), density.dtype)
    candidates = jnp.asarray(JITTERS, density.dtype)[:, None] * white
    values = jax.vmap(lambda u: density.log_posterior(frame(u)))(candidates)
    return candidates[jnp.argmax(values >= values[-1] - 2.0 * density.dim)]


def prior_starts(density: Density, num: int, *, key: PRNGKeyArray) -> Float[Array, "start dim"]:
    """Draws of the prior, each shrunk until the posterior is finite there; an error where it never is."""
    starts = _shrunk_draws(density, num, key)
    check_prior(density, starts)
    return starts


def check_prior(density: Density, starts: Float[Array, "start dim"]) -> None:
    """Refuse a model that gives no number at any start."""
    if not np.any(np.isfinite(np.asarray(evaluate(density, starts)))):
        raise ValueError(
            f"the posterior must be finite somewhere under the prior; it is at none of {len(starts)} draws; "
            "check the model's outputs, or its scaling"
        )


@eqx.filter_jit
def _shrunk_draws(density: Density, num: int, key: PRNGKeyArray) -> Array:
    def one(key: Array) -> Array:
        shrinks = jnp.asarray(SHRINKS, density.dtype)
        candidates = shrinks[:, None] * jax.random.normal(key, (density.dim,), density.dtype)
        return candidates[jnp.argmax(jnp.isfinite(jax.vmap(density.log_posterior)(candidates)))]

    return jax.vmap(one)(jax.random.split(key, num))


class Quadratic(NamedTuple):
    """Minus a log density about a point: its value, the log density's gradient, and a positive definite curvature."""

    value: float
    gradient: np.ndarray
    curvature: np.ndarray


class Mode(NamedTuple):
    """Where a search ended, and the curvature there."""

    point: np.ndarray
    curvature: np.ndarray


def find_mode(quadratic: Callable[[np.ndarray], Quadratic], start: np.ndarray, *, num_iterations: int = 50) -> Mode:
    """Damped Newton (Gauss-Newton, if the curvature is) from one start, in 64 bits.

    Ends where a step would gain less than a millionth of a nat. The damping is tenfold after a step that fails.
    """
    point, here, damping = start, quadratic(start), 0.0
    for _ in range(num_iterations):
        step = np.linalg.solve(here.curvature + damping * np.diag(np.diag(here.curvature)), here.gradient)
        if here.gradient @ step < SMALLEST_GAIN:
            break
        new = quadratic(point + step)
        if new.value <= here.value:
            point, here, damping = point + step, new, damping / 10.0
        else:
            damping = max(10.0 * damping, 1e-4)
    return Mode(point, here.curvature)


def find_modes(density: Density, starts: Float[Array, "start dim"], *, num_iterations: int = 60) -> Modes:
    """A mode from each start; a start is kept where the search did not raise the posterior."""
    points, costs = _search_all(density, starts, num_iterations)
    before, after = np.asarray(evaluate(density, starts)), np.asarray(evaluate(density, points))
    is_raised = np.isfinite(after) & ~(before > after) & np.all(np.isfinite(np.asarray(points)), axis=1)
    values = np.where(is_raised, after, before)
    points = jnp.where(jnp.asarray(is_raised)[:, None], points, starts)
    cost = 2 * len(starts) + int(np.sum(np.asarray(costs)))
    return Modes(points, jnp.where(jnp.isfinite(values), values, -jnp.inf), cost)


@eqx.filter_jit
def _search_all(density: Density, starts: Array, num_iterations: int) -> tuple[Array, Array]:
    """Where each search ends, and how often it runs the model."""

    def one(z: Array) -> tuple[Array, Array]:
        return _climb(density, z, num_iterations) if density.residual is None else _descend(density, z, num_iterations)

    return jax.vmap(one)(starts)


class Passes(NamedTuple):
    """The smaller form of the Gauss-Newton algebra, and how often a Jacobian runs the model."""

    form: Form
    num: int


def passes(density: Density) -> Passes:
    """How a density's Jacobian is taken."""
    assert density.residual is not None
    point = jax.ShapeDtypeStruct((density.dim,), density.dtype)
    form = smaller_form(jax.eval_shape(density.residual, point).shape[0], density.dim)
    return Passes(form, num_passes(density.residual, point, form))


def _descend(density: Density, z: Array, num_iterations: int) -> tuple[Array, Array]:
    """Gauss-Newton; then steps that shrink the gradient where the objective's own rounding would stop the search."""
    assert density.residual is not None
    one, (form, num) = jnp.ones((), z.dtype), passes(density)
    objective = Objective(density.residual, jnp.zeros_like(z), one, one)
    found, num_steps = search(objective, z, form, num_iterations)

    def polish(carry: tuple[Array, Linearised, Array], _: Any) -> tuple[tuple[Array, Linearised, Array], None]:
        z, here, cost = carry
        factor = here.curvature.factorise(one)
        slope = objective.scaled_gradient(z, here.pull)
        new = z + factor.solve(slope)
        there = linearise(objective.residual, new, form)
        new_slope = objective.scaled_gradient(new, there.pull)
        is_nearer = new_slope @ factor.solve(new_slope) < slope @ factor.solve(slope)
        is_allowed = objective.value(new, there.residuals) > objective.value(z, here.residuals) - 1e-3
        z, here = jax.tree.map(lambda a, b: jnp.where(is_nearer & is_allowed, a, b), (new, there), (z, here))
        return (z, here, cost + num), None

    carry = (found.x, found.here, num_steps * step_cost(num))
    (z, _, cost), _ = jax.lax.scan(polish, carry, None, length=NUM_POLISHING)
    return z, cost


def _climb(density: Density, z: Array, num_iterations: int) -> tuple[Array, Array]:
    """Adam finds the basin, L-BFGS the bottom of it; the best point on the way is kept.

    A line search of L-BFGS is counted as two runs of the model.
    """
    import optax

    def loss(z: Array) -> Array:
        return -density.log_posterior(z)

    def run(z: Array, optimiser: Any, num_steps: int) -> Array:
        def step(carry: Any, _: Any) -> tuple[Any, None]:
            z, state, best, lowest = carry
            value, slope = jax.value_and_grad(loss)(z)
            slope = jnp.where(jnp.all(jnp.isfinite(slope)), slope, z)
            best, lowest = jnp.where(value < lowest, z, best), jnp.minimum(lowest, value)
            updates, state = optimiser.update(slope, state, z, value=value, grad=slope, value_fn=loss)
            moved = z + updates
            z = jnp.where(jnp.all(jnp.isfinite(moved)), moved, best).astype(z.dtype)
            return (z, cast(state, z.dtype), best, lowest), None

        start = (z, cast(optimiser.init(z), z.dtype), z, jnp.asarray(loss(z)))
        best: Array
        (z, _, best, lowest), _ = jax.lax.scan(step, start, None, length=num_steps)
        return jnp.where(loss(z) < lowest, z, best)

    rate = optax.cosine_decay_schedule(0.1, NUM_ADAM, alpha=0.01)
    z = run(run(z, optax.adam(rate), NUM_ADAM), optax.lbfgs(), num_iterations)
    return z, jnp.asarray(NUM_ADAM + 3 * num_iterations)


def local_whitening(density: Density, z: Float[Array, " dim"]) -> Whitening:
    """The Gauss-Newton coordinates at z, `root root' = (I + J'J)^-1`; the identity where that is too costly."""
    if density.residual is None or density.dim > LARGEST_LOCAL_COVARIANCE:
        return Whitening(z, None)
    jacobian, _ = jacobian_at(density.residual, z, passes(density).form)
    eye = jnp.eye(density.dim, dtype=z.dtype)
    lower = jnp.linalg.cholesky(eye + jacobian.T @ jacobian)
    return Whitening(z, jax.scipy.linalg.solve_triangular(lower, eye, lower=True, trans=1))
