"""Strain, invariants, stress from a potential and its tangents, for one material point; batch with `jax.vmap`.

Tensors are symmetric 3 x 3 arrays. E is Green's strain, `C = I + 2 E`; S is the second Piola-Kirchhoff stress, `S =
dW/dE`. Rows of data hold a tensor by its components 11, 22, 33 where its axes are those of the cube, or by all six, 11,
22, 33, 23, 13, 12 (Voigt's order).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float

Tensor = Float[Array, "3 3"]
_ROWS, _COLUMNS = np.array([0, 1, 2, 1, 0, 0]), np.array([0, 1, 2, 2, 2, 1])
# A shear component stands for two entries of the tensor; this factor gives vectors the tensors' scalar product.
MANDEL = np.array([1.0, 1.0, 1.0, np.sqrt(2.0), np.sqrt(2.0), np.sqrt(2.0)])


def tensor(components: Float[Array, " component"]) -> Tensor:
    """Return the symmetric tensor with these three normal, or all six, components."""
    if components.shape[0] == 3:
        return jnp.diag(components)
    upper = jnp.zeros((3, 3), components.dtype).at[_ROWS, _COLUMNS].set(components)
    return upper.at[_COLUMNS, _ROWS].set(components)


def components(values: Tensor, num: int = 6) -> Float[Array, " component"]:
    """Return the first `num` components of a tensor, 3 or 6."""
    return values[_ROWS[:num], _COLUMNS[:num]]


def adjugate(values: Tensor) -> Tensor:
    """Return `det(A) A^-T = A^2 - tr(A) A + tr(adj A) I` of a symmetric tensor, smooth also where A is singular."""
    trace = jnp.trace(values)
    second = 0.5 * (trace**2 - jnp.sum(values * values))
    return values @ values - trace * values + second * jnp.eye(3, dtype=values.dtype)


def determinant(values: Tensor) -> Float[Array, ""]:
    """Return the determinant, as a polynomial."""
    return jnp.sum(adjugate(values) * values) / 3.0


def invariants(strain: Tensor) -> Float[Array, "3"]:
    """Return `tr E, tr adj E, det E` (paper, section 4.2)."""
    return jnp.stack([jnp.trace(strain), jnp.trace(adjugate(strain)), determinant(strain)])


def joint_invariants(strain: Tensor, rate: Tensor) -> Float[Array, "10"]:
    """Return E's three, then `tr D, tr D^2, tr D^3`, `tr ED, tr E^2 D, tr ED^2, tr E^2 D^2` with D = dE/dt."""
    strain_squared, rate_squared = strain @ strain, rate @ rate
    mixed = [
        jnp.trace(rate),
        jnp.trace(rate_squared),
        jnp.sum(rate_squared * rate),
        jnp.sum(strain * rate),
        jnp.sum(strain_squared * rate),
        jnp.sum(strain * rate_squared),
        jnp.sum(strain_squared * rate_squared),
    ]
    return jnp.concatenate([invariants(strain), jnp.stack(mixed)])


def invariant_basis(strain: Tensor) -> Float[Array, "3 3 3"]:
    """Return `dI_a/dE`: the identity, `tr(E) I - E` and `adj E`."""
    identity = jnp.eye(3, dtype=strain.dtype)
    return jnp.stack([identity, jnp.trace(strain) * identity - strain, adjugate(strain)])


def stress_from_potential(potential: Callable[[Float[Array, "3"]], Float[Array, ""]], strain: Tensor) -> Tensor:
    """Return `S = sum_a dW/dI_a dI_a/dE` of a potential of the three invariants."""
    coefficients = jax.grad(potential)(invariants(strain))
    return jnp.einsum("a,aij->ij", coefficients, invariant_basis(strain))


def tangent(stress: Callable[[Tensor], Tensor], strain: Tensor) -> Float[Array, "6 6"]:
    """Return `dS/dE` by components: dS_11, ..., dS_12 by E_11, ..., where E_23 and E_32 change together, and so on.

    For a function of the strain at fixed internal state this is the consistent tangent, symmetric (in components times
    `MANDEL`) for a law with a potential. For a function that also advances the internal state over a time step it is
    the algorithmic tangent of the step, which an implicit host code needs.
    """
    return jax.jacfwd(lambda row: components(stress(tensor(row))))(components(strain))


# Gauss-Legendre points on [0, 1]: ten give the logarithm to 1e-8 for principal strains from -0.4 to 2.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS


def log_strain(strain: Tensor) -> Tensor:
    """Return `log(I + 2 E) / 2`, the logarithmic (Hencky) strain, smooth where principal strains coincide.

    `log(I + X) = integral over s from 0 to 1 of X (I + s X)^-1`, by Gauss's rule. It needs no eigenvectors, whose
    derivatives do not exist at repeated eigenvalues, in particular in the unstrained state.
    """
    nodes, weights = jnp.asarray(_NODES, strain.dtype), jnp.asarray(_WEIGHTS, strain.dtype)
    inner = jnp.eye(3, dtype=strain.dtype) + 2.0 * nodes[:, None, None] * strain
    inverses = jax.vmap(lambda values: adjugate(values) / determinant(values))(inner)
    return strain @ jnp.einsum("n,nij->ij", weights, inverses)


# Where the 21 numbers of a symmetric 6 x 6 matrix stand.
_UPPER = np.triu_indices(6)
NUM_SYMMETRIC = len(_UPPER[0])


def positive_factor(weights: Float[Array, "21"]) -> Float[Array, "6 6"]:
    """Return a symmetric positive definite matrix, close to `exp(X)` of the symmetric X with these numbers above.

    Weights zero give the identity. It is `T(X / 4)^4` with `T(x) = 1 + x + x^2 / 2`, which has no real zero: positive
    whatever the weights, without eigenvectors or solvers.
    """
    upper = jnp.zeros((6, 6), weights.dtype).at[_UPPER].set(weights)
    quarter = 0.25 * (upper + jnp.triu(upper, 1).T)
    root = jnp.eye(6, dtype=weights.dtype) + quarter + 0.5 * quarter @ quarter
    square = root @ root
    return square @ square
