"""Training around Algorithm 1: the optimiser, mini-batches, averages, early stopping, and resuming bit for bit.

Nothing here writes a file: a caller gets the `TrainState` after every block of updates.
"""

import math
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from langenode._arrays import placed
from langenode._compiling import light_jit, quick_jit
from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.inference.algorithm1 import Objective, PassOptions, generate, loss_and_gradient
from langenode.inference.errors import FitError
from langenode.inference.problem import Problem
from langenode.inference.sharding import ALONE, Devices, agreed, devices_for, here

Rate = float | Callable[[Any], Any]


class TrainSettings(NamedTuple):
    """How to train. `learning_rate` and `diffusion` may be numbers or Optax schedules of the update's number."""

    num_updates: int = 1000
    num_samples: int = 256
    num_chunks: int = 1
    batch_trajectories: int | None = None
    batch_conditions: int | None = None
    learning_rate: Rate = 5e-3
    diffusion: Rate | None = None
    clip: float = 1.0
    average: float = 0.99
    refit_rest: bool = False
    block: int = 50
    patience: int = 0
    largest_skips: int = 20
    devices: Devices = ALONE  # those that samples and conditions are divided over, chosen by `train`


class TrainState(NamedTuple):
    """Everything the next update needs: arrays only, so that it can be stored and training resumed bit for bit."""

    step: Int[Array, ""]
    params: Any
    averaged: Any
    optimiser: Any
    skipped: Int[Array, ""]
    skipped_in_row: Int[Array, ""]
    history: Float[Array, "update 3"]
    validation: Float[Array, " block"]
    best: Any


class Progress(NamedTuple):
    """What a progress display shows after a block of updates."""

    step: int
    num_updates: int
    loss: float
    kl: float
    skipped: int
    validation: float
    seconds: float


class FitResult(NamedTuple):
    """The fitted problem (its averaged, best or last parameters) and the state that led to it."""

    problem: Problem
    state: TrainState
    seconds: float


def train(
    problem: Problem,
    data: Objective,
    settings: TrainSettings,
    *,
    key: PRNGKeyArray,
    validation: Objective | None = None,
    state: TrainState | None = None,
    on_block: Callable[[TrainState, Progress, Problem], None] | None = None,
    budget: float | None = None,
) -> FitResult:
    """Train the posterior of a problem (Algorithm 1, lines 2 to 8). Pass an earlier `state` to resume from there.

    After `budget` seconds training ends with its block, if it has not ended before.
    """
    _check(settings)
    _, static = eqx.partition(problem, trained_numbers(problem, settings))
    if state is None:
        state = initial_state(problem, settings)
    begin = time.perf_counter()
    devices = _devices(settings, data)
    state, static, data, validation = agreed(devices, (state, static, data, validation))
    # When to stop is decided here: fits that differ in nothing else share their programs.
    compiled = settings._replace(patience=0, largest_skips=0, devices=devices)
    while int(state.step) < settings.num_updates and not _is_out_of_patience(state, settings):
        state = here(devices, _run_block(state, static, data, key, compiled))
        _stop_where_not_finite(state, settings)
        if validation is not None:
            state = _judge(state, here(devices, _score(state, static, validation, key, compiled)), settings)
        if on_block is not None:
            seconds = time.perf_counter() - begin
            current = _assembled(state.averaged, static, int(state.step), settings)
            on_block(state, _progress(state, settings, seconds), current)
        if budget is not None and _is_late(time.perf_counter() - begin > budget, devices):
            break
    is_early = settings.patience > 0 and validation is not None
    params, step = _best(state, settings) if is_early else (state.averaged, int(state.step))
    return FitResult(_assembled(params, static, step, settings), state, time.perf_counter() - begin)


def _check(settings: TrainSettings) -> None:
    if settings.num_samples % settings.num_chunks:
        raise ValueError(
            f"num_chunks must divide num_samples; got {settings.num_chunks} and {settings.num_samples}; change one"
        )


