"""The run: annealing, warm-up, and draws until the members agree, the budget ends, or the most are made."""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, OnStep, PRNGKeyArray
from langenode.posteriors import Density, Sampled, Trust
from langenode.samplers.common import LOWEST_LOG_LIKELIHOOD, at_least, finish
from langenode.samplers.ensemble_hmc.annealing import log_evidence, next_power
from langenode.samplers.ensemble_hmc.kernel import Members, Seen, noise_of, transition
from langenode.samplers.ensemble_hmc.state import MOST_DENSE, State, Trace, fresh, settled
from langenode.samplers.modes import SHRINKS, check_prior
from langenode.scores import chains

TARGET_ACCEPTANCE = 0.9
# Transitions of the warm-up at which the metric is renewed, and how much of earlier curvatures is kept each time.
RENEWALS, FORGETTING = (2, 4, 6, 9, 13, 18), 0.7
# Transitions of the warm-up before which lost members are brought back. A member is lost where its log-likelihood is
# below that of the best quarter by LOST nats, and by LOST_SPREADS times the spread of the members: that of the middle
# 80 %, or BEST_SPREADS times that of the best quarter where this is less, since more than half may be lost.
RETURNS, LOST, LOST_SPREADS, BEST_SPREADS = (0, 6, 12), 30.0, 2.5, 6.0
# Transitions between two comparisons of the members, and the fewest that a budget leaves.
LOOK, FEWEST = 64, 16
# How well means of predictions inside the data are to be known, in standard deviations of the posterior; the second is
# for few weights, whose transitions are cheap. Twice as many transitions as usual are made where these are not known,
# or where members do not agree but are near to it: R-hats of at most NEAR.
MEAN_ERROR, SMALL_MEAN_ERROR, EXTENSION, NEAR = 0.03, 0.015, 2, 1.1
LOWEST_ACCEPTANCE = 0.1
# For a log-evidence, trajectories of the annealing are cut into pieces: one long trajectory keeps half of the energy by
# which the members lag behind the power, whatever its length.
PIECES = 4
NAME = "ensemble-hmc"
OnState = Callable[[State], None]


class _Options(NamedTuple):
    num_leapfrog: int
    num_warmup: int
    num_pieces: int = 1  # transitions at each power of the annealing, which share the leapfrog steps of one


class _Limits(NamedTuple):
    """When draws end: `least` and `most` transitions, and `longest` where members nearly agree."""

    least: int
    most: int
    longest: int
    mean_error: float


def ensemble_hmc(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_members: int | None = None,
    num_leapfrog: int | None = None,
    num_warmup: int = 24,
    num_draws: int = 4096,
    with_evidence: bool = False,
    least_transitions: int | None = None,
    most_transitions: int | None = None,
    budget: float | None = None,
    on_step: OnStep | None = None,
    state: State | None = None,
    on_state: OnState | None = None,
) -> Sampled:
    """Draws of all members together, at most `num_draws`, spread evenly over the transitions.

    By default 16 members with trajectories of 256 leapfrog steps, a diagonal metric and 192 to 512 transitions; up to
    50 weights 32 members, 128 steps, a dense metric and 128 to 256 transitions. Draws end when both verdicts pass and
    the means of predictions inside the data are known to 0.03 (0.015) standard deviations. If the number of transitions
    is not given, up to twice as many are made where members nearly agree or means are not known.
    `budget` is in seconds: annealing is never cut, and some transitions are always made. A run resumes at `state`;
    `on_state` is called after every transition. `with_evidence` adds a rough log-evidence, for which the members
    follow the powers down again.
    """
    is_small = density.dim <= MOST_DENSE
    num_members = num_members or (32 if is_small else 16)
    options = _Options(num_leapfrog or (128 if is_small else 256), num_warmup, PIECES if with_evidence else 1)
    most = most_transitions or (256 if is_small else 512)
    least = (128 if is_small else 192) if least_transitions is None else least_transitions
    longest = most_transitions or EXTENSION * most
    limits = _Limits(least, most, longest, SMALL_MEAN_ERROR if is_small else MEAN_ERROR)
    at_least(2, num_members=num_members)
    at_least(FEWEST, most_transitions=most)
    at_least(1, num_draws=num_draws, num_leapfrog=options.num_leapfrog)
    deadline = None if budget is None else time.monotonic() + budget
    seed = tuple(int(word) for word in np.ravel(jax.random.key_data(key)))
    if state is None:
        starts = np.random.default_rng((*seed, 0)).standard_normal((num_members, density.dim))
        state = fresh(density, jnp.asarray(starts, density.dtype))
    state = settled(state._replace(members=_placed(state.members)), density.dtype)
    is_late = False
    while not _is_done(state, limits, is_late):
        rng = np.random.default_rng((*seed, 1 + int(state.step)))
        state = settled(_advance(density, options, state, is_late, rng), density.dtype)
        is_late = deadline is not None and time.monotonic() > deadline
        if on_state is not None:
            on_state(state)
        if on_step is not None:
            on_step(*_progress(state, options, limits))
    evidence, num_down = {}, 0
    if with_evidence:
        evidence = _evidence(density, options, state, seed)
        num_down = len(state.powers) - 1
    num_run = (int(state.step) - 1 + num_down) * num_members * options.num_leapfrog
    known = {"num_evaluations": num_run + num_members, "stopped": is_late and state.num_kept < limits.most, **evidence}
    return _result(density, state, num_draws, known)


