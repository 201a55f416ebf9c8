"""NeuralSDE: a hidden state driven by noise, for processes with intrinsic noise.

    dh = R(h, x(t)) dt + g(h, x(t)) dB,    y = h

The diffusion g is positive. Where the state is observed without further noise, a step from one reading to the next has
a known density: the transition likelihood, from which drift and diffusion are learned first.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Bool, Float, PRNGKeyArray
from langenode.models.networks import MLP
from langenode.models.ode import Part

# In scaled units: a vanishing diffusion would make the transition density infinite.
SMALLEST_DIFFUSION = 1e-3


class PositiveOnConcatenation(eqx.Module):
    """A positive network of the hidden state and the inputs: the softplus of a perceptron."""

    network: MLP

    def __call__(self, hidden: Float[Array, " state"], inputs: Float[Array, " in"]) -> Float[Array, " state"]:
        """Evaluate the network at `(hidden, inputs)`."""
        return SMALLEST_DIFFUSION + jax.nn.softplus(self.network(jnp.concatenate([hidden, inputs])))


class NeuralSDE(eqx.Module):
    """A process whose whole state is observed and driven by noise, with one Euler-Maruyama step per data interval.

    **Arguments:**

    - `dynamics`: `(hidden, inputs) -> rate`.
    - `diffusion`: `(hidden, inputs) -> positive numbers`, per component a standard deviation per square root of time.
    """

    is_random: ClassVar[bool] = True

    dynamics: Part
    diffusion: Part

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " state"],
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time state"]:
        """Return one trajectory; without a key, the trajectory without noise."""
        steps = jnp.diff(times)
        noise = jnp.zeros((len(steps), initial.shape[0]), initial.dtype)
        if key is not None:
            noise = jax.random.normal(key, noise.shape, noise.dtype)

        def step(hidden, interval):
            dt, x, normal = interval
            mean, std = self._transition(hidden, x, dt)
            hidden = mean + std * normal
            return hidden, hidden

        _, later = jax.lax.scan(step, initial, (steps, inputs[:-1], noise))
        return jnp.concatenate([initial[None], later])

    def transition_log_density(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        outputs: Float[Array, "time out"],
        mask: Bool[Array, "time out"],
    ) -> Float[Array, ""]:
        """Return the mean log density of a reading given the previous one, over steps between complete readings."""
        complete = mask.all(-1)
        steps = jnp.diff(times)
        used = complete[1:] & complete[:-1] & (steps > 0.0)
        dt = jnp.where(used, steps, 1.0)
        mean, std = jax.vmap(self._transition)(outputs[:-1], inputs[:-1], dt)
        standard = (outputs[1:] - mean) / std
        density = jnp.sum(-0.5 * standard**2 - jnp.log(std) - 0.5 * jnp.log(2.0 * jnp.pi), axis=-1)
        return jnp.where(used, density, 0.0).sum() / jnp.maximum(used.sum(), 1)

    def _transition(self, hidden: Array, inputs: Array, dt: Array) -> tuple[Array, Array]:
        """Return mean and standard deviation of the state after one step."""
        return hidden + dt * self.dynamics(hidden, inputs), jnp.sqrt(dt) * self.diffusion(hidden, inputs)


def has_own_noise(model: object) -> bool:
    """Whether the model's trajectories are random for given weights."""
    return bool(getattr(model, "is_random", False))
