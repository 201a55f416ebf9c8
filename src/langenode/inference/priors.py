"""What is believed of the weights before data: a log density on the flat weight vector."""

import equinox as eqx

from langenode._types import Array, Float
from langenode.posteriors.base import normal_log_density


class GaussianPrior(eqx.Module):
    """Independent normals, a mean and a scale for each stochastic weight.

    The stationary distribution of the paper's prior process, N(w_bar, I), is `GaussianPrior(w_bar, ones)`.
    """

    mean: Float[Array, " dim"]
    scale: Float[Array, " dim"]

    def __check_init__(self):
        if self.mean.shape != self.scale.shape:
            raise ValueError(
                "a prior needs a mean and a scale for each weight; got shapes "
                f"{self.mean.shape} and {self.scale.shape}; give two vectors of the partition's dim"
            )

    def to_weights(self, z: Float[Array, "*sample dim"]) -> Float[Array, "*sample dim"]:
        """The weights at a whitened point, in their own precision whatever a library hands in."""
        return self.mean + self.scale * z.astype(self.mean.dtype)

    def to_standard(self, weights: Float[Array, "*sample dim"]) -> Float[Array, "*sample dim"]:
        """The whitened point of `weights`: where the prior is N(0, I)."""
        return (weights - self.mean) / self.scale

    def log_density(self, weights: Float[Array, " dim"]) -> Float[Array, ""]:
        """Log density at a weight vector."""
        return normal_log_density(weights, self.mean, self.scale)
