"""The one compiled program of the ensemble: a Hamiltonian transition of every member at a power of the likelihood.

Everything that changes during a run (power, step sizes, metric, number of leapfrog steps) is an argument, so that
annealing, warm-up and draws share the program, and compilation is paid once.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int
from langenode.posteriors import Density
from langenode.samplers.common import LOWEST_LOG_LIKELIHOOD, MOST_PREDICTIONS

# Step sizes are multiplied by 4 to a power uniform between these, so that no stiff or soft place stays out of reach.
JITTER = (-0.75, 0.25)
# Random signs by which curvatures are estimated, for a diagonal and for a dense metric.
NUM_SIGNS, NUM_DENSE_SIGNS = 8, 32


class Members(NamedTuple):
    """Where the members are, with their log-likelihoods and the gradients of these."""

    points: Float[Array, "member dim"]
    log_likelihood: Float[Array, " member"]
    gradient: Float[Array, "member dim"]


class Seen(NamedTuple):
    """What is read off the members after a transition.

    `curvature` estimates each member's diagonal (or matrix) of J'J, zero where it was not asked for.
    """

    acceptance: Float[Array, " member"]
    inside: Float[Array, "member inside"]
    outside: Float[Array, "member outside"]
    squared_norm: Float[Array, " member"]
    curvature: Float[Array, "member dim *dim2"]


class Noise(NamedTuple):
    """The random numbers of a transition, made on the host: compiling their generator would take seconds."""

    momentum: Float[Array, "member dim"]
    jitter: Float[Array, " member"]  # factors on the step sizes
    uniform: Float[Array, " member"]  # that decide on acceptance
    signs: Float[Array, "sign residual"]


def noise_of(rng: np.random.Generator, density: Density, num_members: int, is_dense: bool) -> Noise:
    """Random numbers of one transition, for all members."""
    num_signs = NUM_DENSE_SIGNS if is_dense else NUM_SIGNS
    parts = {
        "momentum": rng.standard_normal((num_members, density.dim)),
        "jitter": 4.0 ** rng.uniform(*JITTER, num_members),
        "uniform": rng.random(num_members),
        "signs": rng.choice((-1.0, 1.0), (num_signs, num_predicted(density, density.residual))),
    }
    return Noise(**{name: jnp.asarray(part, density.dtype) for name, part in parts.items()})


def num_predicted(density: Density, function: Callable[[Array], Array] | None) -> int:
    """How many numbers a function of the weights gives."""
    if function is None:
        return 0
    return jax.eval_shape(function, jax.ShapeDtypeStruct((density.dim,), density.dtype)).shape[0]


@eqx.filter_jit
def transition(
    density: Density,
    members: Members,
    root: Float[Array, "dim *dim2"],
    power: Float[Array, ""],
    step_sizes: Float[Array, " member"],
    num_leapfrog: Int[Array, ""],
    wants_curvature: Array,
    noise: Noise,
) -> tuple[Members, Seen]:
    """Move every member by HMC on `N(z; 0, I) L(z)^power`, in the coordinates u of `z + root u`.

    A diagonal root is a vector.
    """

    def one(member: Members, *parts: Array) -> tuple[Members, Array]:
        return _move(density, member, root, power, num_leapfrog, *parts)

    step_sizes = step_sizes * noise.jitter
    members, acceptance = jax.vmap(one)(members, step_sizes, noise.momentum, noise.uniform)
    curvature = jax.lax.cond(
        wants_curvature,
        lambda: jax.vmap(lambda member: _curvature(density, member, root.ndim, noise.signs))(members),
        lambda: jnp.zeros((members.points.shape[0], *root.shape), density.dtype),
    )
    inside, outside = (_read(function, members.points) for function in (density.residual, density.probe))
    return members, Seen(acceptance, inside, outside, jnp.sum(members.points**2, axis=1), curvature)


def _move(
    density: Density,
    member: Members,
    root: Array,
    power: Array,
    num_leapfrog: Array,
    step_size: Array,
    momentum: Array,
    uniform: Array,
) -> tuple[Members, Array]:
    def leap(_: Any, carry: tuple[Members, Array]) -> tuple[Members, Array]:
        return leapfrog(density, *carry, root=root, power=power, step_size=step_size)

    end, end_momentum = jax.lax.fori_loop(0, num_leapfrog, leap, (member, momentum))
    gain = log_target(end, end_momentum, power) - log_target(member, momentum, power)
    acceptance = jnp.where(jnp.isnan(gain), 0.0, jnp.exp(jnp.minimum(gain, 0.0))).astype(density.dtype)
    is_accepted = uniform < acceptance
    return jax.tree.map(lambda new, old: jnp.where(is_accepted, new, old), end, member), acceptance


def leapfrog(
    density: Density, member: Members, momentum: Array, *, root: Array, power: Array, step_size: Array
) -> tuple[Members, Array]:
    """One step of one member: half a kick, a drift, half a kick."""
    momentum = momentum + 0.5 * step_size * _turned(root, power * member.gradient - member.points)
    points = member.points + step_size * (root * momentum if root.ndim == 1 else root @ momentum)
    member = evaluated(density, points)
    return member, momentum + 0.5 * step_size * _turned(root, power * member.gradient - member.points)


def _turned(root: Array, slope: Array) -> Array:
    return root * slope if root.ndim == 1 else root.T @ slope


def log_target(member: Members, momentum: Array, power: Array) -> Float[Array, ""]:
    """Minus the Hamiltonian, up to a constant."""
    return power * member.log_likelihood - 0.5 * (jnp.sum(member.points**2) + jnp.sum(momentum**2))


def evaluated(density: Density, points: Float[Array, " dim"]) -> Members:
    """One member at a point.

    Where the model gives no number the log-likelihood is very low, so that the move is rejected, and its gradient is
    taken as zero. That is exact: leapfrog steps preserve volume and can be reversed along any field.
    """
    value: Array
    slope: Array
    value, slope = jax.value_and_grad(density.log_likelihood)(points)
    is_sound = jnp.isfinite(value) & jnp.all(jnp.isfinite(slope)) & (value > LOWEST_LOG_LIKELIHOOD)
    return Members(points, jnp.where(is_sound, value, LOWEST_LOG_LIKELIHOOD), jnp.where(is_sound, slope, 0.0))


def _curvature(density: Density, member: Members, num_axes: int, signs: Array) -> Array:
    """An unbiased estimate of J'J or its diagonal from random signs s: `E[(J's)(J's)'] = J'J`.

    Without residuals the squared gradient of the log-likelihood stands for it.
    """
    if density.residual is None:
        rows = member.gradient[None]
    else:
        residual: Callable[[Array], Array] = getattr(density.residual, "function", density.residual)
        _, pull = jax.vjp(residual, member.points)
        rows = jax.vmap(lambda s: pull(s)[0])(signs)
    rows = jnp.where(jnp.all(jnp.isfinite(rows)), rows, 0.0)
    return jnp.mean(rows**2, axis=0) if num_axes == 1 else rows.T @ rows / rows.shape[0]


def _read(function: Callable[[Array], Array] | None, points: Array) -> Float[Array, "member number"]:
    """At most `MOST_PREDICTIONS` numbers of what a function predicts; none where there is no function."""
    if function is None:
        return jnp.zeros((points.shape[0], 0), points.dtype)
    values = jax.vmap(function)(points)
    return values[:, :: -(-values.shape[1] // MOST_PREDICTIONS)]
