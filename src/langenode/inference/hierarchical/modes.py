"""The most probable effects of a unit: damped Fisher scoring, and how they move with the family."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._compiling import quick_jit
from langenode._types import Array, Bool, Float
from langenode.inference.hierarchical.family import Family, expand
from langenode.inference.hierarchical.units import Units
from langenode.posteriors.base import without_gradients

STEP_LENGTHS = (1.0, 0.5, 0.2, 0.04)
MOST_ITERATIONS = 30
# A search ends where a further step would raise the log density by less than this.
SMALLEST_GAIN = 1e-12
# A step that promises less than this and brings nothing has met rounding.
LEAST_PROMISE = 1e-8
# A curvature of the exact log density below this is taken as this: far from Gaussian, it need not be positive.
SMALLEST_EIGENVALUE = 0.05


class _Search(NamedTuple):
    xi: Float[Array, " effect"]
    damping: Float[Array, ""]
    gain: Float[Array, ""]  # of the full step, by the quadratic model
    num: Float[Array, ""]
    value: Float[Array, ""]


def find_mode(
    family: Family, start: Float[Array, " effect"], unit: Units, most: int | Array = MOST_ITERATIONS
) -> tuple[Float[Array, " effect"], Float[Array, ""]]:
    """The mode reached from a start, and the log joint density there.

    Each iteration takes the best of several lengths of the step `(information + m diag)^-1 gradient`; the damping m
    falls after a full step and grows tenfold where no length helps.
    """

    def is_moving(search: _Search) -> Array:
        return (search.gain > SMALLEST_GAIN) & (search.num < most)

    def iterate(search: _Search) -> _Search:
        gradient, information = expand(family, search.xi, unit)
        damped = information + search.damping * jnp.diag(jnp.diag(information))
        step = jnp.linalg.solve(damped, gradient)
        # A length of zero is the present point: its value is not computed elsewhere.
        lengths = jnp.asarray((*STEP_LENGTHS, 0.0), step.dtype)
        points = search.xi + lengths[:, None] * step
        values = jax.vmap(lambda point: family.log_joint(point, unit))(points)
        values = jnp.where(jnp.isfinite(values), values, -jnp.inf)
        best = jnp.argmax(values)
        is_better = best < len(STEP_LENGTHS)
        falling = jnp.where(best == 0, 0.1, 1.0) * search.damping
        damping = jnp.where(is_better, falling, 10.0 * search.damping + 1e-3)
        promise: Array = 0.5 * gradient @ step
        gain = jnp.where(jnp.all(jnp.isfinite(step)), promise, 0.0)
        # Rounding: a step that promises little and brings nothing is the end.
        gain = jnp.where(is_better | (gain > LEAST_PROMISE), gain, 0.0)
        return _Search(points[best], damping, gain, search.num + 1, values[best])

    zero = jnp.zeros((), start.dtype)
    last = jax.lax.while_loop(is_moving, iterate, _Search(start, zero, zero + jnp.inf, zero, zero - jnp.inf))
    return last.xi, last.value


def best_mode(
    family: Family, start: Float[Array, " effect"], unit: Units, from_zero: bool | Bool[Array, ""] = True
) -> Float[Array, " effect"]:
    """The better of the modes reached from `start` and `from_zero`, closed to gradients.

    Some models have two modes (flip-flop kinetics); one that was good for an earlier family may be the lesser now, so
    that the search from zero is repeated now and then.
    """
    family, start = without_gradients(family), without_gradients(start)

    def search(number: Array, best: tuple[Array, Array]) -> tuple[Array, Array]:
        mode, value = find_mode(family, jnp.where(number == 0, start, 0.0), unit)
        value = jnp.where(jnp.isfinite(value), value, -jnp.inf)
        is_better = (number == 0) | (value > best[1])
        return jnp.where(is_better, mode, best[0]), jnp.where(is_better, value, best[1])

    # One after the other: searched together, one that is not asked for would take as long as the other.
    num, none = jnp.where(from_zero, 2, 1), jnp.full((), -jnp.inf, start.dtype)
    return without_gradients(jax.lax.fori_loop(0, num, search, (start, none))[0])


@eqx.filter_custom_vjp
def moving_mode(family: Family, mode: Float[Array, " effect"], unit: Units) -> Float[Array, " effect"]:
    """A mode as a function of the family: itself, with the derivative of the solution of `gradient = 0`.

    Where the gradient of the log density changes by `dg`, its zero moves by `H^-1 dg`, with H the exact curvature.
    """
    del family, unit
    return mode


@moving_mode.def_fwd
def _moving_mode_forwards(perturbed: Any, family: Family, mode: Array, unit: Units) -> tuple[Array, None]:
    del perturbed, family, unit
    return mode, None


@moving_mode.def_bwd
def _moving_mode_backwards(
    residuals: None, cotangent: Array, perturbed: Any, family: Family, mode: Array, unit: Units
) -> Any:
    """Pull a cotangent c back to the family: the derivative of the gradient's component along `H^-1 c`."""
    del residuals, perturbed
    curvature = -jax.hessian(family.log_joint)(mode, unit)
    values: Array
    values, vectors = jnp.linalg.eigh(0.5 * (curvature + curvature.T))
    values = jnp.maximum(jnp.where(jnp.isfinite(values), values, 1.0), SMALLEST_EIGENVALUE)
    direction = vectors @ ((vectors.T @ cotangent) / values)

    def slope(family: Family) -> Array:
        return jax.jvp(lambda xi: family.log_joint(xi, unit), (mode,), (direction,))[1]

    return eqx.filter_grad(slope)(family)


@quick_jit
def find_modes(family: Family, units: Units, starts: Float[Array, "unit effect"]) -> Float[Array, "unit effect"]:
    """The best mode of every unit."""
    return jax.vmap(best_mode, in_axes=(None, 0, 0))(family, starts, units)
