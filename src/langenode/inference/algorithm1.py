"""Algorithm 1: train the sampler, and the rest of the weights where asked, against a target.

The training step is written for losses that couple all replicas: predict in chunks, take the loss's cotangent on the
gathered outputs, then run the chunks' vector-Jacobian products. With one chunk this is ordinary back-propagation, and
the result is the same. Nothing here writes a file: a caller gets the `TrainState` after every block of updates.
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, Int, PRNGKeyArray
from langenode.data import Dataset
from langenode.inference.density import whiten
from langenode.inference.problem import Problem, View
from langenode.posteriors import AbstractVariational, Density, Langevin

Rate = float | Callable[[Any], Any]
# Predicted numbers at a time where no gradient is taken.
LARGEST_CHUNK = 2**23


class FitError(RuntimeError):
    """The fit failed: training left the finite numbers, or the target and the sampler do not go together."""


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


def loss_and_gradient(params: Any, static: Any, batch: View, key: PRNGKeyArray, settings: TrainSettings):
    """One pass of Algorithm 1, lines 4 to 7: the loss's terms and the gradient of the trained numbers."""
    keys = jax.random.split(key, settings.num_samples)

    def generate(params, keys):  # lines 4 and 5: weight trajectories, and the model's outputs with their ends
        problem = eqx.combine(params, static)
        return jax.vmap(lambda k: batch.run(problem, k))(keys)

    def evaluate(params, outcomes):  # line 6: the loss, from all replicas at once
        terms = batch.terms(eqx.combine(params, static), outcomes)
        return terms.loss, terms

    if settings.num_chunks == 1:  # line 7
        together = lambda p: evaluate(p, generate(p, keys))  # noqa: E731
        (_, terms), gradient = jax.value_and_grad(together, has_aux=True)(params)
        return terms, gradient
    return _two_pass(params, generate, evaluate, keys.reshape(settings.num_chunks, -1))


def _two_pass(params: Any, generate: Callable, evaluate: Callable, keys: Array):
    """The same gradient with the memory of one chunk: outputs first, then their cotangent chunk by chunk."""
    chunks = jax.lax.map(lambda k: generate(params, k), keys)
    outcomes = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chunks)
    (_, terms), (direct, cotangent) = jax.value_and_grad(evaluate, argnums=(0, 1), has_aux=True)(params, outcomes)
    cotangents = jax.tree.map(lambda leaf, like: leaf.reshape(like.shape), cotangent, chunks)

    def add_chunk(total, chunk):
        chunk_keys, chunk_cotangent = chunk
        _, pull_back = jax.vjp(lambda p: generate(p, chunk_keys), params)
        return jax.tree.map(jnp.add, total, pull_back(chunk_cotangent)[0]), None

    gradient, _ = jax.lax.scan(add_chunk, direct, (keys, cotangents))
    return terms, gradient


def train(
    problem: Problem,
    data: View,
    settings: TrainSettings,
    *,
    key: PRNGKeyArray,
    validation: View | None = None,
    state: TrainState | None = None,
    on_block: Callable[[TrainState, Progress, Problem], None] | None = None,
    budget: float | None = None,
) -> FitResult:
    """Train the posterior of a problem (Algorithm 1, lines 2 to 8). Pass an earlier `state` to go on from there.

    After `budget` seconds training ends with its block, if it has not ended before.
    """
    _check(problem, settings)
    _, static = eqx.partition(problem, _trained(problem, settings))
    if state is None:
        state = initial_state(problem, settings)
    begin = time.perf_counter()
    while int(state.step) < settings.num_updates and not _is_out_of_patience(state, settings):
        state = _run_block(state, static, data, key, settings)
        _stop_where_not_finite(state, settings)
        if validation is not None:
            state = _judge(state, _score(state.averaged, static, validation, key, settings), settings)
        if on_block is not None:
            seconds = time.perf_counter() - begin
            on_block(state, _progress(state, settings, seconds), eqx.combine(state.averaged, static))
        if budget is not None and time.perf_counter() - begin > budget:
            break
    chosen = state.best if settings.patience > 0 and validation is not None else state.averaged
    return FitResult(eqx.combine(chosen, static), state, time.perf_counter() - begin)


def _check(problem: Problem, settings: TrainSettings) -> None:
    if not isinstance(problem.posterior, AbstractVariational):
        raise TypeError("only a variational posterior is trained; stored draws are final; give langevin or gaussian")
    if settings.num_samples % settings.num_chunks:
        raise ValueError(
            f"num_chunks must divide num_samples; got {settings.num_chunks} and {settings.num_samples}; change one"
        )


def _trained(problem: Problem, settings: TrainSettings) -> Any:
    """A tree of booleans: True at the numbers that training changes."""
    flags = jax.tree.map(lambda _: False, problem)
    sampler = jax.tree.map(eqx.is_inexact_array, problem.posterior)
    flags = eqx.tree_at(lambda p: p.posterior, flags, sampler)
    if settings.refit_rest:
        flags = eqx.tree_at(lambda p: p.model, flags, problem.partition.is_rest(problem.model))
    return flags


def _optimiser(settings: TrainSettings) -> Any:
    import optax  # lazy: a quarter of what importing langenode would cost

    return optax.chain(optax.clip_by_global_norm(settings.clip), optax.adam(settings.learning_rate))


