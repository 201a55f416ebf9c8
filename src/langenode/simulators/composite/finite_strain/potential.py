"""The energy of a cell in a step; by JAX its derivatives are forces, mean stress and stiffness.

Points are the eight Gauss points of every voxel, `(voxel, 8, ...)`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float

Tensor = Float[Array, "3 3"]
MOST_AT_ONCE = 1024
Histories = Float[Array, "voxel 8 3 3"]


class Moduli(NamedTuple):
    """Moduli of every voxel in a step: `matrix` of its shear, `bulk` of its mean dilatation, and those of the glass."""

    matrix: Any
    bulk: Any
    lame: Any
    shear: Any


class Response(NamedTuple):
    """Energy, its derivatives by the corners' displacements and by the mean deformation gradient, and smallest J."""

    energy: Float[Array, ""]
    forces: Float[Array, "voxel 24"]
    mean_stress: Float[Array, "3 3"]
    smallest: Float[Array, ""]


def determinant(matrix: Tensor) -> Float[Array, ""]:
    """Return the determinant of any 3 x 3 matrix, as a polynomial."""
    (a, b, c), (d, e, f), (g, h, i) = matrix
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def point_energy(f: Tensor, history: Tensor, matrix: Array, lame: Array, shear: Array) -> Float[Array, ""]:
    """Return the energy per volume at a point, without that of the voxel's mean dilatation."""
    strain = 0.5 * (f.T @ f - jnp.eye(3, dtype=f.dtype))
    trace = jnp.trace(strain)
    distortion = (3.0 + 2.0 * trace) * determinant(f) ** (-2.0 / 3.0) - 3.0
    glass = 0.5 * lame * trace**2 + shear * jnp.sum(strain**2)
    return 0.5 * matrix * distortion + jnp.sum(history * strain) + glass


def glass_stress(f: Tensor, lame: Array, shear: Array) -> Tensor:
    """Return the glass's second Piola-Kirchhoff stress."""
    identity = jnp.eye(3, dtype=f.dtype)
    strain = 0.5 * (f.T @ f - identity)
    return lame * jnp.trace(strain) * identity + 2.0 * shear * strain


_over_points = jax.vmap(jax.vmap(point_energy, (0, 0, None, None, None)))
_determinants = jax.vmap(jax.vmap(determinant))


def deformation(fluctuation: Array, mean: Array, shapes: Array) -> Float[Array, "voxel 8 3 3"]:
    """Return `F = mean + grad w` at all points; `shapes` are the gradients of the corners' functions."""
    return mean + jnp.einsum("eai,qaj->eqij", fluctuation, shapes)


def _energy(fluctuation: Array, mean: Array, shapes: Array, history: Histories, moduli: Moduli) -> tuple[Array, Array]:
    """Return the energy of the cell, whose volume is one, and the smallest determinant."""
    f = deformation(fluctuation, mean, shapes)
    volumes = _determinants(f)
    points = _over_points(f, history, moduli.matrix, moduli.lame, moduli.shear)
    voxels = points.mean(1) + 0.5 * moduli.bulk * (volumes.mean(1) - 1.0) ** 2
    return voxels.mean(), volumes.min()


@jax.jit
def respond(fluctuation: Array, mean: Array, shapes: Array, history: Histories, moduli: Moduli) -> Response:
    """Return energy, forces and mean stress."""
    by_both = jax.value_and_grad(_energy, argnums=(0, 1), has_aux=True)
    (energy, smallest), (forces, stress) = by_both(fluctuation, mean, shapes, history, moduli)
    return Response(energy, forces.reshape(-1, 24), stress, smallest)