def _devices(settings: TrainSettings, data: Objective) -> Devices:
    """The devices that divide the samples of a chunk, and the conditions of a mini-batch."""
    limits = (settings.batch_trajectories, settings.batch_conditions)
    num_conditions = min(data.num_conditions, *(limit for limit in limits if limit is not None), data.num_conditions)
    return devices_for(settings.num_samples // settings.num_chunks, num_conditions, is_trained=True)


def _is_late(is_late: bool, devices: Devices) -> bool:
    """By the clock of the first process, since all must stop after the same update."""
    return bool(agreed(devices, np.asarray(is_late)))


def trained_numbers(problem: Problem, settings: TrainSettings) -> Any:
    """A tree of booleans: True at the numbers that training changes."""
    flags = jax.tree.map(lambda _: False, problem)
    flags = eqx.tree_at(lambda p: p.posterior, flags, problem.variational.trained())
    if settings.refit_rest:
        flags = eqx.tree_at(lambda p: p.model, flags, problem.partition.is_rest(problem.model))
    return flags


def _diffusion(settings: TrainSettings, step: Any) -> Float[Array, ""] | None:
    """Gamma in the update of that number; None where there is no schedule."""
    value = settings.diffusion(step) if callable(settings.diffusion) else settings.diffusion
    return None if value is None else jnp.asarray(value)


def _assembled(params: Any, static: Any, num_updates: int, settings: TrainSettings) -> Problem:
    """The whole problem after that many updates; it stores the diffusion of the last of them."""
    problem = eqx.combine(params, static)
    diffusion = _diffusion(settings, max(num_updates - 1, 0))
    if diffusion is None:
        return problem
    return eqx.tree_at(lambda p: p.posterior, problem, problem.variational.with_diffusion(diffusion))


def _optimiser(settings: TrainSettings) -> Any:
    import optax  # lazy: a quarter of what importing langenode would cost

    return optax.chain(optax.clip_by_global_norm(settings.clip), optax.adam(settings.learning_rate))


def initial_state(problem: Problem, settings: TrainSettings) -> TrainState:
    """The state before the first update; a stored state has the same structure."""
    params, _ = eqx.partition(problem, trained_numbers(problem, settings))
    num_blocks = math.ceil(settings.num_updates / settings.block)
    zero = placed(0, int)
    return TrainState(
        step=zero,
        params=params,
        averaged=params,
        optimiser=_begun(params, settings),
        skipped=zero,
        skipped_in_row=zero,
        history=placed(np.full((settings.num_updates, 3), np.nan)),
        validation=placed(np.full(num_blocks, np.nan)),
        best=params,
    )


@quick_jit
def _begun(params: Any, settings: TrainSettings) -> Any:
    """What the optimiser remembers before the first update, by one program."""
    return _optimiser(settings).init(params)


def _update(
    state: TrainState,
    static: Any,
    data: Objective,
    key: PRNGKeyArray,
    settings: TrainSettings,
    restored: Callable[[Array], Any],
) -> TrainState:
    """One update; a non-finite one is skipped and counted: parameters, moments and average stay what they were.

    In `state` they are vectors, which `restored` gives back their shapes: an optimiser of many small arrays would be a
    fourth of what is compiled.
    """
    import optax

    key_batch, key_draws = jax.random.split(jax.random.fold_in(key, state.step))
    batch = data.pick(key_batch, settings.batch_trajectories, settings.batch_conditions)
    options = PassOptions(settings.num_samples, settings.num_chunks, _diffusion(settings, state.step), settings.devices)
    terms, gradient = loss_and_gradient(restored(state.params), static, batch, options, key=key_draws)
    gradient, _ = ravel_pytree(gradient)
    steps, optimiser_state = _optimiser(settings).update(gradient, state.optimiser, state.params)
    new: Any = optax.apply_updates(state.params, steps)
    # The average forgets its untrained beginning: it runs over fewer updates at first.
    memory = jnp.minimum(settings.average, (1.0 + state.step) / (10.0 + state.step))
    averaged = (memory * state.averaged + (1.0 - memory) * new).astype(new.dtype)
    ok = jnp.isfinite(jnp.linalg.norm(gradient)) & jnp.isfinite(terms.loss)

    def keep(fresh: Any, old: Any) -> Any:
        return jax.tree.map(lambda f, o: jnp.where(ok, f, o), fresh, old)

    row = jnp.stack([terms.loss, terms.data, terms.kl]).astype(state.history.dtype)
    return state._replace(
        step=state.step + 1,
        params=keep(new, state.params),
        averaged=keep(averaged, state.averaged),
        optimiser=keep(optimiser_state, state.optimiser),
        skipped=state.skipped + ~ok,
        skipped_in_row=jnp.where(ok, 0, state.skipped_in_row + 1),
        history=state.history.at[state.step].set(row),
    )


@light_jit
def _run_block(
    state: TrainState, static: Any, data: Objective, key: PRNGKeyArray, settings: TrainSettings
) -> TrainState:
    # The bound is data, not shape: a last, shorter block runs the same program, so resuming is bit for bit.
    end = jnp.minimum((state.step // settings.block + 1) * settings.block, settings.num_updates)
    vectors, restored = _as_vectors(state)
    body = lambda _, s: _update(s, static, data, key, settings, restored)  # noqa: E731
    last = jax.lax.fori_loop(state.step, end, body, vectors)
    return jax.tree.map(
        lambda like, leaf: restored(leaf) if _is_like(like, state.params) else leaf,
        state,
        last,
        is_leaf=lambda tree: _is_like(tree, state.params),
    )


def _as_vectors(state: TrainState) -> tuple[TrainState, Callable[[Array], Any]]:
    """The state with all that has the structure of its parameters as vectors; and a function that undoes it."""
    is_params = lambda tree: _is_like(tree, state.params)  # noqa: E731
    vector = lambda tree: ravel_pytree(tree)[0] if is_params(tree) else tree  # noqa: E731
    return jax.tree.map(vector, state, is_leaf=is_params), ravel_pytree(state.params)[1]


def _is_like(tree: Any, other: Any) -> bool:
    return jax.tree.structure(tree) == jax.tree.structure(other)


@quick_jit
def _score(
    state: TrainState, static: Any, validation: Objective, key: PRNGKeyArray, settings: TrainSettings
) -> Float[Array, ""]:
    # One key for all blocks: scores are compared on the same random numbers.
    keys = jax.random.split(jax.random.fold_in(key, settings.num_updates), settings.num_samples)
    problem = eqx.combine(state.averaged, static)
    validation, keys = validation.divided(settings.devices), settings.devices.by_sample(keys)
    samples = generate(problem, validation, keys, _diffusion(settings, state.step - 1))
    return validation.score(problem, settings.devices.everywhere(samples))


def _judge(state: TrainState, score: Array, settings: TrainSettings) -> TrainState:
    block = (int(state.step) - 1) // settings.block
    validation = np.array(state.validation)
    earlier, validation[block] = validation[:block].copy(), score
    is_best = bool(np.isfinite(score)) and not np.any(earlier[np.isfinite(earlier)] <= float(score))
    return state._replace(validation=placed(validation), best=state.averaged if is_best else state.best)


def _best(state: TrainState, settings: TrainSettings) -> tuple[Any, int]:
    """The parameters of the lowest validation score, and after how many updates they were found."""
    scores = np.asarray(state.validation)
    if not np.isfinite(scores).any():
        if int(state.step):
            warnings.warn(
                "early stopping needs a finite validation score; none was found, so the average of the last updates "
                "is kept; check the validation data and the model's outputs there, or set training.patience=0",
                stacklevel=3,
            )
        return state.averaged, int(state.step)
    block = int(np.nanargmin(np.where(np.isfinite(scores), scores, np.nan)))
    return state.best, min((block + 1) * settings.block, settings.num_updates)


def _is_out_of_patience(state: TrainState, settings: TrainSettings) -> bool:
    scores = np.asarray(state.validation)
    seen = scores[np.isfinite(scores)]
    return settings.patience > 0 and len(seen) > 0 and len(seen) - 1 - int(np.argmin(seen)) >= settings.patience


def _stop_where_not_finite(state: TrainState, settings: TrainSettings) -> None:
    if int(state.skipped_in_row) >= min(settings.largest_skips, settings.num_updates):
        raise FitError(
            f"training must stay finite; the last {int(state.skipped_in_row)} updates (of {int(state.step)}) had "
            "a loss or gradient that is not; lower training.learning_rate, add solver substeps, or scale the data"
        )


def _progress(state: TrainState, settings: TrainSettings, seconds: float) -> Progress:
    step = int(state.step)
    loss, _, kl = np.asarray(state.history)[step - 1]
    validation = float(np.asarray(state.validation)[(step - 1) // settings.block])
    return Progress(step, settings.num_updates, float(loss), float(kl), int(state.skipped), validation, seconds)
