"""Samplers of the field beside ours: blackjax's MCLMC and NUTS, MILE's recipe, and MILE by its authors' package.

Methods of `posteriors.py run`. Each is set up as its own documentation or paper does and judged by the same verdicts.
`bde` wants another blackjax than we do: `pip install --target FOLDER --no-deps sklearn-contrib-bde blackjax==1.2.2
fastprogress==1.0.3 jaxopt tqdm`, and that folder first in PYTHONPATH.
"""

import os
from collections.abc import Callable
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from langenode._types import Array, PRNGKeyArray
from langenode.posteriors import Density, Sampled, Trust
from langenode.samplers.common import finish, in_function_space, log_density_of
from langenode.scores import chains

# The last tuning phase of MCLMC keeps its steps in memory.
MOST_KEPT = 2000


def mclmc(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_chains: int = 16,
    num_tuning: int = 30_000,
    num_steps: int = 40_000,
    thinning: int = 40,
    energy_var: float = 5e-4,
) -> Sampled:
    """MCLMC from draws of the prior, tuned twice by blackjax's own tuner: where it starts, then where that has led."""
    log_density = log_density_of(density)

    def one(key: Array) -> tuple[Array, Array]:
        key_start, key_first, key_second, key_run = jax.random.split(key, 4)
        start = jax.random.normal(key_start, (density.dim,))
        state = blackjax.mcmc.mclmc.init(start, log_density, key_start)
        shares = _shares(num_tuning // 2, 0.5, 0.3)
        options = {**shares, "num_steps": num_tuning // 2, "desired_energy_var": energy_var}
        state, _ = _tuned(log_density, state, key_first, options, None)
        state, found = _tuned(log_density, state, key_second, options, None)
        return _steps(log_density, state, key_run, found, num_steps, thinning), found.step_size

    points, step_sizes = jax.jit(jax.vmap(one))(jax.random.split(key, num_chains))
    cost = 2 * num_chains * (num_tuning + num_steps)
    return _result("mclmc", density, points, {"num_evaluations": cost, **_spread("step_size", step_sizes)})


def mile(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_chains: int = 12,
    num_adam: int = 3000,
    learning_rate: float = 0.01,
    num_tuning: int = 50_000,
    num_steps: int = 10_000,
    thinning: int = 10,
    energy_var: float = 0.1,
) -> Sampled:
    """MILE (Sommer et al. 2025) as in the paper, by blackjax: modes by Adam, then MCLMC from each, equal weights.

    Chains, steps, thinning, the energy variance per dimension (0.5, later 0.1) and no preconditioning are the paper's.
    Its early stopping on validation data is left out: modes are those of the log posterior.
    """
    log_density = log_density_of(density)

    def one(key: Array) -> tuple[Array, Array]:
        key_start, key_first, key_second, key_run = jax.random.split(key, 4)
        start = _mode(log_density, jax.random.normal(key_start, (density.dim,)), num_adam, learning_rate)
        state = blackjax.mcmc.mclmc.init(start, log_density, key_start)
        shares = {**_shares(num_tuning // 2, 0.8, 0.1), "diagonal_preconditioning": False, "num_effective_samples": 100}
        options = {**shares, "num_steps": num_tuning // 2}
        first = {"desired_energy_var": 5.0 * energy_var, **options}
        state, found = _tuned(log_density, state, key_first, first, _first_tuning(density.dim))
        second = {"desired_energy_var": energy_var, **options}
        state, found = _tuned(log_density, state, key_second, second, found)
        return _steps(log_density, state, key_run, found, num_steps, thinning), found.step_size

    points, step_sizes = jax.jit(jax.vmap(one))(jax.random.split(key, num_chains))
    cost = num_chains * (num_adam + 2 * (num_tuning + num_steps))
    return _result("mile", density, points, {"num_evaluations": cost, **_spread("step_size", step_sizes)})


def blackjax_nuts(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_chains: int = 4,
    num_warmup: int = 1000,
    num_draws: int = 1000,
    target_acceptance: float = 0.8,
) -> Sampled:
    """Window adaptation with a diagonal metric, then NUTS, as in blackjax's introduction; chains start at the prior."""
    log_density = log_density_of(density)

    def one(key: Array) -> tuple[Array, ...]:
        key_start, key_warm, key_run = jax.random.split(key, 3)
        warmup = blackjax.window_adaptation(
            blackjax.nuts,
            log_density,
            target_acceptance_rate=target_acceptance,
            adaptation_info_fn=lambda state, info, adaptation: info.num_integration_steps,
        )
        start = jax.random.normal(key_start, (density.dim,))
        (state, parameters), warm = warmup.run(key_warm, start, num_warmup)  # pyright: ignore[reportCallIssue]
        kernel = blackjax.nuts(log_density, **parameters)

        def step(state: Any, key: Array) -> tuple[Any, tuple[Array, ...]]:
            found: tuple[Any, Any] = kernel.step(key, state)
            state, info = found
            return state, (state.position, info.is_divergent, info.num_integration_steps)

        _, found = jax.lax.scan(step, state, jax.random.split(key_run, num_draws))
        return *found, jnp.sum(warm)

    points, is_divergent, sizes, warm = jax.jit(jax.vmap(one))(jax.random.split(key, num_chains))
    known = {"num_evaluations": int(np.sum(sizes)) + int(np.sum(warm)), "divergences": int(np.sum(is_divergent))}
    return _result("blackjax_nuts", density, points, known)


def bde(
    density: Density,
    *,
    key: PRNGKeyArray,
    num_chains: int = 12,
    num_epochs: int = 2000,
    num_tuning: int = 50_000,
    num_steps: int = 10_000,
    thinning: int = 10,
) -> Sampled:
    """MILE by the package of its authors (sklearn-contrib-bde), on a net of `posterior_cases.net`.

    The package always learns the noise, as a second output of the net. Its log posterior is replaced by that of our
    case, where the second output does not matter, and modes are found by its loss Rmse; the rest is its own.
    """
    observed = density.log_likelihood.__self__  # pyright: ignore[reportFunctionMemberAccess]
    sizes = observed.model.sizes
    estimator = _known_noise(observed)(
        n_members=num_chains,
        hidden_layers=list(sizes[1:-1]),
        seed=int(jax.random.randint(key, (), 0, 2**30)),
        activation="softplus",
        epochs=num_epochs,
        lr=0.01,
        warmup_steps=num_tuning,
        n_samples=num_steps,
        n_thinning=thinning,
    )
    estimator.fit(np.asarray(observed.inputs), np.asarray(observed.outputs))
    *layers, (matrix, shift) = estimator.positions_eT_
    layers.append((matrix[..., :1], shift[..., :1]))
    flat = [np.asarray(part).reshape(*part.shape[:2], -1) for layer in layers for part in layer]
    cost = num_chains * (num_epochs + 2 * (num_tuning + num_steps))
    return _result("bde", density, jnp.concatenate(flat, axis=2), {"num_evaluations": cost})


def _known_noise(observed: Any) -> Any:
    """The package's regressor with noise of the case's sigma."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    from bde import BdeRegressor  # pyright: ignore[reportMissingImports]
    from bde.loss import Rmse  # pyright: ignore[reportMissingImports]

    class KnownNoise(BdeRegressor):
        def __init__(self, **options: Any):
            super().__init__(loss=Rmse(), **options)

        def _build_log_post(self, x: Array, y: Array, *others: Any) -> Callable[[Any], Array]:
            forward = self._bde.members[0].forward

            def log_posterior(params: Any) -> Array:
                squares = jnp.sum(((y - forward(params, x)[..., :1]) / observed.sigma) ** 2)
                return -0.5 * squares - 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))

            return log_posterior

    return KnownNoise


# Parts


def _shares(num: int, first: float, second: float) -> dict[str, float]:
    """Shares of the three phases of blackjax's tuner."""
    return {"frac_tune1": first, "frac_tune2": second, "frac_tune3": min(1.0 - first - second, MOST_KEPT / num)}


def _first_tuning(dim: int) -> Any:
    from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState

    length: Any = jnp.maximum(jnp.sqrt(dim), 15.0)
    step_size: Any = jnp.asarray(0.001)
    metric: Any = jnp.ones(dim)
    return MCLMCAdaptationState(length, step_size, metric)


def _tuned(log_density: Any, state: Any, key: Array, options: dict[str, Any], params: Any) -> tuple[Any, Any]:
    kernel = blackjax.mcmc.mclmc.build_kernel()
    state, found, _ = blackjax.mclmc_find_L_and_step_size(
        kernel, state=state, rng_key=key, logdensity_fn=log_density, params=params, **options
    )
    return state, found


def _steps(log_density: Any, state: Any, key: Array, found: Any, num: int, thinning: int) -> Array:
    """Every `thinning`-th point of a chain."""
    kernel = blackjax.mcmc.mclmc.build_kernel()

    def step(state: Any, key: Array) -> tuple[Any, None]:
        return kernel(key, state, log_density, found.inverse_mass_matrix, found.L, found.step_size)[0], None

    def some(state: Any, key: Array) -> tuple[Any, Array]:
        state, _ = jax.lax.scan(step, state, jax.random.split(key, thinning))
        return state, state.position

    return jax.lax.scan(some, state, jax.random.split(key, num // thinning))[1]


def _mode(log_density: Any, start: Array, num: int, learning_rate: float) -> Array:
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, num, alpha=0.01))

    def step(carry: tuple[Array, Any], _: Any) -> tuple[tuple[Array, Any], None]:
        point, state = carry
        updates, state = optimiser.update(-jax.grad(log_density)(point), state)
        moved: Any = optax.apply_updates(point, updates)
        return (moved, state), None

    return jax.lax.scan(step, (start, optimiser.init(start)), None, length=num)[0][0]


def _spread(name: str, values: Array) -> dict[str, float]:
    return {name: float(np.median(values)), f"{name}_least": float(np.min(values))}


def _result(name: str, density: Density, points: Array, known: dict[str, Any]) -> Sampled:
    """All draws, equally weighted, with the two verdicts."""
    agreed = chains.agreement(*in_function_space(density, points))
    trust = Trust(agreed.is_trusted_inside, agreed.describe())
    norm = float(np.mean(np.sum(np.asarray(points) ** 2, axis=2)))
    diagnostics = {**agreed.record(), **known, "squared_norm": norm}
    return finish(name, density, points.reshape(-1, density.dim), None, diagnostics, trust)
