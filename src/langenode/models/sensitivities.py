"""Derivatives of trajectories with respect to weights: all steps at once, or forward in time.

The changes of states obey `S' = A S + B dw`, with `A = d step / d state` and `B = d step / d weights`. Once the states
are known, every A and B follows from them without the others. `evolve` therefore differentiates all steps at once, and
only the recursion itself runs step by step. For the gradient of a single number the weights then have one large product
for all steps, where plain back-propagation adds up their gradient in every step.

A Jacobian with respect to p weights costs p tangents through every network, or a backward pass for every output. A step
of a state of n numbers, however, has only n rows, which n backward passes give. `Forwards(function)` has the values of
`function`; its Jacobian is computed in this way, S carried forward in time, in everything that `evolve` and
`at_every_time` run. This pays where states and outputs are fewer than weights; training does not use it.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from langenode._types import Array, Float

# Set only while a `Forwards` is traced, so that no compiled program depends on when it was made.
_is_forwards: ContextVar[bool] = ContextVar("is_forwards", default=False)
# Numbers in a state above which steps are differentiated one by one: A costs one tangent of a step for each of them
# (docs/reference/speed.md).
LARGEST_STATE = 1


class Forwards(eqx.Module):
    """A function to be differentiated: its trajectories carry their sensitivities forward in time."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """Return the function's value."""
        token = _is_forwards.set(True)
        try:
            return self.function(*arguments)
        finally:
            _is_forwards.reset(token)


def evolve(step: Callable[[Array, Any], Array], start: Array, drive: Any) -> Float[Array, "step ..."]:
    """Return the states that follow `start`: `state = step(state, row)` for each row of `drive`."""
    is_forwards = _is_forwards.get()
    if not is_forwards and start.size > LARGEST_STATE:
        return _scan(step, start, drive)
    # Zeros in place of the first row, which a trajectory with a single time does not have.
    plain, weights = _opened(step, start, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), drive))
    return (_evolve if is_forwards else _evolve_at_once)(weights, start, drive, step=plain)


def at_every_time(function: Callable[..., Array], *rows: Array) -> Float[Array, "time ..."]:
    """Return `function` at every row: `jax.vmap`, with a derivative rule of its own."""
    if not _is_forwards.get():
        return jax.vmap(function)(*rows)
    plain, weights = _opened(function, *(row[0] for row in rows))
    return jax.vmap(lambda *row: _at(weights, row, function=plain))(*rows)


def _opened(function: Callable[..., Array], *arguments: Any) -> tuple[Callable[..., Array], list[Array]]:
    """Return the function with the weights it holds as explicit arguments, and these weights."""
    # A lambda, because a module with weights cannot be hashed.
    return jax.closure_convert(lambda *arguments: function(*arguments), *arguments)


def _scan(step: Callable[[Array, Any], Array], start: Array, drive: Any) -> Array:
    def advance(state: Array, row: Any) -> tuple[Array, Array]:
        state = step(state, row)
        return state, state

    return jax.lax.scan(advance, start, drive)[1]


@eqx.filter_custom_jvp
def _evolve_at_once(weights: list[Array], start: Array, drive: Any, *, step: Callable[..., Array]) -> Array:
    return _scan(lambda state, row: step(state, row, *weights), start, drive)


