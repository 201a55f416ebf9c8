"""A model linearised in its weights: the predictions of a Laplace approximation."""

from typing import Any

import equinox as eqx
import jax

from langenode._types import Array, Float


class Linearised(eqx.Module):
    """`f(at) + f'(at) (now - at)`: outputs are linear in the weights of `now`, a model of the same structure as `at`.

    The Gauss-Newton curvature is the curvature of this model, so Gaussian weights belong to it rather than to f itself.
    """

    at: Any
    now: Any

    @classmethod
    def about(cls, model: Any) -> "Linearised":
        """Linearise about a model's own weights."""
        return cls(model, model)

    @property
    def log_noise(self) -> Float[Array, "*part out"] | None:
        """The noise scale, which is not linearised: it is not part of the outputs."""
        return self.now.log_noise

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " state"] | None = None,
        *,
        key: Any = None,
    ) -> Float[Array, "time out"]:
        """Return the outputs of one trajectory."""
        del key  # a model with noise of its own has no posterior to approximate
        weights, static = eqx.partition(self.at, eqx.is_inexact_array)
        now, _ = eqx.partition(self.now, eqx.is_inexact_array)
        change = jax.tree.map(lambda new, old: new - old, now, weights)
        outputs, slope = jax.jvp(lambda w: eqx.combine(w, static)(times, inputs, initial), (weights,), (change,))
        return outputs + slope
