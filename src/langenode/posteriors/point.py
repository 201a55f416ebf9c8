"""No weight is random: all that varies between trajectories is the process's own noise."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import AbstractVariational, Draw, Estimator, only


class Point(AbstractVariational):
    """The distribution of no weights at all."""

    has_density: ClassVar[bool] = True

    weights: Float[Array, " dim"]
    estimator: Estimator = eqx.field(static=True, default="reparametrised")

    @property
    def dim(self) -> int:
        """How many weights a sample holds: none."""
        return self.weights.shape[0]

    def trained(self) -> Any:
        """Nothing."""
        return only(self)

    @property
    def num_noise(self) -> int:
        """None is needed."""
        return 0

    def from_noise(self, white: Float[Array, " noise"]) -> Float[Array, " dim"]:
        """The empty vector."""
        del white
        return self.weights

    def make_draw(self, density: "Point", *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None) -> Draw:
        """The empty vector, at no cost."""
        del density, key, diffusion
        zero = jnp.zeros((), self.weights.dtype)
        return Draw(self.weights, zero, zero, zero)


def point(dtype: Any) -> Point:
    """Return the distribution of no weights, in a precision."""
    return Point(weights=jnp.zeros(0, dtype))
