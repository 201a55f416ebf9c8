"""Black-box variational inference with one Gaussian: the paper's baseline, full, diagonal or low rank.

`w = mean + L (shift + C eps)` with C lower triangular, diagonal, or diagonal plus low rank. The KL from the reference
N(0, I) in z is closed: `1/2 [ |shift|^2 + tr(C C^T) - dim - log det(C C^T) ]`.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import (
    AbstractVariational,
    Draw,
    Estimator,
    Reference,
    check_estimator,
    normal_log_density,
    only,
)

Covariance = Literal["full", "diagonal", "lowrank"]


class Gaussian(AbstractVariational):
    """A Gaussian in the reference's coordinates.

    `log_scale` is the log of C's diagonal; `lower` (full) holds the strict lower triangle; `factor` (low rank) adds
    `factor factor^T` to the diagonal covariance.
    """

    reference: Reference
    shift: Float[Array, " dim"]
    log_scale: Float[Array, " dim"]
    lower: Float[Array, "dim dim"] | None
    factor: Float[Array, "dim rank"] | None
    estimator: Estimator = eqx.field(static=True, default="reparametrised")

    def __check_init__(self):
        check_estimator(self.estimator)

    @property
    def dim(self) -> int:
        """How many weights a sample holds."""
        return self.shift.shape[0]

    def covariance_root(self) -> Float[Array, "dim noise"]:
        """A matrix A with `A A^T` the covariance in z."""
        diagonal = jnp.diag(jnp.exp(self.log_scale))
        if self.lower is not None:
            return diagonal + jnp.tril(self.lower, -1)
        return diagonal if self.factor is None else jnp.concatenate([diagonal, self.factor], axis=1)

    def trained(self) -> Any:
        """Everything but the reference."""
        return only(self, "shift", "log_scale", "lower", "factor")

    @property
    def num_noise(self) -> int:
        """One number per weight, and one per column of a low-rank factor."""
        return self.dim + (0 if self.factor is None else self.factor.shape[1])

    def from_noise(self, white: Float[Array, " noise"]) -> Float[Array, " dim"]:
        """`mean + L (shift + C white)`."""
        return self.reference.to_weights(self.shift + self._coloured(white[: self.dim], white[self.dim :]))

    def make_draw(self, density: "Gaussian", *, key: PRNGKeyArray, diffusion: Float[Array, ""] | None) -> Draw:
        """One draw of the weights; there is no path and no diffusion."""
        del diffusion
        z = self.shift + self._spread(key)
        log_standard = normal_log_density(z, 0.0, 1.0)
        return Draw(
            weights=self.reference.to_weights(z),
            kl=self.kl(),
            log_ratio=density.log_density(z) - log_standard,
            log_reference=log_standard - self.reference.log_det,
        )

    def log_density(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density in the reference's coordinates."""
        residual = z - self.shift
        scale = jnp.exp(self.log_scale)
        if self.lower is not None:
            standard = jax.scipy.linalg.solve_triangular(self.covariance_root(), residual, lower=True)
            return normal_log_density(standard, 0.0, 1.0) - jnp.sum(self.log_scale)
        if self.factor is None:
            return normal_log_density(residual, 0.0, scale)
        # Woodbury and the determinant lemma: only a rank x rank system is solved.
        scaled = self.factor / scale[:, None]
        gram = jnp.eye(scaled.shape[1], dtype=z.dtype) + scaled.T @ scaled
        projected = scaled.T @ (residual / scale)
        correction = 0.5 * projected @ jnp.linalg.solve(gram, projected) - 0.5 * jnp.linalg.slogdet(gram)[1]
        return normal_log_density(residual, 0.0, scale) + correction

    def kl(self) -> Float[Array, ""]:
        """KL from the reference."""
        root_squares = jnp.exp(2.0 * self.log_scale).sum()
        log_det = 2.0 * jnp.sum(self.log_scale)
        if self.lower is not None:
            root_squares = root_squares + jnp.sum(jnp.tril(self.lower, -1) ** 2)
        if self.factor is not None:
            root_squares = root_squares + jnp.sum(self.factor**2)
            scaled = self.factor / jnp.exp(self.log_scale)[:, None]
            log_det = log_det + jnp.linalg.slogdet(jnp.eye(scaled.shape[1], dtype=scaled.dtype) + scaled.T @ scaled)[1]
        return 0.5 * (jnp.sum(self.shift**2) + root_squares - self.dim - log_det)

    def _spread(self, key: PRNGKeyArray) -> Float[Array, " dim"]:
        key_diagonal, key_factor = jax.random.split(key)
        noise = jax.random.normal(key_diagonal, (self.dim,), self.shift.dtype)
        rank = 0 if self.factor is None else self.factor.shape[1]
        return self._coloured(noise, jax.random.normal(key_factor, (rank,), noise.dtype))

    def _coloured(self, noise: Float[Array, " dim"], more: Float[Array, " rank"]) -> Float[Array, " dim"]:
        spread = jnp.exp(self.log_scale) * noise
        if self.lower is not None:
            spread = spread + jnp.tril(self.lower, -1) @ noise
        return spread if self.factor is None else spread + self.factor @ more


def gaussian(
    reference: Reference,
    covariance: Covariance = "full",
    *,
    rank: int = 4,
    estimator: Estimator = "reparametrised",
    key: PRNGKeyArray,
) -> Gaussian:
    """A Gaussian that starts at the reference (low rank: with a small random factor, since zero is a saddle)."""
    if covariance not in ("full", "diagonal", "lowrank"):
        raise ValueError(f"covariance must be 'full', 'diagonal' or 'lowrank'; got {covariance!r}; choose one of them")
    zeros = jnp.zeros_like(reference.mean)
    dim = zeros.shape[0]
    lower = jnp.zeros((dim, dim), zeros.dtype) if covariance == "full" else None
    factor = 0.1 * jax.random.normal(key, (dim, rank), zeros.dtype) if covariance == "lowrank" else None
    return Gaussian(reference=reference, shift=zeros, log_scale=zeros, lower=lower, factor=factor, estimator=estimator)
