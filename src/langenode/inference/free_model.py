"""A model in free weights: where weights have bounds, what Gauss-Newton sees is the model behind the map into them."""

from typing import Any

import equinox as eqx

from langenode._types import Array, Float
from langenode.inference.partition import Partition
from langenode.posteriors.bounds import Truncation


class FreeModel(eqx.Module):
    """The model at `truncation.to_weights(v)`, with v in the places of its stochastic weights.

    The inner model comes first, so that a partition of it is a partition of this one.
    """

    model: Any
    truncation: Truncation
    partition: Partition

    @classmethod
    def about(cls, model: Any, partition: Partition, truncation: Truncation) -> "FreeModel":
        """The same function as `model`, at the same weights."""
        free = truncation.to_free(partition.flatten(model))
        return cls(partition.combine(model, free), truncation, partition)

    @property
    def log_noise(self) -> Float[Array, "*part out"] | None:
        """The inferred log noise scale, where the model has one."""
        return getattr(self.model, "log_noise", None)

    def __call__(self, times: Array, inputs: Array, initial: Array | None = None) -> Array:
        """The outputs of one trajectory."""
        weights = self.truncation.to_weights(self.partition.flatten(self.model))
        return self.partition.combine(self.model, weights)(times, inputs, initial)
