"""Models whose parameters differ between units: a user's equations, and a network with latent inputs of a unit.

`UnitModel` is plain JAX code of the user's with parameters by name; `LatentODE` is the generic model for data without
known equations. Both are `model(times, inputs, initial)` with a trainable `log_noise`, like every model here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.models.effects import Effects
from langenode.models.networks import MLP, scale_last_layer
from langenode.models.ode import Adaptive, Heun, RungeKutta

Noise = Literal["additive", "combined"]


class UnitModel(eqx.Module):
    """Equations of the user's with parameters that differ between units.

    **Arguments:**

    - `effects`: the parameters, `Effects(ka=LogNormal(1.5, 0.6), ...)`; `p` below has them by name.
    - `curve`: `(times, inputs, p) -> outputs`, shapes (time,), (time, in) and (time, out), where there is a formula; or
    - `rate`: `(state, inputs, p) -> d state / dt`, with `start`: `(inputs, p) -> state` at the first time, and
      `observe`: `(state, inputs, p) -> outputs`, by default the state itself.
    - `doses`: `{input: state}`, both by number. The input is a total that has been given so far; what it grows by goes
      into that state at the time from which it is given, before the state is read there; also at the first time.
      `infusions`: the same for an input that is a rate.
    - `noise`: "additive", or "combined" with a part in proportion to the level.

    Functions may be Equinox modules with networks, whose weights all units share.
    """

    effects: Effects
    log_noise: Float[Array, "*part out"]
    curve: Callable[..., Array] | None
    rate: Callable[..., Array] | None
    start: Callable[..., Array] | None
    observe: Callable[..., Array] | None
    solver: RungeKutta | Heun | Adaptive
    doses: tuple[tuple[int, int], ...] = eqx.field(static=True)
    infusions: tuple[tuple[int, int], ...] = eqx.field(static=True)

    def __init__(
        self,
        effects: Effects,
        curve: Callable[..., Array] | None = None,
        *,
        rate: Callable[..., Array] | None = None,
        start: Callable[..., Array] | None = None,
        observe: Callable[..., Array] | None = None,
        doses: Mapping[int, int] | None = None,
        infusions: Mapping[int, int] | None = None,
        noise: Noise = "combined",
        num_outputs: int = 1,
        solver: RungeKutta | Heun | Adaptive | None = None,
    ):
        if noise not in ("additive", "combined"):
            raise ValueError(f"noise must be 'additive' or 'combined'; got {noise!r}; choose one of them")
        self.effects = effects
        self.curve, self.rate, self.start, self.observe = curve, rate, start, observe
        self.doses, self.infusions = tuple((doses or {}).items()), tuple((infusions or {}).items())
        shape = (num_outputs,) if noise == "additive" else (2, num_outputs)
        self.log_noise = jnp.log(jnp.full(shape, 0.1))
        self.solver = RungeKutta() if solver is None else solver

    def __check_init__(self):
        if (self.curve is None) == (self.rate is None):
            raise ValueError("a unit's model is a curve or a rate; found both or neither; give one of them")
        if self.rate is not None and self.start is None:
            raise ValueError("a rate needs a start, (inputs, p) -> state; found none; give it")
        if self.curve is not None and (self.doses or self.infusions):
            raise ValueError("doses go into states, which a curve has not; found doses; write them into the curve")

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " known"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time out"]:
        """Return the outputs of one trajectory; a given start is not used: the equations have their own."""
        del initial, key
        p = self.effects()
        if self.curve is not None:
            return self.curve(times, inputs, p)
        states = self.states(times, inputs)
        if self.observe is None:
            return states
        return jax.vmap(lambda state, x: self.observe(state, x, p))(states, inputs)  # pyright: ignore[reportOptionalCall]

    def states(self, times: Float[Array, " time"], inputs: Float[Array, "time in"]) -> Float[Array, "time state"]:
        """Return the states at the given times."""
        assert self.rate is not None and self.start is not None
        p, rate = self.effects(), self.rate

        def total_rate(state: Array, x: Array) -> Array:
            change = rate(state, x, p)
            for column, place in self.infusions:
                change = change.at[place].add(x[column])
            return change

        def jump(state: Array, given: Float[Array, " in"]) -> Array:
            for column, place in self.doses:
                state = state.at[place].add(given[column])
            return state

        first = jump(jnp.asarray(self.start(inputs[0], p), times.dtype), inputs[0])
        if not self.doses:
            return self.solver(total_rate, first, times, inputs)
        return with_jumps(self.solver, total_rate, jump, first, times, inputs)


def with_jumps(
    solver: Any, rate: Callable[..., Array], jump: Callable[..., Array], first: Array, times: Array, inputs: Array
) -> Float[Array, "time state"]:
    """States with what inputs grow by added at the end of each interval: the first time at which it has been given."""

    def interval(state: Array, ends: Any) -> tuple[Array, Array]:
        span, path = ends
        state = jump(solver(rate, state, span, path)[-1], path[1] - path[0])
        return state, state

    spans, paths = jnp.stack([times[:-1], times[1:]], 1), jnp.stack([inputs[:-1], inputs[1:]], 1)
    return jnp.concatenate([first[None], jax.lax.scan(interval, first, (spans, paths))[1]])


class LatentODE(eqx.Module):
    """A neural ODE with latent inputs `unit`, which differ between units, in the dynamics and in the start.

        dh/dt = R(h, x, unit),    h(0) = (s or A_1, A_2)(x(0), unit),    y = first components of h

    A and R are trained and shared. Where the start s of the outputs is known exactly, it is used; otherwise the first
    readings are data like the others, and the start is an affine map with the offset `offset`.
    """

    unit: Float[Array, " latent"]
    dynamics: MLP
    start: eqx.nn.Linear
    offset: Float[Array, " start"]
    log_noise: Float[Array, "*part out"]
    solver: RungeKutta | Heun | Adaptive
    num_outputs: int = eqx.field(static=True)

    def __call__(
        self,
        times: Float[Array, " time"],
        inputs: Float[Array, "time in"],
        initial: Float[Array, " known"] | None = None,
        *,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "time out"]:
        """Return the outputs of one trajectory."""
        del key
        first = self.start(jnp.concatenate([inputs[0], self.unit])) + self.offset
        if initial is not None:
            first = jnp.concatenate([initial, first])

        def rate(state: Array, x: Array) -> Array:
            return self.dynamics(jnp.concatenate([state, x, self.unit]))

        return self.solver(rate, first, times, inputs)[:, : self.num_outputs]


def latent_ode(
    *,
    num_inputs: int,
    num_outputs: int,
    num_known: int,
    num_hidden: int,
    num_latent: int,
    layers: Sequence[int],
    activation: str,
    solver: RungeKutta | Heun | Adaptive,
    noise: Noise = "combined",
    key: PRNGKeyArray,
) -> LatentODE:
    """Build the generic model; `num_known` is 0, or the number of outputs where their start is known exactly."""
    if num_known not in (0, num_outputs):
        raise ValueError(
            f"of {num_outputs} outputs the start of all or of none must be known; found {num_known}; change it"
        )
    key_dynamics, key_start = jax.random.split(key)
    size = num_outputs + num_hidden
    network = MLP((size + num_inputs + num_latent, *layers, size), activation, skip=True, key=key_dynamics)
    num_start = size - num_known
    linear = eqx.nn.Linear(num_inputs + num_latent, num_start, use_bias=False, key=key_start)
    linear = eqx.tree_at(lambda part: part.weight, linear, 0.3 * linear.weight)
    shape = (num_outputs,) if noise == "additive" else (2, num_outputs)
    return LatentODE(
        unit=jnp.zeros(num_latent),
        dynamics=scale_last_layer(network, 0.1),
        start=linear,
        offset=jnp.zeros(num_start),
        log_noise=jnp.log(jnp.full(shape, 0.2)),
        solver=solver,
        num_outputs=num_outputs,
    )
