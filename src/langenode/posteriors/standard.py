"""White noise as it is: the distribution of a unit's latent inputs, whose scale and effect a network learns."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import AbstractVariational, Draw, Estimator, normal_log_density, only


class Standard(AbstractVariational):
    """Independent normals of mean zero and of given scales, one or zero; nothing is trained.

    A latent of scale zero has no effect, so that problems with different numbers of latents have one shape.
    """

    has_density: ClassVar[bool] = False

    scale: Float[Array, " dim"]
    estimator: Estimator = eqx.field(static=True, default="reparametrised")

    @property
    def dim(self) -> int:
        """How many latents a sample holds."""
        return self.scale.shape[0]

    @property
    def num_noise(self) -> int:
        """One number per latent."""
        return self.dim

    def from_noise(self, white: Float[Array, " noise"]) -> Float[Array, " dim"]:
        """The noise itself."""
        return self.scale * white

    def trained(self) -> Any:
        """Nothing."""
        return only(self)

    def make_draw(self, density: "Standard", *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None) -> Draw:
        """One draw; it is its own reference."""
        del density, diffusion
        white = jax.random.normal(key, (self.dim,), self.scale.dtype)
        zero = jnp.zeros((), self.scale.dtype)
        return Draw(self.from_noise(white), zero, zero, normal_log_density(white, 0.0, 1.0))
