"""The No-U-Turn sampler (blackjax) in many chains side by side, with Stan's window adaptation in each.

Where there are residuals a chain starts about a mode found from a draw of the prior, jittered in the coordinates of the
Gauss-Newton law there, and runs in these; else it starts at the draw itself. Warm-up and draws run in blocks, so
that a budget of seconds can end them; at least one block of draws is always made.
"""

import time
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float, PRNGKeyArray
from langenode.baselines.common import agreement, check_sizes, describe_r_hat, evaluate, finish, library
from langenode.baselines.modes import Whitening, find_modes, jittered, local_whitening, passes, prior_starts
from langenode.posteriors import Density, Sampled, Trust, cast

LARGEST_DENSE_METRIC = 100
FIRST_STEP_SIZE = 0.2
WARMUP_BLOCK = 25
DRAWS_BLOCK = 8
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
    target_acceptance: float = 0.8,
    budget: float | None = None,
) -> Sampled:
    """Draws of all chains together: every `thinning`-th transition, while the diagnostics read all of them.

    `num_warmup` transitions a chain (in whole blocks of 25) adapt a dense metric up to 100 weights, a diagonal one
    above. `budget` is in seconds; where it ended the run the diagnostics hold `stopped` and the verdict says so.
    """
    library("nuts")
    check_sizes(num_chains=num_chains - 1, num_draws=num_draws, thinning=thinning, max_doublings=max_doublings)
    deadline = None if budget is None else time.monotonic() + budget
    options = _Options(thinning, max_doublings, target_acceptance)
    key_start, key_warm, key_draw = jax.random.split(key, 3)
    chains, cost = _start(density, num_chains, options, key=key_start)
    chains, num_warm_leapfrog, is_cut = _warm_up(density, options, chains, num_warmup, deadline, key=key_warm)
    per_chain = -(-num_draws // num_chains)
    trace, is_stopped = _draw(density, options, chains, per_chain, deadline, key=key_draw)
    diagnostics = _diagnose(density, trace) | {"stopped": is_cut or is_stopped}
    diagnostics["num_evaluations"] = cost + num_warm_leapfrog + int(np.sum(trace.num_leapfrog))
    kept = np.swapaxes(trace.points[:, thinning - 1 :: thinning], 0, 1).reshape(-1, density.dim)
    return finish(
        "nuts", density, jnp.asarray(kept[:num_draws]), None, diagnostics, _judge(diagnostics, trace.is_divergent.size)
    )


def _start(density: Density, num_chains: int, options: _Options, *, key: PRNGKeyArray) -> tuple[_Chain, int]:
    """Chains at their starts, and what these cost; a chain whose search failed takes another's."""
    key_prior, key_jitter = jax.random.split(key)
    starts, cost = prior_starts(density, num_chains, key=key_prior), num_chains
    is_fine = np.isfinite(np.asarray(evaluate(density, starts)))
    if density.residual is not None:
        modes = find_modes(density, starts)
        starts, is_fine = modes.points, modes.is_sound()
        cost += modes.num_evaluations + num_chains * (passes(density).num + 8)
    if not np.any(is_fine):
        raise ValueError(
            f"nuts must start where the posterior is finite; none of {num_chains} starts is; check that the model "
            "gives numbers under the prior"
        )
    starts = starts[np.where(is_fine, np.arange(num_chains), np.resize(np.flatnonzero(is_fine), num_chains))]
    return _make_chains(density, starts, options, jax.random.split(key_jitter, num_chains)), cost


@eqx.filter_jit
def _make_chains(density: Density, starts: Array, options: _Options, keys: Array) -> _Chain:
    import blackjax

    init_steps, init_metric = _adaptation(density, options)[0::3]

    def one(z: Array, key: Array) -> _Chain:
        frame = local_whitening(density, z)
        u = jnp.zeros_like(z) if frame.root is None else jittered(density, frame, key=key)
        state = blackjax.nuts.init(u, lambda u: density.log_posterior(frame(u)))
        return cast(_Chain(frame, state, init_steps(FIRST_STEP_SIZE), init_metric(density.dim)), density.dtype)

    return jax.vmap(one)(starts, keys)


def _adaptation(density: Density, options: _Options) -> tuple[Any, ...]:
    """Dual averaging of the step size (init, update, final) and Welford's covariance (init, update, final)."""
    from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    is_diagonal = density.dim > LARGEST_DENSE_METRIC
    return (*dual_averaging_adaptation(options.target_acceptance), *mass_matrix_adaptation(is_diagonal))


def _warm_up(
    density: Density, options: _Options, chains: _Chain, num: int, deadline: float | None, *, key: PRNGKeyArray
) -> tuple[_Chain, int, bool]:
    """Chains after their warm-up, the leapfrog steps it took, and whether the budget cut it short."""
    from blackjax.adaptation.window_adaptation import build_schedule

    num_blocks, num_leapfrog = -(-num // WARMUP_BLOCK), 0
    schedule = np.asarray(build_schedule(num_blocks * WARMUP_BLOCK)) if num else np.zeros((0, 2))
    for block in range(num_blocks):
        if deadline is not None and time.monotonic() > deadline:
            return chains, num_leapfrog, True
        stages = jnp.asarray(schedule[block * WARMUP_BLOCK : (block + 1) * WARMUP_BLOCK], bool)
        chains, count = _warm_block(density, options, chains, stages, key=jax.random.fold_in(key, block))
        num_leapfrog += int(count)
    return chains, num_leapfrog, False


@eqx.filter_jit
def _warm_block(
    density: Density, options: _Options, chains: _Chain, stages: Array, *, key: PRNGKeyArray
) -> tuple[_Chain, Array]:
    """Some transitions of every chain, each followed by its adaptation; the metric is renewed at a window's end."""
    init_steps, update_steps, final_steps, _, update_metric, final_metric = _adaptation(density, options)

    def one(chain: _Chain, key: Array) -> tuple[_Chain, Array]:
        def step(chain: _Chain, inputs: Any) -> tuple[_Chain, Array]:
            index, (is_slow, is_end) = inputs
            state, info = _transition(density, options, chain, jnp.exp(chain.steps.log_step_size), index, key)
            steps = update_steps(chain.steps, info.acceptance_rate)
            metric = _choose(is_slow, update_metric(chain.metric, state.position), chain.metric)
            steps = _choose(is_end, init_steps(final_steps(steps)), steps)
            metric = _choose(is_end, final_metric(metric), metric)
            return cast(_Chain(chain.frame, state, steps, metric), density.dtype), info.num_integration_steps

        return jax.lax.scan(step, chain, (jnp.arange(len(stages)), (stages[:, 0], stages[:, 1])))

    chains, counts = jax.vmap(one)(chains, jax.random.split(key, chains.frame.centre.shape[0]))
    return chains, jnp.sum(counts)


def _choose(condition: Array, first: Any, second: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _transition(
    density: Density, options: _Options, chain: _Chain, step_size: Array, index: Array, key: Array
) -> tuple[Any, Any]:
    import blackjax

    kernel = blackjax.nuts.build_kernel()
    return kernel(
        jax.random.fold_in(key, index),
        chain.state,
        lambda u: density.log_posterior(chain.frame(u)),
        step_size,
        chain.metric.inverse_mass_matrix,
        options.max_doublings,
    )


def _draw(
    density: Density, options: _Options, chains: _Chain, num: int, deadline: float | None, *, key: PRNGKeyArray
) -> tuple[_Trace, bool]:
    """All transitions after the warm-up, in blocks, and whether the budget ended them early."""
    size = min(num, DRAWS_BLOCK)
    blocks = []
    for block in range(-(-num // size)):
        if blocks and deadline is not None and time.monotonic() > deadline:
            break
        chains, trace = _draw_block(density, options, chains, size, key=jax.random.fold_in(key, block))
        blocks.append(jax.tree.map(np.asarray, trace))
    whole = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, : num * options.thinning], *blocks)
    return whole, len(blocks) * size < num


@eqx.filter_jit
def _draw_block(
    density: Density, options: _Options, chains: _Chain, num: int, *, key: PRNGKeyArray
) -> tuple[_Chain, _Trace]:
    """The transitions of this many draws of every chain, with the adaptation at rest."""
    final_steps = _adaptation(density, options)[2]

    def one(chain: _Chain, key: Array) -> tuple[_Chain, _Trace]:
        step_size = final_steps(chain.steps).astype(density.dtype)

        def step(chain: _Chain, index: Array) -> tuple[_Chain, _Trace]:
            state, info = _transition(density, options, chain, step_size, index, key)
            chain = chain._replace(state=cast(state, density.dtype))
            point = chain.frame(chain.state.position)
            return chain, _Trace(point, info.is_divergent, info.acceptance_rate, info.num_integration_steps)

        return jax.lax.scan(step, chain, jnp.arange(num * options.thinning))

    return jax.vmap(one)(chains, jax.random.split(key, chains.frame.centre.shape[0]))


def _diagnose(density: Density, trace: _Trace) -> dict[str, Any]:
    return {
        "divergences": int(np.sum(trace.is_divergent)),
        "acceptance": float(np.mean(trace.acceptance)),
        **agreement(density, jnp.asarray(trace.points)),
    }


def _judge(found: dict[str, Any], num: int) -> Trust:
    figures = f"{describe_r_hat(found)}, {found['divergences']} divergences in {num} transitions"
    figures += ", stopped by the budget" if found["stopped"] else ""
    if not found.get("r_hat", np.inf) <= LARGEST_R_HAT:
        only = " in the weights only" if found.get("r_hat_predictions", np.inf) <= LARGEST_R_HAT else ""
        return Trust(False, f"chains disagree{only}: {figures}; use a longer warm-up or more draws, or smc")
    if found["divergences"] > MOST_DIVERGENCES * num:
        return Trust(False, f"many transitions diverge: {figures}; raise target_acceptance")
    return Trust(True, figures)
