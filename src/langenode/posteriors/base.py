"""What every posterior can do: give samples of the stochastic weights; and the reference they are measured from."""

import abc
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._arrays import placed
from langenode._types import Array, Float, PRNGKeyArray

Estimator = Literal["reparametrised", "sticking", "log_variance"]
ESTIMATORS: tuple[Estimator, ...] = ("reparametrised", "sticking", "log_variance")


class Draw(NamedTuple):
    """One draw of a variational posterior, with what a bound and an importance weight need.

    `log_ratio` is the log Radon-Nikodym derivative of our distribution of the path with respect to the reference's, at
    this path; `kl` has the same expectation, with the randomness at given states integrated out. `log_reference` is
    the log density of `weights` at the end of the reference, so that
    `log_likelihood + log_prior - log_reference - log_ratio` is the log weight.
    """

    weights: Float[Array, " dim"]
    kl: Float[Array, ""]
    log_ratio: Float[Array, ""]
    log_reference: Float[Array, ""]


class BoundTerms(NamedTuple):
    """How the training loss uses a draw; the defaults are those of the exact bound.

    `kl_factor` multiplies the KL. Without `has_end_term` the prior's density relative to that of the reference at its
    end, `log prior - log r_K`, is left out. Importance weights and reported bounds are exact whatever these are.
    """

    kl_factor: float = 1.0
    has_end_term: bool = True


class AbstractPosterior(eqx.Module):
    """A distribution of the stochastic weights that can be sampled. Knows weight vectors only."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """How many weights a sample holds."""

    @abc.abstractmethod
    def sample(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent draws, equally weighted."""


class AbstractVariational(AbstractPosterior):
    """A posterior that is trained: it also tells how far each draw is from the reference.

    `has_density` is False where the weights have no density (a bottleneck): such a posterior can match a population,
    but no likelihood bound or importance weight exists for it.
    """

    has_density: ClassVar[bool] = True
    estimator: eqx.AbstractVar[Estimator]

    @property
    def bound_terms(self) -> BoundTerms:
        """How the training loss uses its draws: by the exact bound, unless told otherwise."""
        return BoundTerms()

    @abc.abstractmethod
    def trained(self) -> Any:
        """A tree of booleans in the shape of this one: True at the numbers that training changes."""

    @abc.abstractmethod
    def make_draw(self, density: Any, *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None) -> Draw:
        """One draw whose path is made by this distribution and whose log ratio is taken under `density`.

        The two have equal numbers and differ only in what gradients reach; the KL is that of the distribution which
        makes the path.
        """

    def draw(self, *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None = None) -> Draw:
        """One draw. `diffusion` (gamma) takes the place of the stored one, for distributions that have one."""
        path, density = path_and_density(self)
        return path.make_draw(density, key=key, diffusion=diffusion)

    def draws(self, keys: Array, *, diffusion: Float[Array, ""] | None = None) -> Draw:
        """One draw per key: that of `draw` to rounding, so that results do not depend on how samples are chunked."""
        path, density = path_and_density(self)
        return path.make_draws(density, keys, diffusion)

    def make_draws(self, density: Any, keys: Array, diffusion: Float[Array, ""] | None) -> Draw:
        """`make_draw` for many keys; a distribution that has a quicker way for all of them at once takes it here."""
        return jax.vmap(lambda key: self.make_draw(density, key=key, diffusion=diffusion))(keys)

    def with_memory(self, memory: Any) -> "AbstractVariational":
        """The same distribution with another amount kept for gradients; itself where there is no choice."""
        del memory
        return self

    def is_long(self, num_samples: int) -> bool:
        """Whether gradients of that number of draws keep enough that something has to be chosen."""
        del num_samples
        return False

    @property
    @abc.abstractmethod
    def num_noise(self) -> int:
        """How many independent standard normal numbers one draw is made of."""

    @abc.abstractmethod
    def from_noise(self, white: Float[Array, " noise"]) -> Float[Array, " dim"]:
        """The weights that white noise becomes: the distribution as a map of N(0, I), with no key."""

    def with_diffusion(self, diffusion: Float[Array, ""]) -> "AbstractVariational":
        """The same distribution with another stored gamma; itself where it has none."""
        del diffusion
        return self

    def sample(self, num_samples: int, *, key: PRNGKeyArray) -> Float[Array, "sample dim"]:
        """Independent draws, equally weighted."""
        return self.draws(jax.random.split(key, num_samples)).weights


