"""The generic model of units that differ where nothing but time drives them: a network of time and latent inputs."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.networks import MLP, scale_last_layer

# Network inputs have a spread of one: so has a uniform distribution over this range.
CLOCK_RANGE = float(np.sqrt(12.0))
# The last layer of the untrained network beside that of an ordinary one.
FIRST_SIZE = 0.3


class LatentCurve(eqx.Module):
    """Outputs as a network of the time, constant inputs, and latent inputs `unit`, which differ between units.

        y(t) = N(s(t), x, unit),    s(t) = log(1 + c t) / log(1 + c)

    It is the solution of the neural ODE whose rates depend on the time, in closed form. With a clock c of 0, s is t;
    with a larger one the beginning of a trajectory, where it was read most often, takes a larger part of s. Where the
    start of the outputs is known exactly, the curve begins there: `y(t) = start + N(s(t), ...) - N(s(0), ...)`.
    """

    unit: Float[Array, " latent"]
    network: MLP
    log_noise: Float[Array, "*part out"]
    clock: float = eqx.field(static=True)

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " known"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time out"]:
        """Return the outputs of one trajectory; times are in units of the longest duration."""
        del key
        shown = jnp.log1p(self.clock * times) / np.log1p(self.clock) if self.clock > 0 else times
        place = CLOCK_RANGE * (shown - 0.5)
        outputs = jax.vmap(lambda s, x: self.network(jnp.concatenate([s[None], x, self.unit])))(place, inputs)
        return outputs if initial is None else initial + outputs - outputs[0]


def latent_curve(
    *,
    num_inputs: int,
    num_outputs: int,
    num_latent: int,
    layers: Sequence[int],
    activation: str,
    clock: float,
    key: PRNGKeyArray,
) -> LatentCurve:
    """Build the untrained model, with noise that has a constant and a proportional part."""
    network = MLP((1 + num_inputs + num_latent, *layers, num_outputs), activation, skip=True, key=key)
    return LatentCurve(
        unit=jnp.zeros(num_latent),
        network=scale_last_layer(network, FIRST_SIZE),
        log_noise=jnp.log(jnp.full((2, num_outputs), 0.2)),
        clock=clock,
    )
