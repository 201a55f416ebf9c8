"""NeuralODE: a hidden state that evolves, and an observation of it.

    dh/dt = R(h, x(t); w_R),    y = Z(h, x(t); w_Z)                                    (paper, section 3, "Data model")

Either part may be absent: without dynamics the model maps inputs to outputs; without an observation the hidden state
itself is observed. R and Z are any callables of `(hidden, inputs)`: networks, or a user's own JAX code.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.networks import MLP
from langenode.models.sensitivities import at_every_time, evolve

InputRule = Literal["trapezoid", "paper"]
Part = Callable[[Array, Array], Array]


class OnConcatenation(eqx.Module):
    """A network of the hidden state and the inputs, concatenated."""

    network: MLP

    def __call__(self, hidden: Float[Array, " state"], inputs: Float[Array, " in"]) -> Float[Array, " out"]:
        """Evaluate the network at `(hidden, inputs)`."""
        return self.network(jnp.concatenate([hidden, inputs]))


class Heun(eqx.Module):
    """Heun's predictor-corrector method on the data's own times, each interval divided into `substeps`.

    `input_rule="trapezoid"` takes x_n at the first stage and x_{n+1} at the second: second order also for a varying
    input. `"paper"` takes x_{n+1} at both, as printed in the paper: first order for a varying input. Within an interval
    inputs are linear in time.
    """

    substeps: int = eqx.field(static=True, default=1)
    input_rule: InputRule = eqx.field(static=True, default="trapezoid")

    def __check_init__(self):
        if self.substeps < 1:
            raise ValueError(f"substeps must be at least 1; found {self.substeps}; use 1 to step once per interval")
        if self.input_rule not in ("trapezoid", "paper"):
            raise ValueError(f"input_rule must be 'trapezoid' or 'paper'; found {self.input_rule!r}; choose one")

    def __call__(
        self,
        dynamics: Part,
        initial: Float[Array, " state"],
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
    ) -> Float[Array, "time state"]:
        """Return the hidden state at the given times."""
        fractions = jnp.arange(self.substeps) / self.substeps

        def interval(hidden, ends):
            dt, x_start, x_end = ends

            def substep(hidden, fraction):
                x_left = x_start + fraction * (x_end - x_start)
                x_right = x_left + (x_end - x_start) / self.substeps
                return self._step(dynamics, hidden, dt / self.substeps, x_left, x_right), None

            if self.substeps == 1:
                return self._step(dynamics, hidden, dt, x_start, x_end)
            return jax.lax.scan(substep, hidden, fractions.astype(hidden.dtype))[0]

        later = evolve(interval, initial, (jnp.diff(times), inputs[:-1], inputs[1:]))
        return jnp.concatenate([initial[None], later])

    def _step(self, dynamics: Part, hidden, dt, x_left, x_right):
        first = dynamics(hidden, x_right if self.input_rule == "paper" else x_left)
        second = dynamics(hidden + dt * first, x_right)
        return hidden + 0.5 * dt * (first + second)


class RungeKutta(eqx.Module):
    """The classical Runge-Kutta method of fourth order on the data's own times, each interval divided into `substeps`.

    Within an interval inputs are linear in time.
    """

    substeps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        if self.substeps < 1:
            raise ValueError(f"substeps must be at least 1; found {self.substeps}; use 1 to step once per interval")

    def __call__(
        self,
        dynamics: Part,
        initial: Float[Array, " state"],
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
    ) -> Float[Array, "time state"]:
        """Return the hidden state at the given times."""
        fractions = jnp.arange(self.substeps) / self.substeps

        def interval(hidden, ends):
            dt, x_start, x_end = ends

            def substep(hidden, fraction):
                left = x_start + fraction * (x_end - x_start)
                change = (x_end - x_start) / self.substeps
                step = self._step(dynamics, hidden, dt / self.substeps, left, left + 0.5 * change, left + change)
                return step, None

            if self.substeps == 1:
                return substep(hidden, 0.0)[0]
            return jax.lax.scan(substep, hidden, fractions.astype(hidden.dtype))[0]

        later = evolve(interval, initial, (jnp.diff(times), inputs[:-1], inputs[1:]))
        return jnp.concatenate([initial[None], later])

    def _step(self, dynamics: Part, hidden, dt, left, middle, right):
        first = dynamics(hidden, left)
        second = dynamics(hidden + 0.5 * dt * first, middle)
        third = dynamics(hidden + 0.5 * dt * second, middle)
        fourth = dynamics(hidden + dt * third, right)
        return hidden + dt / 6.0 * (first + 2.0 * (second + third) + fourth)


class Adaptive(eqx.Module):
    """Diffrax's adaptive Tsit5 (or the implicit Kvaerno5 for stiff dynamics); inputs are linear between the times."""

    rtol: float = eqx.field(static=True, default=1e-5)
    atol: float = eqx.field(static=True, default=1e-7)
    stiff: bool = eqx.field(static=True, default=False)
    max_steps: int = eqx.field(static=True, default=16384)

    def __call__(
        self,
        dynamics: Part,
        initial: Float[Array, " state"],
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
    ) -> Float[Array, "time state"]:
        """Return the hidden state at the given times."""
        import diffrax  # slow to import (half of langenode's import time) and seldom needed

        def rate(t, hidden, _):
            # Interpolated by hand: padding repeats the last time, which diffrax's interpolations reject.
            x = jax.vmap(lambda column: jnp.interp(t, times, column), in_axes=1)(inputs)
            return dynamics(hidden, x)

        solver = diffrax.Kvaerno5() if self.stiff else diffrax.Tsit5()
        controller = diffrax.PIDController(rtol=self.rtol, atol=self.atol)
        if inputs.shape[1] > 0:
            # The input has a kink at every time; a step across it would be rejected or inaccurate, so steps end there.
            controller = diffrax.ClipStepSizeController(controller, step_ts=times)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(rate),
            solver,
            t0=times[0],
            t1=times[-1],
            dt0=None,
            y0=initial,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=controller,
            max_steps=self.max_steps,
            # A diverging sample gives non-finite outputs, which training skips and counts, instead of an exception.
            throw=False,
        )
        assert solution.ys is not None
        return solution.ys