def _is_done(state: State, limits: _Limits, is_late: bool) -> bool:
    num = state.num_kept
    if num >= limits.longest or (is_late and num >= FEWEST):
        return True
    if num % LOOK or num < max(limits.least, LOOK):
        return False
    found = _agreement(state.trace)
    is_known = not found.mean_error > limits.mean_error  # nothing to be known where no prediction varies
    is_enough = is_known and found.is_trusted_inside
    if num >= limits.most:
        return is_enough or found.largest_inside > NEAR
    return is_enough and found.is_trusted_outside


def _progress(state: State, options: _Options, limits: _Limits) -> tuple[int, int | None, str]:
    if state.power < 1.0:
        return int(state.step), None, "powers"
    if not state.num_kept:
        return int(state.num_warm), options.num_warmup, "warm-up"
    most = limits.most if state.num_kept <= limits.most else limits.longest
    return state.num_kept, most, "transitions, at most"


def _placed(members: Members) -> Members:
    """The members divided over as many of the devices as divide them evenly."""
    devices, num_members = jax.devices(), members.points.shape[0]
    num = max(num for num in range(1, len(devices) + 1) if num_members % num == 0)
    if num == 1:
        return members
    mesh = jax.sharding.Mesh(np.array(devices[:num]), ("member",))
    return jax.device_put(members, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("member")))


# One transition, by the stage of the run


def _advance(density: Density, options: _Options, state: State, is_late: bool, rng: np.random.Generator) -> State:
    if len(state.powers) == 0:
        return _begin(density, state, rng)
    if state.power < 1.0:
        return _anneal(density, options, state, rng)
    if state.num_warm < options.num_warmup and not is_late and state.num_kept == 0:
        return _warm(density, options, state, rng)
    return _sample(density, options, state, rng)


def _transit(
    density: Density, options: _Options, state: State, power: float, *, adapts: bool, rng: np.random.Generator
) -> tuple[State, Seen]:
    members, seen = transition(
        density,
        state.members,
        state.root,
        jnp.asarray(power, density.dtype),
        jnp.asarray(np.exp(state.log_steps), density.dtype),
        jnp.asarray(options.num_leapfrog),
        jnp.asarray(adapts),
        noise_of(rng, density, len(state.log_steps), state.root.ndim == 2),
    )
    return state._replace(members=members, step=state.step + 1), jax.tree.map(np.asarray, seen)