Trained = TypeVar("Trained", bound=AbstractVariational)
Tree = TypeVar("Tree")


def path_and_density(posterior: Trained) -> tuple[Trained, Trained]:
    """The gradient estimator as a pair: the distribution that makes the path, and the one whose density is taken.

    - `reparametrised`: gradients reach both.
    - `sticking`: the density's parameters are constants; gradients reach the path only.
    - `log_variance`: the path is data; gradients reach its density only.
    """
    live, fixed = posterior, without_gradients(posterior)
    return {"reparametrised": (live, live), "sticking": (live, fixed), "log_variance": (fixed, live)}[live.estimator]


def without_gradients(tree: Tree) -> Tree:
    """The same tree, closed to gradients."""
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, tree)


def only(module: eqx.Module, *names: str) -> Any:
    """A tree of booleans in the shape of a module: True at the real arrays in the fields of these names."""

    def flag(path: tuple[Any, ...], leaf: Any) -> bool:
        return eqx.is_inexact_array(leaf) and path[0].name in names

    return jax.tree_util.tree_map_with_path(flag, module)


class Reference(eqx.Module):
    """The Gaussian distribution the chain has without control: `w = mean + L z` with `z ~ N(0, I)`.

    `L = diag(scale) (I + factor factor^T)`; the low-rank factor may be absent. It is a choice, never trained. It need
    not be the prior (METHOD: "Reference and prior are two things").
    """

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    factor: Float[Array, "dim rank"] | None = None

    def to_weights(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The weights at the standardised point `z`."""
        if self.factor is not None:
            z = z + self.factor @ (self.factor.T @ z)
        return self.mean + self.scale * z

    def to_standard(self, weights: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """The standardised point of `weights`: the inverse of `to_weights`."""
        z = (weights - self.mean) / self.scale
        if self.factor is not None:
            gram = jnp.eye(self.factor.shape[1], dtype=z.dtype) + self.factor.T @ self.factor
            z = z - self.factor @ jnp.linalg.solve(gram, self.factor.T @ z)
        return z

    @property
    def log_det(self) -> Float[Array, ""]:
        """log |det L|."""
        value = jnp.sum(jnp.log(self.scale))
        if self.factor is not None:
            gram = jnp.eye(self.factor.shape[1], dtype=value.dtype) + self.factor.T @ self.factor
            value = value + jnp.linalg.slogdet(gram)[1]
        return value


def normal_log_density(
    x: Float[Array, " dim"],
    mean: Float[Array, " dim"] | float,
    scale: Float[Array, " dim"] | Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Log density of independent normals, summed over the weights."""
    return jnp.sum(log_normal(x, mean, scale))


def log_normal(x: Float[Array, "..."], mean: Any, scale: Any) -> Float[Array, "..."]:
    """Log density of N(mean, scale^2) in every element; shapes broadcast."""
    standard = (x - mean) / scale
    return -0.5 * standard**2 - jnp.log(scale) - 0.5 * jnp.log(2.0 * jnp.pi)


def normal_kl(mean_shift: Float[Array, " dim"], variance_ratio: Float[Array, " dim"]) -> Float[Array, ""]:
    """KL of N(shift, ratio) from N(0, 1) in each weight, summed: `1/2 sum [shift^2 + ratio - 1 - log ratio]`."""
    return 0.5 * jnp.sum(mean_shift**2 + variance_ratio - 1.0 - jnp.log(variance_ratio))


def check_estimator(estimator: str) -> None:
    """Raise where a gradient estimator is unknown."""
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}; got {estimator!r}; choose one of them")


def cast(tree: Any, dtype: Any) -> Any:
    """The same tree with its real arrays in one precision."""
    is_other = lambda leaf: eqx.is_inexact_array(leaf) and leaf.dtype != dtype  # noqa: E731
    return jax.tree.map(lambda leaf: placed(leaf, dtype) if is_other(leaf) else leaf, tree)
