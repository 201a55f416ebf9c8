"""Posteriors of one and two weights whose modes overlap: exact by quadrature, and one program for each dimension.

The predictions are `coefficients @ features(z)`. A case is data, so cases of the same dimension share what is compiled.
"""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array
from langenode.posteriors.density import Density


class Overlapping(eqx.Module):
    """`outputs = coefficients @ features(z) + sigma noise` with prior N(0, I)."""

    coefficients: Array  # (cell, feature)
    outputs: Array
    sigma: Array

    def residual(self, z: Array) -> Array:
        return (self.outputs - self.coefficients @ features(z)) / self.sigma

    def log_likelihood(self, z: Array) -> Array:
        constant = jnp.log(self.sigma) + 0.5 * math.log(2.0 * math.pi)
        return -0.5 * jnp.sum(self.residual(z) ** 2) - self.outputs.size * constant


def features(z: Array) -> Array:
    """`1, z, z^2, sin 3z, |z|` smoothed, of each weight, then the product of neighbours."""
    ones = jnp.ones(1, z.dtype)
    return jnp.concatenate([ones, z, z**2, jnp.sin(3.0 * z), jnp.sqrt(z**2 + 0.01), z[1:] * z[:-1]])


class Exact(NamedTuple):
    """The log-evidence, and the posterior probability of a region that holds one of the modes."""

    log_evidence: float
    share: float


class Case(NamedTuple):
    """A posterior, and where its regions divide: `direction @ z > border`."""

    name: str
    model: Overlapping
    direction: tuple[float, ...]
    border: float
    is_control: bool = False

    @property
    def dim(self) -> int:
        return len(self.direction)

    def density(self) -> Density:
        return Density(self.model.log_likelihood, self.model.residual, None, self.dim, np.dtype(float))

    def is_inside(self, z: np.ndarray) -> np.ndarray:
        return np.asarray(z) @ np.asarray(self.direction) > self.border

    def exact(self, num: int = 1601, limit: float = 8.0) -> Exact:
        """By the trapezoid rule: exact to rounding for a smooth integrand, the share to the width of a cell."""
        axis = np.linspace(-limit, limit, num if self.dim == 2 else 64 * num)
        grid = np.stack(np.meshgrid(*[axis] * self.dim), -1).reshape(-1, self.dim)
        values = np.asarray(_log_joints(self.model, jnp.asarray(grid)), float)
        shares = np.exp(values - values.max())
        log_sum = values.max() + np.log(shares.sum()) + self.dim * np.log(axis[1] - axis[0])
        log_evidence = log_sum - 0.5 * self.dim * np.log(2.0 * np.pi)
        return Exact(float(log_evidence), float(shares[self.is_inside(grid)].sum() / shares.sum()))


@eqx.filter_jit
def _log_joints(model: Overlapping, grid: Array) -> Array:
    return jax.vmap(lambda z: model.log_likelihood(z) - 0.5 * jnp.sum(z**2))(grid)


def one_weight(name: str, terms: dict[int, float], output: float, sigma: float, border: float, **more) -> Case:
    """A case of one weight; `terms` are coefficients by the number of their feature."""
    row = [terms.get(i, 0.0) for i in range(5)]
    return Case(name, _model([row], [output], sigma), (1.0,), border, **more)


def two_weights(name: str, rows, outputs, sigma: float, direction: tuple[float, ...], border: float, **more) -> Case:
    """A case of two weights."""
    return Case(
        name, _model([[row.get(i, 0.0) for i in range(10)] for row in rows], outputs, sigma), direction, border, **more
    )


def _model(rows, outputs, sigma: float) -> Overlapping:
    return Overlapping(jnp.asarray(rows, float), jnp.asarray(outputs, float), jnp.asarray(sigma, float))


def shifted_square(a: float, output: float, sigma: float) -> Case:
    """`y = (z + a)^2`, modes about `-a + sqrt(y)` and `-a - sqrt(y)`."""
    return one_weight(f"(z+{a})^2={output}, {sigma}", {0: a * a, 1: 2.0 * a, 2: 1.0}, output, sigma, -a)


def all_cases() -> list[Case]:
    """Nine with modes that overlap, then the controls."""
    return [
        shifted_square(0.5, 1.0, 0.3),
        shifted_square(0.5, 1.0, 0.5),
        shifted_square(0.3, 0.5, 0.3),
        shifted_square(1.0, 1.0, 0.5),
        shifted_square(0.5, 2.0, 0.5),
        one_weight("z^2+0.3z=1, 0.2", {1: 0.3, 2: 1.0}, 1.0, 0.2, -0.15),
        one_weight("sin 3z=0.5, 0.3", {3: 1.0}, 0.5, 0.3, 1.5707963),
        one_weight("|z+0.3..|=1, 0.3", {1: 0.2, 4: 1.0}, 1.0, 0.3, 0.0),
        two_weights("ring", [{3: 1.0, 4: 1.0, 1: 0.3}], [1.5], 0.3, (1.0, 0.0), 0.0),
        two_weights("two bananas", [{3: 1.0, 2: 0.4}, {2: 1.0, 3: 0.5}], [1.0, 0.6], 0.4, (1.0, 0.0), 0.0),
        two_weights("banana", [{2: 1.0, 3: 1.0}, {1: 0.5}], [1.0, 0.2], 0.2, (1.0, 0.0), 0.0),
        one_weight("square, one mode", {1: 1.0, 2: 0.2}, 0.8, 0.3, 0.7, is_control=True),
        one_weight("linear", {1: 1.0}, 0.8, 0.3, 0.7, is_control=True),
        two_weights("linear, two", [{1: 1.0, 2: 0.5}], [0.8], 0.3, (1.0, 0.0), 0.5, is_control=True),
    ]