def initial_state(problem: Problem, settings: TrainSettings) -> TrainState:
    """The state before the first update; a stored state has the same structure."""
    params, _ = eqx.partition(problem, _trained(problem, settings))
    num_blocks = math.ceil(settings.num_updates / settings.block)
    zero = jnp.zeros((), int)
    return TrainState(
        step=zero,
        params=params,
        averaged=params,
        optimiser=_optimiser(settings).init(params),
        skipped=zero,
        skipped_in_row=zero,
        history=jnp.full((settings.num_updates, 3), jnp.nan),
        validation=jnp.full(num_blocks, jnp.nan),
        best=params,
    )


def _update(state: TrainState, static: Any, data: View, key: PRNGKeyArray, settings: TrainSettings) -> TrainState:
    """One update; a non-finite one is skipped and counted: parameters, moments and average stay what they were."""
    import optax

    key_batch, key_draws = jax.random.split(jax.random.fold_in(key, state.step))
    params = _with_diffusion(state.params, state.step, settings)
    batch = data.pick(key_batch, settings.batch_trajectories, settings.batch_conditions)
    terms, gradient = loss_and_gradient(params, static, batch, key_draws, settings)
    steps, optimiser_state = _optimiser(settings).update(gradient, state.optimiser, params)
    new = optax.apply_updates(params, steps)
    # The average forgets its untrained beginning: it runs over fewer updates at first.
    memory = jnp.minimum(settings.average, (1.0 + state.step) / (10.0 + state.step))
    averaged = jax.tree.map(lambda a, p: (memory * a + (1.0 - memory) * p).astype(p.dtype), state.averaged, new)
    averaged = _with_diffusion(averaged, state.step, settings)
    ok = jnp.isfinite(optax.tree.norm(gradient)) & jnp.isfinite(terms.loss)

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


@eqx.filter_jit
def _run_block(state: TrainState, static: Any, data: View, key: PRNGKeyArray, settings: TrainSettings) -> TrainState:
    # The bound is data, not shape: a last, shorter block runs the same program, so resuming is bit for bit.
    end = jnp.minimum((state.step // settings.block + 1) * settings.block, settings.num_updates)
    return jax.lax.fori_loop(state.step, end, lambda _, s: _update(s, static, data, key, settings), state)


def _with_diffusion(params: Any, step: Array, settings: TrainSettings) -> Any:
    """Set the chain's diffusion by its schedule; it is shared by sampler and reference, so the KL stays finite."""
    if settings.diffusion is None or not isinstance(params.posterior, Langevin):
        return params
    value = settings.diffusion(step) if callable(settings.diffusion) else settings.diffusion
    old = params.posterior.diffusion
    return eqx.tree_at(lambda p: p.posterior.diffusion, params, jnp.asarray(value, old.dtype))


@eqx.filter_jit
def _score(params: Any, static: Any, data: View, key: PRNGKeyArray, settings: TrainSettings) -> Float[Array, ""]:
    # One key for all blocks: scores are compared on the same random numbers.
    keys = jax.random.split(jax.random.fold_in(key, settings.num_updates), settings.num_samples)
    problem = eqx.combine(params, static)
    outcomes: Any = jax.vmap(lambda k: data.run(problem, k))(keys)
    return data.score(problem, outcomes)


def _judge(state: TrainState, score: Array, settings: TrainSettings) -> TrainState:
    block = (int(state.step) - 1) // settings.block
    earlier = np.asarray(state.validation)
    validation = state.validation.at[block].set(score)
    is_best = bool(jnp.isfinite(score)) and not np.any(earlier[:block] <= float(score))
    return state._replace(validation=validation, best=state.averaged if is_best else state.best)


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
    loss, _, kl = np.asarray(state.history[step - 1])
    validation = float(state.validation[(step - 1) // settings.block])
    return Progress(step, settings.num_updates, float(loss), float(kl), int(state.skipped), validation, seconds)


def log_weights(
    problem: Problem, data: Dataset, num_samples: int, *, key: PRNGKeyArray, chunk: int | None = None
) -> tuple[Float[Array, "sample dim"], Float[Array, " sample"]]:
    """Draws and their log importance weights: their mean is the ELBO, their log-mean-exp the log-evidence.

    The data are scaled. So many draws at a time (`chunk`) that their predictions stay within some 100 MB, unless told.
    """
    density = whiten(problem, data, problem.prior.mean.dtype)
    assert density.residual is not None
    num_cells = jax.eval_shape(density.residual, problem.prior.mean).shape[0]
    chunk = max(1, min(256, LARGEST_CHUNK // max(num_cells, 1))) if chunk is None else chunk
    keys = jax.random.split(key, num_samples)
    parts = [_weighted_draws(problem, density, keys[i : i + chunk]) for i in range(0, num_samples, chunk)]
    return jnp.concatenate([w for w, _ in parts]), jnp.concatenate([lw for _, lw in parts])


@eqx.filter_jit
def _weighted_draws(problem: Problem, density: Density, keys: Array) -> tuple[Array, Array]:
    posterior, prior = problem.posterior, problem.prior
    assert isinstance(posterior, AbstractVariational)

    def one(key: Array) -> tuple[Array, Array]:
        draw = posterior.draw(key=key)
        log_target = density.log_likelihood(prior.to_standard(draw.weights)) + prior.log_density(draw.weights)
        log_weight = log_target - draw.log_reference - draw.log_ratio
        return draw.weights, jnp.where(jnp.isnan(log_weight), -jnp.inf, log_weight)  # a diverged draw has no weight

    return jax.vmap(one)(keys)
