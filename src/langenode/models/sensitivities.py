"""Derivatives of trajectories by many weights: forwards through time, backwards within a step.

A Jacobian by p weights costs p tangents through every network, or a backward pass for every output. But a step of a
state of n numbers has n rows only, which n backward passes give, and then the state's sensitivities S to the weights
obey

    S' = A S + B,    A = d step / d state,    B = d step / d weights

So `Forwards(function)` is a function with the same values, whose Jacobian is taken in this way in all that `evolve` and
`at_every_time` run. It pays where states and outputs are fewer than weights. For the gradient of one number a backward
pass through everything is cheaper: training does without.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from langenode._types import Array, Float

# Set while a `Forwards` is traced and no longer, so that no compiled program depends on when it was made.
_is_forwards: ContextVar[bool] = ContextVar("is_forwards", default=False)


class Forwards(eqx.Module):
    """A function whose Jacobian is wanted: its trajectories carry their sensitivities along."""

    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        """The function's value."""
        token = _is_forwards.set(True)
        try:
            return self.function(*arguments)
        finally:
            _is_forwards.reset(token)


def evolve(step: Callable[[Array, Any], Array], start: Array, drive: Any) -> Float[Array, "step ..."]:
    """The states that follow `start`: `state = step(state, row)` for each row of `drive`."""
    if not _is_forwards.get():
        return _scan(step, start, drive)
    plain, weights = _opened(step, start, jax.tree.map(lambda leaf: leaf[0], drive))
    return _evolve(weights, start, drive, step=plain)


def at_every_time(function: Callable[..., Array], *rows: Array) -> Float[Array, "time ..."]:
    """`function` at every row: `jax.vmap`, but for how it is differentiated."""
    if not _is_forwards.get():
        return jax.vmap(function)(*rows)
    plain, weights = _opened(function, *(row[0] for row in rows))
    return jax.vmap(lambda *row: _at(weights, row, function=plain))(*rows)


def _opened(function: Callable[..., Array], *arguments: Any) -> tuple[Callable[..., Array], list[Array]]:
    """A function of its arguments and of the weights that it held; and these weights."""
    # In a lambda, since a module with weights cannot be hashed.
    return jax.closure_convert(lambda *arguments: function(*arguments), *arguments)


def _scan(step: Callable[[Array, Any], Array], start: Array, drive: Any) -> Array:
    def advance(state: Array, row: Any) -> tuple[Array, Array]:
        state = step(state, row)
        return state, state

    return jax.lax.scan(advance, start, drive)[1]


@eqx.filter_custom_jvp
def _evolve(weights: list[Array], start: Array, drive: Any, *, step: Callable[..., Array]) -> Array:
    return _scan(lambda state, row: step(state, row, *weights), start, drive)


@_evolve.def_jvp
def _evolve_forwards(primals: Any, tangents: Any, *, step: Callable[..., Array]) -> tuple[Array, Array]:
    start, drive = primals[1:]
    moving = _Moving.of(primals[:2], tangents[:2])
    if jax.tree.leaves(tangents[2]):  # the drive moves, too
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
    """The numbers that have a tangent as one vector, this tangent, and the way back to all numbers."""

    flat: Float[Array, " moving"]
    direction: Float[Array, " moving"]
    everything: Callable[[Array], Any]

    @classmethod
    def of(cls, primals: Any, tangents: Any) -> "_Moving":
        """Of arguments of which some have no tangent (None)."""
        is_moving = jax.tree.map(lambda leaf: leaf is not None, tangents, is_leaf=lambda leaf: leaf is None)
        moving, fixed = eqx.partition(primals, is_moving)
        flat, unravel = ravel_pytree(moving)
        return cls(flat, ravel_pytree(tangents)[0], lambda flat: eqx.combine(unravel(flat), fixed))
