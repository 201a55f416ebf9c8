"""Sums of Euclidean distances between two sets of points, for losses that compare all pairs in every update.

Plain differentiation computes each root anew for every component of the points. Here the derivative is written with the
matrix of inverse distances U, in products alone: `d sum_r |x_r - y_j| = sum_r U_jr (x_r - y_j) . (dx_r - dy_j)`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from langenode._types import Array, Float

SMALLEST_SQUARE = 1e-8  # under the root: keeps the gradient finite where two points coincide


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def total_distances(
    points: Float[Array, "point component"], others: Float[Array, "other component"], is_self: bool
) -> Float[Array, " other"]:
    """The sum of distances from each of the others to all points; with `is_self`, the same set, to all but itself."""
    return _distances(points, others, is_self).sum(1)


@total_distances.defjvp
def _derivative(is_self: bool, primals: Any, tangents: Any) -> tuple[Array, Array]:
    (points, others), (points_change, others_change) = primals, tangents
    distances = _distances(points, others, is_self)
    inverse = jnp.where(distances > 0.0, 1.0 / distances, 0.0)
    of_points = inverse @ _dot(points, points_change) - _dot(others, inverse @ points_change)
    of_others = _dot(others, others_change) * inverse.sum(1) - _dot(others_change, inverse @ points)
    return distances.sum(1), of_points + of_others


def _dot(left: Array, right: Array) -> Array:
    return jnp.sum(left * right, axis=-1)


def _distances(points: Array, others: Array, is_self: bool) -> Float[Array, "other point"]:
    def add(squares: Array, component: tuple[Array, Array]) -> tuple[Array, None]:
        ours, theirs = component
        return squares + (theirs[:, None] - ours[None, :]) ** 2, None

    # Component by component, the points on the last axis: a sum over a short last axis is twenty times slower.
    start = jnp.full((len(others), len(points)), SMALLEST_SQUARE, jnp.result_type(points, others))
    distances = jnp.sqrt(jax.lax.scan(add, start, (points.T, others.T), unroll=16)[0])
    return jnp.where(jnp.eye(len(points), dtype=bool), 0.0, distances) if is_self else distances
