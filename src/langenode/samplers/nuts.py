"""The No-U-Turn sampler (blackjax) in many chains side by side, with Stan's window adaptation in each.

Where there are residuals a chain starts about a mode found from a draw of the prior, jittered in the coordinates of the
Gauss-Newton approximation there, and runs in these; else it starts at the draw itself. Warm-up and draws run in
blocks, so that a budget of seconds can end them; at least one block of draws is always made.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, OnStep, PRNGKeyArray
from langenode.posteriors import Density, Sampled, Trust
from langenode.samplers.common import (
    agreement,
    at_least,
    describe_r_hat,
    evaluate,
    finish,
    judged_r_hat,
    library,
    log_density_of,
    settle,
)
from langenode.samplers.modes import Whitening, find_modes, jittered, local_whitening, passes, prior_starts

LARGEST_DENSE_METRIC = 100
FIRST_STEP_SIZE = 0.2
BLOCK = 32  # transitions
LARGEST_R_HAT = 1.05
MOST_DIVERGENCES = 0.01  # of all transitions


class _Chain(NamedTuple):
    """A chain: its coordinates, its state in them, and what adapts its step size and metric."""

    frame: Whitening
    state: Any
    steps: Any
    metric: Any


class _Trace(NamedTuple):
    """What is kept of every transition, `(chain, transition, ...)`."""

    points: Float[Array, "*lead dim"]
    is_divergent: Array
    acceptance: Array
    num_leapfrog: Array


class _Run(NamedTuple):
    trace: _Trace
    num_leapfrog: int


class _Options(NamedTuple):
    thinning: int
    max_doublings: int
    target_acceptance: float


def nuts(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_chains: int = 32,
    num_warmup: int = 400,
    num_draws: int = 1024,
    thinning: int = 4,
    max_doublings: int = 8,
    target_acceptance: float = 0.9,
    budget: float | None = None,
    on_step: OnStep | None = None,
) -> Sampled:
    """Draws of all chains together: every `thinning`-th transition; the diagnostics use all of them.

    `num_warmup` transitions per chain (in whole blocks of 32) adapt a dense metric up to 100 weights, a diagonal one
    above. `budget` is in seconds; where it ended the run the diagnostics hold `stopped` and the verdict says so.
    """
    library("nuts")
    at_least(2, num_chains=num_chains)
    at_least(1, num_draws=num_draws, thinning=thinning, max_doublings=max_doublings)
    deadline = None if budget is None else time.monotonic() + budget
    options = _Options(thinning, max_doublings, target_acceptance)
    key_start, key_run = jax.random.split(key)
    chains, cost = _start(density, num_chains, options, key=key_start)
    per_chain = -(-num_draws // num_chains)
    trace, num_leapfrog = _run(density, options, chains, num_warmup, per_chain, deadline, on_step, key=key_run)
    num = trace.points.shape[1]
    diagnostics = _diagnose(density, trace) | {
        "stopped": num < per_chain * thinning,
        "num_evaluations": cost + num_leapfrog,
    }
    kept = np.swapaxes(trace.points[:, thinning - 1 :: thinning], 0, 1).reshape(-1, density.dim)
    trust = _judge(diagnostics, num * num_chains)
    return finish("nuts", density, jnp.asarray(kept[:num_draws]), None, diagnostics, trust)


def _start(density: Density, num_chains: int, options: _Options, *, key: PRNGKeyArray) -> tuple[_Chain, int]:
    """Chains at their starts, and the runs of the model these took; a chain whose search failed takes another's."""
    key_prior, key_jitter = jax.random.split(key)
    starts, cost = prior_starts(density, num_chains, key=key_prior), num_chains
    is_fine = np.isfinite(np.asarray(evaluate(density, starts)))
    if density.residual is not None:
        modes = find_modes(density, starts)
        starts, is_fine = modes.points, modes.is_sound()
        cost += modes.num_evaluations + num_chains * (passes(density).num + 8)
    starts = starts[np.where(is_fine, np.arange(num_chains), np.resize(np.flatnonzero(is_fine), num_chains))]
    return _make_chains(density, starts, options, jax.random.split(key_jitter, num_chains)), cost


@eqx.filter_jit
def _make_chains(density: Density, starts: Array, options: _Options, keys: Array) -> _Chain:
    import blackjax

    init_steps, _, _, init_metric, _, _ = _adaptation(density, options)

    def one(z: Array, key: Array) -> _Chain:
        frame = local_whitening(density, z)
        u = jnp.zeros_like(z) if frame.root is None else jittered(density, frame, key=key)
        # The library's own numbers are in the default precision, so the state is too.
        frame, u = settle((frame, u))
        state = blackjax.nuts.init(u, _log_density(density, frame))
        return settle(_Chain(frame, state, init_steps(FIRST_STEP_SIZE), init_metric(density.dim)))

    return jax.vmap(one)(starts, keys)


def _log_density(density: Density, frame: Whitening) -> Callable[[Array], Array]:
    log_density = log_density_of(density)
    return lambda u: log_density(frame(u))


