"""The OU bridge that guided paths step along: its grid and constants, and the distribution of its end given the data.

With `rho = e^-(T-tau)`, `v = 1 - rho^2` and primes for the next knot, the reference's step is `w' = a w + s n` with
`a = rho/rho'`, `s^2 = 1 - a^2`, and the gain towards an end point x is `g = rho' s/v`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.samplers.gauss_newton import Form, Objective, Residual

LogLikelihood = Callable[[Array], Array]


class Target(NamedTuple):
    """What is sampled: the residuals steer, the log-likelihood weighs."""

    residual: Residual
    log_likelihood: LogLikelihood
    form: Form


class Level(NamedTuple):
    """The constants of a step, from `rho` and `variance` v at its beginning to its end."""

    rho: Array
    variance: Array
    decay: Array  # a
    scale: Array  # s
    gain: Array  # g
    kept: Array  # v'/v

    def between(self, begin: int, end: int | None) -> "Level":
        """The steps of a range."""
        return jax.tree.map(lambda column: column[begin:end], self)

    def at(self, step: int) -> "Level":
        """One step."""
        return jax.tree.map(lambda column: column[step], self)


def make_levels(num_steps: int, horizon: float, dtype: Any) -> Level:
    """All steps on the grid `v_k = (1 - e^-2T)(1 - k/K)^2`, after the start's from v = 1; in 64 bits, then rounded."""
    if num_steps < 1 or not 0.0 < horizon < math.inf:
        raise ValueError(
            f"paths need a step and a positive horizon; got num_steps={num_steps}, horizon={horizon}; raise them"
        )
    share = (1.0 - np.arange(num_steps + 1) / num_steps) ** 2
    v = np.append(1.0, -np.expm1(-2.0 * horizon) * share)
    rho = np.sqrt(1.0 - v)
    scale = np.sqrt((v[:-1] - v[1:]) / (1.0 - v[1:]))
    columns = (rho[:-1], v[:-1], rho[:-1] / rho[1:], scale, rho[1:] * scale / v[:-1], v[1:] / v[:-1])
    return Level(*(jnp.asarray(column, dtype) for column in columns))


def end_point(target: Target, level: Level, eta: Array, w: Float[Array, " dim"]) -> Objective:
    """The log density of a path's end given its state w and the data, softened by `t = 1/(1 + eta v)`."""
    return Objective(target.residual, level.rho * w, level.variance, 1.0 / (1.0 + eta * level.variance))


def path_keys(key: PRNGKeyArray, num: int) -> Array:
    """One key per path, the same however many paths there are."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(num))


def in_groups(batched: Any, num: int, size: int) -> Any:
    """Leaves `(num, ...)` as `(group, at most size, ...)`, all groups alike: the last is filled up by the last row.

    `jax.lax.map(batch_size=...)` runs a shorter last group beside the others, and two programs that factorise many
    matrices at once can wait for each other forever on a processor with few cores.
    """
    num_groups = -(-num // min(size, num))
    even = -(-num // num_groups)
    rows = np.minimum(np.arange(num_groups * even), num - 1)

    def grouped(leaf: Array) -> Array:
        leaf = leaf if len(rows) == num else leaf[rows]
        return leaf.reshape(num_groups, even, *leaf.shape[1:])

    return jax.tree.map(grouped, batched)