def _begin(density: Density, state: State, rng: np.random.Generator) -> State:
    """Evaluate the starts, draws of the prior, by a step of length zero.

    A start that the model cannot take is shrunk to the origin. One that stays lost moves by the prior alone until it
    comes where the model gives a number; an error where all are.
    """
    starts, is_lost = np.asarray(state.members.points), np.ones(len(state.log_steps), bool)
    still, seen = state._replace(log_steps=np.full_like(state.log_steps, -np.inf)), None
    for shrink in SHRINKS:
        points = np.where(is_lost[:, None], shrink * starts, np.asarray(still.members.points))
        still = still._replace(members=_placed(still.members._replace(points=jnp.asarray(points, starts.dtype))))
        still, seen = _transit(density, _Options(1, 0), still, 0.0, adapts=True, rng=rng)
        is_lost = np.asarray(still.members.log_likelihood) <= LOWEST_LOG_LIKELIHOOD
        if not is_lost.any():
            break
    if is_lost.all():
        check_prior(density, state.members.points)
    assert seen is not None
    return _on_path(still._replace(log_steps=state.log_steps, step=state.step + 1), 0.0, seen)


def _on_path(state: State, power: float, seen: Seen) -> State:
    values = np.asarray(state.members.log_likelihood, float)[None]
    curvature = np.asarray(seen.curvature, float).mean(axis=0)
    return state._replace(
        powers=np.append(state.powers, power),
        path=np.concatenate([state.path, values]),
        curvature_sum=curvature,
        curvature_weight=np.ones(()),
    )


def _anneal(density: Density, options: _Options, state: State, rng: np.random.Generator) -> State:
    """One transition at the next power, in the metric of where the members are."""
    power = next_power(state.power, state.path[-1])
    state, seen = _at_power(density, options, state, power, rng)
    return _on_path(state, power, seen)