def _adaptation(density: Density, options: _Options) -> tuple[Any, ...]:
    """Dual averaging of the step size (init, update, final) and Welford's covariance (init, update, final)."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    is_diagonal = density.dim > LARGEST_DENSE_METRIC
    return (*dual_averaging_adaptation(options.target_acceptance), *mass_matrix_adaptation(is_diagonal))


def _run(
    density: Density,
    options: _Options,
    chains: _Chain,
    num_warmup: int,
    per_chain: int,
    deadline: float | None,
    on_step: OnStep | None,
    *,
    key: PRNGKeyArray,
) -> _Run:
    """Warm-up and draws in blocks of one program; where time runs out, the draws' first block is still made."""
    from blackjax.adaptation.window_adaptation import build_schedule

    num_warm = -(-num_warmup // BLOCK)
    num_blocks = num_warm + -(-per_chain * options.thinning // BLOCK)
    stages = np.zeros((num_blocks * BLOCK, 3), bool)  # in a slow window, at its end, adapting
    if num_warm:
        stages[: num_warm * BLOCK, :2] = np.asarray(build_schedule(num_warm * BLOCK))
        stages[: num_warm * BLOCK, 2] = True
    kept, num_leapfrog, block = [], 0, 0
    while block < num_blocks:
        is_late = deadline is not None and time.monotonic() > deadline
        if is_late and kept:
            break
        block = max(block, num_warm) if is_late else block
        part = jnp.asarray(stages[block * BLOCK : (block + 1) * BLOCK])
        chains, trace = _block(density, options, chains, part, key=jax.random.fold_in(key, block))
        num_leapfrog += int(jnp.sum(trace.num_leapfrog))
        kept += [jax.tree.map(np.asarray, trace)] if block >= num_warm else []
        block += 1
        if on_step is not None:
            on_step(block * BLOCK, num_blocks * BLOCK, "transitions")
    trace = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, : per_chain * options.thinning], *kept)
    return _Run(trace, num_leapfrog)


@eqx.filter_jit
def _block(
    density: Density, options: _Options, chains: _Chain, stages: Array, *, key: PRNGKeyArray
) -> tuple[_Chain, _Trace]:
    """Some transitions of every chain, adapted in the warm-up; the metric is renewed at a window's end."""
    import blackjax

    init_steps, update_steps, final_steps, _, update_metric, final_metric = _adaptation(density, options)
    kernel = blackjax.nuts.build_kernel()

    def transition(chain: _Chain, is_adapting: Array, key: Array) -> tuple[Any, Any]:
        # The average means something only some steps after its last reset.
        is_known = ~is_adapting & (chain.steps.step > 10)
        step_size = jnp.exp(jnp.where(is_known, chain.steps.log_step_size_avg, chain.steps.log_step_size))
        log_density, metric = _log_density(density, chain.frame), chain.metric.inverse_mass_matrix
        return kernel(key, chain.state, log_density, step_size, metric, options.max_doublings)

    def adapt(chain: _Chain, acceptance: Array, is_slow: Array, is_end: Array) -> _Chain:
        steps = update_steps(chain.steps, acceptance)
        metric = _choose(is_slow, update_metric(chain.metric, chain.state.position), chain.metric)
        steps = _choose(is_end, init_steps(final_steps(steps)), steps)
        return chain._replace(steps=steps, metric=_choose(is_end, final_metric(metric), metric))

    def one(chain: _Chain, key: Array) -> tuple[_Chain, _Trace]:
        def step(chain: _Chain, inputs: tuple[Array, Array]) -> tuple[_Chain, _Trace]:
            index, (is_slow, is_end, is_adapting) = inputs
            state, info = transition(chain, is_adapting, jax.random.fold_in(key, index))
            chain = chain._replace(state=state)
            chain = _choose(is_adapting, adapt(chain, info.acceptance_rate, is_slow, is_end), chain)
            point = chain.frame(state.position).astype(density.dtype)
            trace = _Trace(point, info.is_divergent, info.acceptance_rate, info.num_integration_steps)
            return settle(chain), trace

        return jax.lax.scan(step, chain, (jnp.arange(len(stages)), stages))

    return jax.vmap(one)(chains, jax.random.split(key, chains.frame.centre.shape[0]))


def _choose(condition: Array, first: Any, second: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _diagnose(density: Density, trace: _Trace) -> dict[str, Any]:
    return {
        "divergences": int(np.sum(trace.is_divergent)),
        "acceptance": float(np.mean(trace.acceptance)),
        **agreement(density, jnp.asarray(trace.points)),
    }


def _judge(found: dict[str, Any], num: int) -> Trust:
    figures = f"{describe_r_hat(found)}, {found['divergences']} divergences in {num} transitions"
    figures += ", stopped by the budget" if found["stopped"] else ""
    if not judged_r_hat(found) <= LARGEST_R_HAT:
        return Trust(False, f"chains disagree: {figures}; use a longer warm-up or more draws, or ensemble-hmc")
    if found["divergences"] > MOST_DIVERGENCES * num:
        return Trust(False, f"many transitions diverge: {figures}; raise target_acceptance")
    return Trust(True, figures)
