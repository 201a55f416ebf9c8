"""A chain in a few dimensions, decoded to the weights: expressive where the weights are many.

A drift net as wide as the weights is O(D^2); the bottleneck runs the chain in `z` of dimension m and decodes
`w = centre + decoder(z)`. Its KL is taken in z. The weights have no density, so it serves the `population` target
only.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import AbstractVariational, Draw, Estimator, Reference, cast, only
from langenode.posteriors.langevin import Langevin, langevin
from langenode.posteriors.networks import NetworkFactory, NetworkName, Perceptron

# The decoder's last layer beside that of an ordinary network, where training starts.
START_SCALE = 0.1


class Bottleneck(AbstractVariational):
    """A `Langevin` chain in the latent space behind a decoder."""

    has_density: ClassVar[bool] = False

    chain: Langevin
    centre: Float[Array, " dim"]
    decoder: Perceptron
    estimator: Estimator = eqx.field(static=True, default="reparametrised")

    @property
    def dim(self) -> int:
        """How many weights a sample holds."""
        return self.centre.shape[0]

    def decode(self, z: Float[Array, " latent"]) -> Float[Array, " dim"]:
        """The weights at a latent point."""
        return self.centre + self.decoder(z)

    def trained(self) -> Any:
        """The decoder, and what the chain trains."""
        return eqx.tree_at(lambda flags: flags.chain, only(self, "decoder"), self.chain.trained())

    @property
    def num_noise(self) -> int:
        """The noise of the latent chain."""
        return self.chain.num_noise

    def from_noise(self, white: Float[Array, " noise"]) -> Float[Array, " dim"]:
        """Run the latent chain with this noise and decode its end."""
        return self.decode(self.chain.from_noise(white))

    def make_draw(self, density: "Bottleneck", *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None) -> Draw:
        """Run the chain once, with its own diffusion, and decode its end."""
        del diffusion
        latent = self.chain.make_draw(density.chain, key=key, diffusion=None)
        return latent._replace(weights=self.decode(latent.weights))

    def make_draws(self, density: "Bottleneck", keys: Array, diffusion: Float[Array, ""] | None) -> Draw:
        """Runs of the chain, all at once, decoded."""
        del diffusion
        latent = self.chain.make_draws(density.chain, keys, None)
        return latent._replace(weights=jax.vmap(self.decode)(latent.weights))

    def with_memory(self, memory: Any) -> "Bottleneck":
        """The same with another amount kept for gradients of the chain."""
        return dataclasses.replace(self, chain=self.chain.with_memory(memory))

    def is_long(self, num_samples: int) -> bool:
        """Whether the chain's gradients keep much."""
        return self.chain.is_long(num_samples)

    def path(self, *, key: PRNGKeyArray) -> Float[Array, "knot dim"]:
        """The decoded weights along one run of the chain."""
        return jax.vmap(self.decode)(self.chain.path(key=key))


def bottleneck(
    centre: Float[Array, " dim"],
    *,
    latent_dim: int = 4,
    num_steps: int = 8,
    horizon: float = 2.0,
    layers: Sequence[int] = (32, 32),
    network: NetworkName | NetworkFactory = "mlp",
    decoder_layers: Sequence[int] = (32, 32),
    decoder_scale: float = START_SCALE,
    key: PRNGKeyArray,
) -> Bottleneck:
    """A bottleneck around `centre` (the MLE); the decoder's output starts small, so training starts near the centre.

    `network` is that of the latent chain's control; the decoder is a perceptron.
    """
    key_chain, key_decoder = jax.random.split(key)
    latent = Reference(jnp.zeros(latent_dim, centre.dtype), jnp.ones(latent_dim, centre.dtype))
    chain = langevin(latent, num_steps=num_steps, horizon=horizon, layers=layers, network=network, key=key_chain)
    sizes = (latent_dim, *decoder_layers, centre.shape[0])
    decoder = Perceptron(sizes, last_scale=decoder_scale, key=key_decoder)
    return Bottleneck(chain=chain, centre=centre, decoder=cast(decoder, centre.dtype))