def _at_power(
    density: Density, options: _Options, state: State, power: float, rng: np.random.Generator
) -> tuple[State, Seen]:
    """The leapfrog steps of one transition at a power, in one piece or several; step sizes are adapted."""
    state = state._replace(root=_root(state, power))
    piece = options._replace(num_leapfrog=-(-options.num_leapfrog // options.num_pieces))
    seen = None
    for _ in range(options.num_pieces):
        state, seen = _transit(density, piece, state, power, adapts=True, rng=rng)
        change = (seen.acceptance - TARGET_ACCEPTANCE) / options.num_pieces
        state = state._replace(log_steps=state.log_steps + change)
    assert seen is not None
    return state._replace(step=state.step - options.num_pieces + 1), seen


def _warm(density: Density, options: _Options, state: State, rng: np.random.Generator) -> State:
    """One transition at the posterior that adapts step sizes and metric, and is discarded.

    Step sizes are in the end their geometric means over the second half.
    """
    index = int(state.num_warm)
    if index in RETURNS:
        state = _without_lost(state, rng)
    if index in RENEWALS:
        state = state._replace(root=_root(state, 1.0))
    state, seen = _transit(density, options, state, 1.0, adapts=True, rng=rng)
    curvature = np.asarray(seen.curvature, float).mean(axis=0)
    log_steps = state.log_steps + (seen.acceptance - TARGET_ACCEPTANCE) / math.sqrt(1.0 + 0.25 * index)
    is_late_half = index >= options.num_warmup // 2
    step_sum = state.step_sum + is_late_half * log_steps
    if index + 1 == options.num_warmup:
        log_steps = step_sum / (options.num_warmup - options.num_warmup // 2)
    return state._replace(
        log_steps=log_steps,
        step_sum=step_sum,
        curvature_sum=FORGETTING * state.curvature_sum + curvature,
        curvature_weight=FORGETTING * state.curvature_weight + 1.0,
        num_warm=state.num_warm + 1,
    )


def _without_lost(state: State, rng: np.random.Generator) -> State:
    """Put members that the annealing has left in hopeless places where others are."""
    values = np.asarray(state.members.log_likelihood, float)
    is_lost = lost(values)
    if not is_lost.any():
        return state
    taken = np.where(is_lost, rng.choice(np.flatnonzero(~is_lost), len(values)), np.arange(len(values)))
    members = _placed(jax.tree.map(lambda part: jnp.asarray(np.asarray(part)[taken]), state.members))
    return state._replace(members=members, log_steps=state.log_steps[taken], num_lost=state.num_lost + is_lost.sum())


def lost(values: np.ndarray) -> np.ndarray:
    """Which members have log-likelihoods that are hopelessly below those of others."""
    low, good, high = np.quantile(values, (0.1, 0.75, 0.9))
    spread = min(high - low, BEST_SPREADS * (values.max() - good))
    return values < good - LOST - LOST_SPREADS * spread


def _sample(density: Density, options: _Options, state: State, rng: np.random.Generator) -> State:
    """One transition at the posterior, which is kept."""
    state, seen = _transit(density, options, state, 1.0, adapts=False, rng=rng)
    members = state.members
    new = (members.points, seen.inside, seen.outside, members.log_likelihood, seen.squared_norm, seen.acceptance)
    pairs = zip(state.trace, new, strict=True)
    return state._replace(trace=Trace(*(np.concatenate([old, np.asarray(one)[None]]) for old, one in pairs)))


def _root(state: State, power: float) -> Array:
    """The root of the inverse metric `I + power J'J`, pooled over members; a vector for a diagonal one."""
    curvature = power * state.curvature_sum / state.curvature_weight
    if curvature.ndim == 1:
        return jnp.asarray(1.0 / np.sqrt(1.0 + curvature), state.members.points.dtype)
    lower = np.linalg.cholesky(np.eye(len(curvature)) + curvature)
    return jnp.asarray(np.linalg.inv(lower).T, state.members.points.dtype)


# What was found


def _agreement(trace: Trace) -> chains.Agreement:
    by_chain = Trace(*(np.swapaxes(part, 0, 1) for part in trace))
    return chains.agreement(by_chain.inside, by_chain.outside, by_chain.log_likelihood, by_chain.squared_norm)


def _evidence(density: Density, options: _Options, state: State, seed: tuple[int, ...]) -> dict[str, float]:
    """The log-evidence with its error, from the way up and one down again from where the members are."""
    down = [np.asarray(state.members.log_likelihood, float)]
    for power in state.powers[-2::-1].tolist():
        rng = np.random.default_rng((*seed, 1 + int(state.step)))
        state, seen = _at_power(density, options, state, power, rng)
        curvature = np.asarray(seen.curvature, float).mean(axis=0)
        state = state._replace(curvature_sum=curvature, curvature_weight=np.ones(()))
        down.append(np.asarray(state.members.log_likelihood, float))
    found = log_evidence(state.powers, (state.path, np.stack(down[::-1])))
    return {"log_evidence": found.value, "log_evidence_se": found.standard_error}


def _result(density: Density, state: State, num_draws: int, known: dict[str, Any]) -> Sampled:
    trace = state.trace
    found = _agreement(trace)
    by_member = trace.acceptance.mean(axis=0)
    diagnostics: dict[str, Any] = found.record() | {
        "acceptance": by_member.mean(),
        "acceptance_worst": by_member.min(),
        "ess_in": chains.effective_size(np.swapaxes(trace.inside, 0, 1)),
        "ess_out": chains.effective_size(np.swapaxes(trace.outside, 0, 1)),
        "num_lost": int(state.num_lost),
        "num_powers": len(state.powers) - 1,
        "num_transitions": state.num_kept,
        **known,
    }
    points = trace.points.reshape(-1, density.dim)
    values = trace.log_likelihood.astype(float) - 0.5 * trace.squared_norm  # finite or not is all that matters
    kept = np.unique(np.linspace(0, len(points) - 1, min(num_draws, len(points))).round().astype(int))
    trust = _judge(found, diagnostics)
    draws, values = jnp.asarray(points[kept]), values.ravel()[kept]
    sampled = finish(NAME, density, draws, None, diagnostics, trust, values=values)
    return sampled._replace(r_hats=(found.inside, found.outside))


def _judge(found: chains.Agreement, numbers: dict[str, Any]) -> Trust:
    """The verdict inside the data; that outside is a number of its own."""
    figures = (
        f"{found.describe()}, acceptance {numbers['acceptance']:.2f} (worst member {numbers['acceptance_worst']:.2f})"
    )
    if not found.is_trusted_inside:
        return Trust(False, f"members disagree inside the data: {figures}; give it a larger budget or more transitions")
    if numbers["acceptance_worst"] < LOWEST_ACCEPTANCE:
        return Trust(False, f"a member hardly moves: {figures}; use a longer warm-up")
    if not found.is_trusted_outside:
        return Trust(True, f"trusted inside the data only: {figures}")
    return Trust(True, figures)
