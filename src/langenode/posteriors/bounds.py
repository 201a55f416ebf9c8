"""Weights within bounds: a normal variable bent smoothly into an interval, and trained distributions bent likewise.

    w = mean + scale Q(P(a) + (P(b) - P(a)) P(z)),    z = (v - mean) / scale,    P the normal cdf, Q its inverse

with a and b the standardised bounds. Where v is N(mean, scale^2), w has exactly that distribution truncated to the
bounds, so that a sampler whose prior is normal in v has the truncated prior in w. The Jacobian is closed:
`dw/dv = (P(b) - P(a)) p(z) / p((w - mean) / scale)`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import AbstractVariational, BoundTerms, Draw, Estimator, log_normal, only

# A bound at least this far away is none: files hold finite numbers only.
UNBOUNDED = 1e30


class Truncation(eqx.Module):
    """The map of free weights v to weights w within bounds; weights without a bound are left as they are."""

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    lower: Float[Array, " dim"]
    upper: Float[Array, " dim"]

    def to_weights(self, free: Float[Array, "*sample dim"]) -> Float[Array, "*sample dim"]:
        """The weights of a free vector."""
        bent = self.mean + self.scale * _bend((free - self.mean) / self.scale, *self._standard_bounds())
        # Rounding must not lead outside, and has no derivative.
        bent = bent + jax.lax.stop_gradient(jnp.clip(bent, self.lower, self.upper) - bent)
        return jnp.where(self._is_bounded(), bent, free)

    def to_free(self, weights: Float[Array, "*sample dim"]) -> Float[Array, "*sample dim"]:
        """The free vector of weights within the bounds: the inverse of `to_weights`."""
        a, b = self._standard_bounds()
        standard = jnp.clip((weights - self.mean) / self.scale, a, b)
        mass = _mass(a, b)
        below, above = (ndtr(standard) - ndtr(a)) / mass, (ndtr(-standard) - ndtr(-b)) / mass
        return jnp.where(self._is_bounded(), self.mean + self.scale * _quantile(below, above), weights)

    def log_slope(self, free: Float[Array, " dim"]) -> Float[Array, ""]:
        """log |dw/dv|, summed over the weights."""
        a, b = self._standard_bounds()
        z = (free - self.mean) / self.scale
        slope = jnp.log(_mass(a, b)) + log_normal(z, 0.0, 1.0) - log_normal(_bend(z, a, b), 0.0, 1.0)
        return jnp.sum(jnp.where(self._is_bounded(), slope, 0.0))

    def log_density(self, weights: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density of the truncated normal: minus infinity outside the bounds."""
        inside = log_normal(weights, self.mean, self.scale) - jnp.log(_mass(*self._standard_bounds()))
        return jnp.sum(jnp.where((weights >= self.lower) & (weights <= self.upper), inside, -jnp.inf))

    def _standard_bounds(self) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        return (self.lower - self.mean) / self.scale, (self.upper - self.mean) / self.scale

    def _is_bounded(self) -> Array:
        return (self.lower > -UNBOUNDED) | (self.upper < UNBOUNDED)


def _mass(a: Array, b: Array) -> Array:
    """P(b) - P(a), by the tail in which both are small."""
    return jnp.where(a > 0.0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))


def _quantile(below: Array, above: Array) -> Array:
    """The normal quantile of a probability that is known with its complement: by the smaller of the two."""
    tiny = jnp.finfo(below.dtype).tiny
    is_low = below < above
    value = ndtri(jnp.maximum(jnp.where(is_low, below, above), tiny))
    return jnp.where(is_low, value, -value)


@jax.custom_jvp
def _bend(z: Array, a: Array, b: Array) -> Array:
    """The truncated normal variable of a normal one, both standardised."""
    mass = _mass(a, b)
    return jnp.clip(_quantile(ndtr(a) + mass * ndtr(z), ndtr(-b) + mass * ndtr(-z)), a, b)


@_bend.defjvp
def _bend_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    """By the closed derivative, which has no cancellation near a bound; the bounds themselves are constants."""
    z, a, b = primals
    bent = _bend(z, a, b)
    slope = _mass(a, b) * jnp.exp(0.5 * (bent - z) * (bent + z))
    return bent, slope * tangents[0]


class Bounded(AbstractVariational):
    """A trained distribution of free weights, bent into the bounds; its densities have the Jacobian of the map.

    Make one with `bounded`: the gradient estimator is that of the free distribution.
    """

    inner: AbstractVariational
    truncation: Truncation
    estimator: Estimator = eqx.field(static=True, default="reparametrised")

    @property
    def has_density(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether the weights have a density: where the free ones have."""
        return self.inner.has_density

    @property
    def bound_terms(self) -> BoundTerms:
        """How the training loss uses its draws."""
        return self.inner.bound_terms

    @property
    def dim(self) -> int:
        """How many weights a sample holds."""
        return self.inner.dim

    @property
    def num_noise(self) -> int:
        """That of the free distribution."""
        return self.inner.num_noise

    @property
    def chain(self) -> Any:
        """The chain in pseudo-time, where there is one."""
        return getattr(self.inner, "chain", self.inner)

    def trained(self) -> Any:
        """What the free distribution trains."""
        return eqx.tree_at(lambda flags: flags.inner, only(self), self.inner.trained())

    def from_noise(self, white: Float[Array, " noise"]) -> Float[Array, " dim"]:
        """The weights that white noise becomes."""
        return self.truncation.to_weights(self.inner.from_noise(white))

    def make_draw(self, density: "Bounded", *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None) -> Draw:
        """A draw of the free distribution, bent; the reference's density is that of the bent reference."""
        return self._bent(self.inner.make_draw(density.inner, key=key, diffusion=diffusion))

    def make_draws(self, density: "Bounded", keys: Array, diffusion: Float[Array, ""] | None) -> Draw:
        """Draws of the free distribution, all at once, bent."""
        return jax.vmap(self._bent)(self.inner.make_draws(density.inner, keys, diffusion))

    def _bent(self, free: Draw) -> Draw:
        log_reference = free.log_reference - self.truncation.log_slope(free.weights)
        return free._replace(weights=self.truncation.to_weights(free.weights), log_reference=log_reference)

    @property
    def path(self) -> Callable[..., Float[Array, "knot dim"]]:
        """`path(key=key)` are the weights along one run of the chain; missing where the free distribution has none."""
        inner: Any = self.inner
        run = inner.path
        return lambda *, key: self.truncation.to_weights(run(key=key))

    def with_memory(self, memory: Any) -> "Bounded":
        """The same with another amount kept for gradients."""
        return dataclasses.replace(self, inner=self.inner.with_memory(memory))

    def is_long(self, num_samples: int) -> bool:
        """Whether the free distribution's gradients keep much."""
        return self.inner.is_long(num_samples)

    def with_diffusion(self, diffusion: Float[Array, ""]) -> "Bounded":
        """The same with another stored gamma."""
        return eqx.tree_at(lambda one: one.inner, self, self.inner.with_diffusion(diffusion))


def bounded(inner: AbstractVariational, truncation: Truncation) -> Bounded:
    """A trained distribution of free weights, bent into the bounds."""
    return Bounded(inner=inner, truncation=truncation, estimator=inner.estimator)