def make_solver(kind: Literal["heun", "adaptive", "stiff"], substeps: int, input_rule: InputRule) -> Heun | Adaptive:
    """Return the integrator of this name."""
    return Heun(substeps, input_rule) if kind == "heun" else Adaptive(stiff=kind == "stiff")


class NeuralODE(eqx.Module):
    """A process with hidden state: dynamics, observation, start and solver.

    **Arguments:**

    - `dynamics`: `(hidden, inputs) -> rate`, or None for a model without hidden state.
    - `observation`: `(hidden, inputs) -> outputs`, or None to observe the hidden state itself.
    - `initial`: the trainable start, shape `(state,)`; if None, the start is the one passed to the call, else zero.
    - `start`: `(known start, first inputs) -> hidden`, for calls whose `initial` is not the hidden state itself.
    - `log_noise`: log of the noise's standard deviation per output, a weight like any other, where it is inferred; two
      rows where part of the noise is in proportion to the level.
    """

    dynamics: Part | None
    observation: Part | None
    initial: Float[Array, " state"] | None
    log_noise: Float[Array, "*part out"] | None
    start: Part | None
    solver: Heun | Adaptive
    num_hidden: int = eqx.field(static=True)

    def __init__(
        self,
        dynamics: Part | None,
        observation: Part | None = None,
        *,
        num_hidden: int,
        initial: Float[Array, " state"] | None = None,
        log_noise: Float[Array, "*part out"] | None = None,
        start: Part | None = None,
        solver: Heun | Adaptive | None = None,
    ):
        self.dynamics = dynamics
        self.observation = observation
        self.initial = initial
        self.log_noise = log_noise
        self.start = start
        self.solver = Heun() if solver is None else solver
        self.num_hidden = num_hidden

    def __check_init__(self):
        if self.dynamics is None and self.observation is None:
            raise ValueError("a model needs dynamics, an observation or both; found neither; give at least one")
        if (self.dynamics is None) != (self.num_hidden == 0):
            raise ValueError(
                "num_hidden must be 0 exactly where there are no dynamics; found "
                f"num_hidden={self.num_hidden} with dynamics={self.dynamics!r}; make them agree"
            )
        if self.start is not None and self.initial is not None:
            raise ValueError("a start is trainable or computed from what is known; found both; drop one")

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " known"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time out"]:
        """Return the outputs of one trajectory. `key` is for models with a stochastic hidden state and ignored here."""
        del key
        hidden = self.hidden(times, inputs, initial)
        if self.observation is None:
            return hidden
        return at_every_time(self.observation, hidden, inputs)

    def hidden(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " known"] | None = None,
    ) -> Float[Array, "time state"]:
        """Return the hidden state at the given times."""
        if self.dynamics is None:
            return jnp.zeros((times.shape[0], 0), times.dtype)
        if self.initial is not None:
            start = self.initial
        elif self.start is not None:
            known = jnp.zeros(0, times.dtype) if initial is None else initial
            start = self.start(known, inputs[0])
        elif initial is not None:
            start = initial
        else:
            start = jnp.zeros(self.num_hidden, times.dtype)
        return self.solver(self.dynamics, start, times, inputs)


def neural_ode(
    *,
    num_inputs: int,
    num_outputs: int,
    num_hidden: int,
    dynamics_layers: Sequence[int] = (16, 16),
    observation_layers: Sequence[int] | None = (16, 16),
    activation: str = "tanh",
    trainable_initial: bool = False,
    solver: Heun | Adaptive | None = None,
    key: PRNGKeyArray,
) -> NeuralODE:
    """Build a `NeuralODE` of two networks with these hidden layers; `observation_layers=None` observes the state."""
    if observation_layers is None and num_outputs != num_hidden:
        raise ValueError(
            "without an observation network the hidden state is the output, so their sizes must be equal; "
            f"found {num_hidden} and {num_outputs}; give observation_layers or change num_hidden"
        )
    key_dynamics, key_observation = jax.random.split(key)
    dynamics = observation = None
    if num_hidden > 0:
        sizes = (num_hidden + num_inputs, *dynamics_layers, num_hidden)
        dynamics = OnConcatenation(MLP(sizes, activation, key=key_dynamics))
    if observation_layers is not None:
        sizes = (num_hidden + num_inputs, *observation_layers, num_outputs)
        observation = OnConcatenation(MLP(sizes, activation, key=key_observation))
    initial = jnp.zeros(num_hidden) if trainable_initial else None
    return NeuralODE(dynamics, observation, num_hidden=num_hidden, initial=initial, solver=solver)
