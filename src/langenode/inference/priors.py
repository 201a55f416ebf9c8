"""What is believed of the weights before data: a log density on the flat weight vector."""

import equinox as eqx

from langenode._types import Array, Float
from langenode.posteriors.base import normal_log_density
from langenode.posteriors.bounds import Truncation


class GaussianPrior(eqx.Module):
    """Independent normals, a mean and a scale for each stochastic weight; truncated where there are bounds.

    The stationary distribution of the paper's prior process, N(w_bar, I), is `GaussianPrior(w_bar, ones)`.
    """

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]
    lower: Float[Array, " dim"] | None = None
    upper: Float[Array, " dim"] | None = None

    def __check_init__(self):
        if self.mean.shape != self.scale.shape:
            raise ValueError(
                "a prior needs a mean and a scale for each weight; got shapes "
                f"{self.mean.shape} and {self.scale.shape}; give two vectors of the partition's dim"
            )
        if (self.lower is None) != (self.upper is None):
            raise ValueError("bounds are two vectors; got one; give both, with bounds.UNBOUNDED where there is none")

    @property
    def truncation(self) -> Truncation | None:
        """The map of free weights, whose prior is normal, to weights within the bounds; None without bounds."""
        if self.lower is None or self.upper is None:
            return None
        return Truncation(self.mean, self.scale, self.lower, self.upper)

    def to_weights(self, z: Float[Array, "*sample dim"]) -> Float[Array, "*sample dim"]:
        """The weights at a whitened point, in their own precision whatever a library hands in."""
        free = self.mean + self.scale * z.astype(self.mean.dtype)
        return free if self.truncation is None else self.truncation.to_weights(free)

    def to_standard(self, weights: Float[Array, "*sample dim"]) -> Float[Array, "*sample dim"]:
        """The whitened point of `weights`: where the prior is N(0, I)."""
        free = weights if self.truncation is None else self.truncation.to_free(weights)
        return (free - self.mean) / self.scale

    def log_density(self, weights: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density at a weight vector."""
        if self.truncation is not None:
            return self.truncation.log_density(weights)
        return normal_log_density(weights, self.mean, self.scale)