@jax.jit
def _tangents(
    fluctuation: Array, mean: Array, shapes: Array, history: Histories, moduli: Moduli, is_safe: Array
) -> tuple[Float[Array, "voxel 8 9 9"], Float[Array, "voxel 24"]]:
    """Return the second derivative by F at all points at fixed pressure, and the first one of the voxels' mean J."""
    f = deformation(fluctuation, mean, shapes)
    pressure = jnp.where(is_safe, 0.0, moduli.bulk * (_determinants(f).mean(1) - 1.0))
    # A constant stress subtracted as a history leaves the second derivative by E, and removes that stress's own part.
    glass = jax.vmap(jax.vmap(glass_stress, (0, None, None)))(f, moduli.lame, moduli.shear)
    history = jnp.where(is_safe, history - glass, history)

    def enthalpy(f: Array, history: Array, matrix: Array, lame: Array, shear: Array, pressure: Array) -> Array:
        return point_energy(f, history, matrix, lame, shear) + pressure * determinant(f)

    second = jax.vmap(jax.vmap(jax.hessian(enthalpy), (0, 0, None, None, None, None)))
    inner = second(f, history, moduli.matrix, moduli.lame, moduli.shear, pressure)
    slopes = jax.vmap(jax.vmap(jax.grad(determinant)))(f)
    dilatation = jnp.einsum("eqij,qaj->eai", slopes, shapes) / 8.0
    return inner.reshape(-1, 8, 9, 9), dilatation.reshape(-1, 24)


def stiffness(
    fluctuation: np.ndarray,
    mean: np.ndarray,
    shapes: np.ndarray,
    history: np.ndarray,
    moduli: Moduli,
    *,
    is_safe: bool = False,
) -> Float[np.ndarray, "voxel 24 24"]:
    """Return the second derivative of every voxel's energy by the displacements of its corners.

    At each point B'AB with the 9 x 9 second derivative A by F at fixed pressure, and for the voxel's mean dilatation
    one product of vectors: half the time of differentiating by the 24 displacements. Small products are NumPy's, which
    is three times as fast at them as XLA.

    Voxels are taken in parts: the second derivatives of all of 16^3 at once would need half a gigabyte.

    With `is_safe` the pressure and the stress of the glass are left out. Rigid spheres that a linear step has turned
    are stretched by it, and these great spurious stresses can make the stiffness indefinite; without them it is not.
    """
    parts = np.array_split(np.arange(len(fluctuation)), -(-len(fluctuation) // MOST_AT_ONCE))
    found = np.empty((len(fluctuation), 24, 24))
    for part in parts:
        here = Moduli(*(np.asarray(modulus)[part] for modulus in moduli))
        tangents = _tangents(fluctuation[part], mean, shapes, history[part], here, np.array(is_safe))
        found[part[0] : part[-1] + 1] = _assembled(np.asarray(tangents[0]), np.asarray(tangents[1]), shapes, here)
    return found / len(found)


def _assembled(inner: np.ndarray, dilatation: np.ndarray, shapes: np.ndarray, moduli: Moduli) -> np.ndarray:
    """Return the stiffness of voxels of unit volume from the derivatives at their points."""
    operator = np.einsum("qak,ij->qikaj", shapes, np.eye(3)).reshape(8, 9, 24)
    products = np.matmul(inner, operator).reshape(-1, 72, 24)
    whole = np.matmul(operator.reshape(72, 24).T / 8.0, products)
    whole += (moduli.bulk[:, None] * dilatation)[:, :, None] * dilatation[:, None]
    return whole


@jax.jit
def unit_stress(fluctuation: Array, mean: Array, shapes: Array) -> Histories:
    """Return S0, the matrix's deviatoric stress of unit modulus, at all points."""

    def at_point(f: Tensor) -> Tensor:
        stretch = f.T @ f
        a, b, c = stretch
        adjugate = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)])
        j = determinant(f)
        return j ** (-2.0 / 3.0) * (jnp.eye(3, dtype=f.dtype) - jnp.trace(stretch) / (3.0 * j**2) * adjugate)

    return jax.vmap(jax.vmap(at_point))(deformation(fluctuation, mean, shapes))
