"""What every posterior can do: give samples of the stochastic weights; and the reference law they are measured from."""

import abc
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray

Estimator = Literal["reparametrised", "sticking", "log_variance"]
ESTIMATORS: tuple[Estimator, ...] = ("reparametrised", "sticking", "log_variance")


class Draw(NamedTuple):
    """One draw of a variational posterior, with what a bound and an importance weight need.

    `log_ratio` is the log Radon-Nikodym derivative of our law of the path to the reference's law, at this path; `kl`
    has the same expectation but its randomness at given states integrated out. `log_reference` is the log density of
    `weights` under the reference's terminal law, so that `log_likelihood + log_prior - log_reference - log_ratio` is
    the log weight.
    """

    weights: Float[Array, " dim"]
    kl: Float[Array, ""]
    log_ratio: Float[Array, ""]
    log_reference: Float[Array, ""]


class AbstractPosterior(eqx.Module):
    """A law of the stochastic weights that can be sampled. Knows weight vectors only."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """How many weights a sample holds."""

    @abc.abstractmethod
    def sample(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent draws, equally weighted."""


class AbstractVariational(AbstractPosterior):
    """A posterior that is trained: it also tells how far each draw is from the reference.

    `has_density` is False where the law of the weights has no density (a bottleneck): such a posterior can match a
    population, but no likelihood bound or importance weight exists for it.
    """

    has_density: ClassVar[bool] = True
    estimator: eqx.AbstractVar[Estimator]

    @abc.abstractmethod
    def draw(self, *, key: PRNGKeyArray) -> Draw:
        """One draw; batch with `jax.vmap` over keys, so that results do not depend on how replicas are chunked."""

    def sample(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent draws, equally weighted."""
        return jax.vmap(lambda k: self.draw(key=k).weights)(jax.random.split(key, num_samples))


class Reference(eqx.Module):
    """The Gaussian law the chain has without control: `w = mean + L z` with `z ~ N(0, I)`.

    `L = diag(scale) (I + factor factor^T)`; the low-rank factor may be absent. It is a choice, not a trained
    quantity: no gradient reaches it. It need not be the prior (METHOD: "Reference and prior are two things").
    """

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    factor: Float[Array, "dim rank"] | None = None

    @classmethod
    def from_covariance(cls, mean: Float[Array, " dim"], covariance: Float[Array, "dim dim"]) -> "Reference":
        """The reference with a given full covariance: L is its symmetric root, written as `s (I + F F^T)`."""
        values, vectors = jnp.linalg.eigh(covariance)
        # A singular covariance (rounding, or a weight without effect) gets the smallest spread that can be inverted.
        roots = jnp.sqrt(jnp.maximum(values, jnp.finfo(values.dtype).eps * values[-1]))
        smallest = roots[0]
        factor = vectors * jnp.sqrt(jnp.maximum(roots / smallest - 1.0, 0.0))
        return cls(mean, jnp.full_like(mean, smallest), factor)

    def fixed(self) -> "Reference":
        """The same law, closed to gradients."""
        return jax.tree.map(jax.lax.stop_gradient, self)

    def to_weights(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The weights at the standardised point `z`."""
        this = self.fixed()
        if this.factor is not None:
            z = z + this.factor @ (this.factor.T @ z)
        return this.mean + this.scale * z

    def to_standard(self, weights: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The standardised point of `weights`: the inverse of `to_weights`."""
        this = self.fixed()
        z = (weights - this.mean) / this.scale
        if this.factor is not None:
            gram = jnp.eye(this.factor.shape[1], dtype=z.dtype) + this.factor.T @ this.factor
            z = z - this.factor @ jnp.linalg.solve(gram, this.factor.T @ z)
        return z

    @property
    def log_det(self) -> Float[Array, ""]:
        """log |det L|."""
        this = self.fixed()
        value = jnp.sum(jnp.log(this.scale))
        if this.factor is not None:
            gram = jnp.eye(this.factor.shape[1], dtype=value.dtype) + this.factor.T @ this.factor
            value = value + jnp.linalg.slogdet(gram)[1]
        return value


def normal_log_density(
    x: Float[Array, " dim"],
    mean: Float[Array, " dim"] | float,
    scale: Float[Array, " dim"] | Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Log density of independent normals, summed over the weights."""
    standard = (x - mean) / scale
    return jnp.sum(-0.5 * standard**2 - jnp.log(scale) * jnp.ones_like(x) - 0.5 * jnp.log(2.0 * jnp.pi))


def normal_kl(mean_shift: Float[Array, " dim"], variance_ratio: Float[Array, " dim"]) -> Float[Array, ""]:
    """KL of N(shift, ratio) from N(0, 1) in each weight, summed: `1/2 sum [shift^2 + ratio - 1 - log ratio]`."""
    return 0.5 * jnp.sum(mean_shift**2 + variance_ratio - 1.0 - jnp.log(variance_ratio))


def check_estimator(estimator: str) -> None:
    """Raise where a gradient estimator is unknown."""
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}; got {estimator!r}; choose one of them")


def cast(tree: Any, dtype: Any) -> Any:
    """The same tree with its real arrays in one precision."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)
