"""A trained sampler that stands for draws of a posterior: small in a file, and it samples at once."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import AbstractPosterior, Reference
from langenode.posteriors.bottleneck import Bottleneck, bottleneck
from langenode.posteriors.langevin import Langevin, langevin


class Distilled(AbstractPosterior):
    """A sampler that was trained on draws, not by a bound: it is final, as stored draws are."""

    sampler: Langevin | Bottleneck

    @property
    def dim(self) -> int:
        """How many weights a sample holds."""
        return self.sampler.dim

    def sample(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent draws, equally weighted."""
        return self.sampler.sample(num_samples, key=key)

    def sizes(self) -> dict[str, Any]:
        """What `empty` needs to build a sampler of this structure."""
        if isinstance(self.sampler, Langevin):
            factor = self.sampler.reference.factor
            return {"kind": "langevin", "rank": None if factor is None else int(factor.shape[1])}
        return {"kind": "bottleneck", "latents": self.sampler.chain.dim}


def empty(sizes: Mapping[str, Any], weights: Float[Array, " dim"]) -> Distilled:
    """A sampler of a stored one's structure; its numbers do not matter."""
    key = jax.random.key(0)
    if sizes["kind"] == "langevin":
        factor = None if sizes["rank"] is None else jnp.zeros((weights.shape[0], sizes["rank"]), weights.dtype)
        return Distilled(langevin(Reference(weights, jnp.ones_like(weights), factor), key=key))
    return Distilled(small_bottleneck(weights, sizes["latents"], key=key))


def small_bottleneck(centre: Float[Array, " dim"], num_latents: int, *, key: PRNGKeyArray) -> Bottleneck:
    """The bottleneck that draws are distilled to: its sizes follow from the number of latents."""
    width = 2 * num_latents + 16
    return bottleneck(
        centre, latent_dim=num_latents, num_steps=4, decoder_layers=(width, width), decoder_scale=0.03, key=key
    )


def rescaled(sampler: Langevin | Bottleneck, mean: Float[Array, " dim"], scale: Float[Array, " dim"]) -> Any:
    """The sampler of `mean + scale w` where the given one has w."""
    if isinstance(sampler, Langevin):
        reference = sampler.reference
        moved = Reference(mean + scale * reference.mean, scale * reference.scale, reference.factor)
        return eqx.tree_at(lambda chain: chain.reference, sampler, moved)
    return with_last_layer(
        sampler, lambda weight, bias: (scale[:, None] * weight, scale * bias), mean + scale * sampler.centre
    )


def with_last_layer(
    sampler: Bottleneck, change: Callable[[Array, Array], tuple[Array, Array]], centre: Float[Array, " dim"]
) -> Bottleneck:
    """A bottleneck with another centre and a changed last layer of its decoder."""
    last = sampler.decoder.layers[-1]
    assert last.bias is not None
    weight, bias = change(last.weight, last.bias)
    new = eqx.tree_at(lambda layer: (layer.weight, layer.bias), last, (weight, bias))
    return eqx.tree_at(lambda one: (one.centre, one.decoder.layers[-1]), sampler, (centre, new))
