"""The weights of units not seen before: what all units share, and a unit's own, drawn from their learned distribution.

What is shared is uncertain, too: there are several members, each a whole estimate of it. The first is the estimate
itself, the others are draws of it; samples come from the others where there are any.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.posteriors.base import AbstractPosterior, AbstractVariational


class NewUnits(AbstractPosterior):
    """Members of shared weights and of the distribution of a unit's own; arrays of `effects` have a leading axis.

    `own` are the places of a unit's own weights in the vector of all; `occasion_scale` (log standard deviations) is
    how much its trajectories deviate from each other.
    """

    effects: AbstractVariational
    shared: Float[Array, "member rest"]
    occasion_scale: Float[Array, "member own"] | None
    own: tuple[int, ...] = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """How many weights a sample holds: shared ones and a unit's own."""
        return self.shared.shape[1] + len(self.own)

    @property
    def num_members(self) -> int:
        """How many estimates of what is shared there are."""
        return self.shared.shape[0]

    def member(self, number: Any) -> AbstractVariational:
        """The distribution of a unit's own weights in one member."""
        arrays, static = eqx.partition(self.effects, eqx.is_array)
        return eqx.combine(jax.tree.map(lambda leaf: leaf[number], arrays), static)

    def sample(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent new units, each of a random member."""
        key_member, key_units = jax.random.split(key)
        first = 1 if self.num_members > 1 else 0
        members = jax.random.randint(key_member, (num_samples,), first, self.num_members)
        return self.of_members(members, key=key_units)

    def of_estimate(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent new units as if the estimate were known: only the differences between units."""
        return self.of_members(jnp.zeros(num_samples, int), key=key)

    def of_members(self, members: Int[Array, " sample"], *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """One new unit of each of these members."""

        def one(number: Array, key: PRNGKeyArray) -> Array:
            key_unit, key_occasion = jax.random.split(key)
            effects = self.member(number)
            white = jax.random.normal(key_unit, (effects.num_noise,), self.shared.dtype)
            weights = effects.from_noise(white)
            if self.occasion_scale is not None:
                noise = jax.random.normal(key_occasion, weights.shape, weights.dtype)
                weights = weights + jnp.exp(self.occasion_scale[number]) * noise
            return self.assemble(self.shared[number], weights)

        return jax.vmap(one)(members, jax.random.split(key, members.shape[0]))

    def assemble(self, shared: Float[Array, " rest"], own: Float[Array, " own"]) -> Float[Array, " dim"]:
        """The vector of all weights from its two parts."""
        places = np.asarray(self.own, int)
        rest = np.setdiff1d(np.arange(self.dim), places)
        return jnp.zeros(self.dim, shared.dtype).at[rest].set(shared).at[places].set(own)