@_evolve_at_once.def_jvp
def _all_steps_at_once(primals: Any, tangents: Any, *, step: Callable[..., Array]) -> tuple[Array, Array]:
    weights, start, drive = primals
    # By the same rule, not by a scan, so that second derivatives are computed in this way, too.
    states = _evolve_at_once(weights, start, drive, step=step)
    before = jnp.concatenate([start[None], states])[:-1]

    def after(weights: list[Array], drive: Any) -> Array:
        return jax.vmap(lambda state, row: step(state, row, *weights))(before, drive)

    def flat_step(state: Array, row: Any) -> Array:
        return jnp.ravel(step(state.reshape(start.shape), row, *weights))

    pushed = jnp.zeros_like(states)
    if jax.tree.leaves((tangents[0], tangents[2])):
        pushed = eqx.filter_jvp(after, (weights, drive), (tangents[0], tangents[2]))[1]
    by_state = jax.vmap(jax.jacfwd(flat_step))(before.reshape(len(before), start.size), drive)

    def advance(change: Array, terms: tuple[Array, Array]) -> tuple[Array, Array]:
        slope, push = terms
        change = jnp.sum(slope * change, axis=-1) + push
        return change, change

    def recursion(first: Array, pushed: Array) -> Array:
        return jax.lax.scan(advance, first, (by_state, pushed))[1]

    first = jnp.zeros(start.size, start.dtype) if tangents[1] is None else jnp.ravel(tangents[1])
    along = (first, pushed.reshape(len(states), start.size))
    # The recursion is linear and so its own derivative; up to JAX 0.9, only as such can a scan be transposed here.
    _, changes = jax.jvp(recursion, jax.tree.map(jnp.zeros_like, along), along)
    return states, changes.reshape(states.shape)


@eqx.filter_custom_jvp
def _evolve(weights: list[Array], start: Array, drive: Any, *, step: Callable[..., Array]) -> Array:
    return _scan(lambda state, row: step(state, row, *weights), start, drive)


@_evolve.def_jvp
def _evolve_forwards(primals: Any, tangents: Any, *, step: Callable[..., Array]) -> tuple[Array, Array]:
    start, drive = primals[1:]
    moving = _Moving.of(primals[:2], tangents[:2])
    if jax.tree.leaves(tangents[2]):  # the drive has a tangent too
        return eqx.filter_jvp(lambda w, h, d: _scan(lambda h, row: step(h, row, *w), h, d), primals, tangents)

    def advance(carry, row):
        state, sensitivities = carry

        def rows(flat, state):
            state = step(state, row, *moving.everything(flat)[0])
            return jnp.ravel(state), state

        (by_weights, by_state), state = jax.jacrev(rows, argnums=(0, 1), has_aux=True)(moving.flat, state)
        by_state = by_state.reshape(state.size, state.size, 1)
        sensitivities = jnp.sum(by_state * sensitivities, axis=1) + by_weights.astype(state.dtype)
        return (state, sensitivities), (state, sensitivities)

    first = jax.jacfwd(lambda flat: jnp.ravel(moving.everything(flat)[1]))(moving.flat).astype(start.dtype)
    _, (states, sensitivities) = jax.lax.scan(advance, (start, first), drive)
    return states, (sensitivities @ moving.direction).reshape(states.shape).astype(states.dtype)


@eqx.filter_custom_jvp
def _at(weights: list[Array], row: tuple[Array, ...], *, function: Callable[..., Array]) -> Array:
    return function(*row, *weights)


@_at.def_jvp
def _at_forwards(primals: Any, tangents: Any, *, function: Callable[..., Array]) -> tuple[Array, Array]:
    moving = _Moving.of(primals, tangents)

    def rows(flat):
        weights, row = moving.everything(flat)
        value = function(*row, *weights)
        return jnp.ravel(value), value

    jacobian, value = jax.jacrev(rows, has_aux=True)(moving.flat)
    return value, (jacobian @ moving.direction).reshape(value.shape).astype(value.dtype)


class _Moving(NamedTuple):
    """The numbers that have a tangent as one vector, this tangent, and the map back to all numbers."""

    flat: Float[Array, " moving"]
    direction: Float[Array, " moving"]
    everything: Callable[[Array], Any]

    @classmethod
    def of(cls, primals: Any, tangents: Any) -> "_Moving":
        """Collect arguments of which some have no tangent (None)."""
        is_moving = jax.tree.map(lambda leaf: leaf is not None, tangents, is_leaf=lambda leaf: leaf is None)
        moving, fixed = eqx.partition(primals, is_moving)
        flat, unravel = ravel_pytree(moving)
        return cls(flat, ravel_pytree(tangents)[0], lambda flat: eqx.combine(unravel(flat), fixed))
