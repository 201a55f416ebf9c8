"""All that a run needs to go on, as arrays: a resumed run equals an uninterrupted one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int
from langenode.posteriors import Density
from langenode.samplers.common import MOST_PREDICTIONS
from langenode.samplers.ensemble_hmc.kernel import Members, num_predicted

FIRST_STEP_SIZE = 0.1
# Above this many weights the metric is diagonal, and members are fewer.
MOST_DENSE = 50


class Trace(NamedTuple):
    """What is kept of every transition at the posterior, `(transition, member, ...)`."""

    points: np.ndarray
    inside: np.ndarray
    outside: np.ndarray
    log_likelihood: np.ndarray
    squared_norm: np.ndarray
    acceptance: np.ndarray


class State(NamedTuple):
    """The members, how they move, the path they came by, and the draws so far."""

    members: Members
    root: Float[Array, "dim *dim2"]
    log_steps: Float[np.ndarray, " member"]
    step_sum: Float[np.ndarray, " member"]  # of log step sizes in the second half of the warm-up
    curvature_sum: Float[np.ndarray, "dim *dim2"]  # with forgetting
    curvature_weight: Float[np.ndarray, ""]
    step: Int[np.ndarray, ""]  # transitions so far
    num_warm: Int[np.ndarray, ""]
    num_lost: Int[np.ndarray, ""]  # members that were brought back
    powers: Float[np.ndarray, " power"]
    path: Float[np.ndarray, "power member"]  # log-likelihoods of the members at each power
    trace: Trace

    @property
    def power(self) -> float:
        """The power of the likelihood that members are at."""
        return float(self.powers[-1])

    @property
    def num_kept(self) -> int:
        """Transitions at the posterior that count as draws."""
        return len(self.trace.points)


def fresh(density: Density, points: Float[Array, "member dim"]) -> State:
    """Members at their starts, where nothing is evaluated yet: a transition of step zero does that."""
    num, dim = points.shape
    axes = (dim, dim) if dim <= MOST_DENSE else (dim,)
    root = jnp.eye(dim, dtype=density.dtype) if len(axes) == 2 else jnp.ones(dim, density.dtype)
    nothing, dtype = jnp.zeros(num, density.dtype), np.dtype(density.dtype)
    return State(
        members=Members(points, nothing, jnp.zeros_like(points)),
        root=root,
        log_steps=np.full(num, np.log(FIRST_STEP_SIZE), dtype),
        step_sum=np.zeros(num, dtype),
        curvature_sum=np.zeros(axes, dtype),
        curvature_weight=np.zeros((), dtype),
        step=np.zeros((), np.int32),
        num_warm=np.zeros((), np.int32),
        num_lost=np.zeros((), np.int32),
        powers=np.zeros(0, dtype),
        path=np.zeros((0, num), dtype),
        trace=_empty(density, num),
    )


def shape_of(density: Density, num_members: int, num_powers: int, num_kept: int) -> State:
    """A state of these sizes without its numbers, to read a stored one into."""
    like = fresh(density, jnp.zeros((num_members, density.dim), density.dtype))
    like = like._replace(
        powers=np.zeros(num_powers, like.powers.dtype),
        path=np.zeros((num_powers, num_members), like.path.dtype),
        trace=Trace(*(np.zeros((num_kept, *part.shape[1:]), part.dtype) for part in like.trace)),
    )
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), like)


def settled(state: State, dtype: Any) -> State:
    """The numbers on the host in the density's precision, so that a stored state is the state."""

    def one(value: Any) -> np.ndarray:
        value = np.asarray(value)
        return value.astype(dtype if value.dtype.kind == "f" else np.int32)

    host = {name: value for name, value in state._asdict().items() if name not in ("members", "root")}
    return state._replace(**{name: jax.tree.map(one, value) for name, value in host.items()})


def sizes(state: State) -> dict[str, int]:
    """What `shape_of` needs to know."""
    return {"num_members": len(state.log_steps), "num_powers": len(state.powers), "num_kept": state.num_kept}


def _empty(density: Density, num: int) -> Trace:
    dtype = np.dtype(density.dtype)
    sizes = [_num_read(density, function) for function in (density.residual, density.probe)]
    shapes = [(0, num, density.dim), *((0, num, size) for size in sizes), *3 * [(0, num)]]
    return Trace(*(np.zeros(shape, dtype) for shape in shapes))


def _num_read(density: Density, function: Callable[[Array], Array] | None) -> int:
    size = num_predicted(density, function)
    return len(range(0, size, -(-size // MOST_PREDICTIONS))) if size else 0
