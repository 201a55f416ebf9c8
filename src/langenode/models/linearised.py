"""A model replaced by its linearisation about some weights: predictions of a Laplace approximation."""

from typing import Any

import equinox as eqx
import jax

from langenode._types import Array, Float


class Linearised(eqx.Module):
    """`f(at) + f'(at) (now - at)`: outputs are linear in the weights of `now`, a model of the structure of `at`.

    A Gauss-Newton curvature is that of this model, so that Gaussian weights go with it rather than with f itself.
    """

    at: Any
    now: Any

    @classmethod
    def about(cls, model: Any) -> "Linearised":
        """The linearisation about a model's own weights."""
        return cls(model, model)

    @property
    def log_noise(self) -> Float[Array, " out"] | None:
        """The noise's scale is not linearised: it is no part of the outputs."""
        return self.now.log_noise

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " state"] | None = None,
        *,
        key: Any = None,
    ) -> Float[Array, "time out"]:
        """The outputs of one trajectory."""
        del key  # a model with noise of its own has no posterior to approximate
        weights, static = eqx.partition(self.at, eqx.is_inexact_array)
        now, _ = eqx.partition(self.now, eqx.is_inexact_array)
        change = jax.tree.map(lambda new, old: new - old, now, weights)
        outputs, slope = jax.jvp(lambda w: eqx.combine(w, static)(times, inputs, initial), (weights,), (change,))
        return outputs + slope
