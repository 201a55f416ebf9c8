"""The methods that draw: from a configuration and a problem to stored draws, with what they say of themselves."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode import samplers
from langenode._types import PRNGKeyArray
from langenode.config import Config
from langenode.data import Dataset
from langenode.inference.algorithm1 import FitError
from langenode.inference.density import whiten
from langenode.inference.problem import Problem, linearised
from langenode.posteriors import Density, Empirical, Sampled
from langenode.samplers.guided import GuidedDraws, GuidedSettings, guided_langevin

# Guided paths that have these are good enough; below the last, more steps have not been seen to help.
WANTED_ANCESTORS, WANTED_EVIDENCE_ERROR, HOPELESS_ANCESTORS = 0.3, 0.2, 0.02
# The kernel of SVGD compares all pairs of particles.
MOST_SVGD_PARTICLES = 256

Draw = Callable[[Density, Config, PRNGKeyArray], Sampled]


class Drawn(NamedTuple):
    """The problem with its draws, what the method says of them (plain numbers and words), and the time it took."""

    problem: Problem
    record: dict[str, Any]
    seconds: float


def draw(config: Config, problem: Problem, train: Dataset, *, key: PRNGKeyArray) -> Drawn:
    """Draws of the posterior by the configured method; by `draws.fallback` where those are not to be trusted."""
    begin = time.perf_counter()
    dtype = jnp.dtype(config.precision)
    density = whiten(problem, train, dtype, batch=config.draws.batch)
    sampled, method = METHODS[config.method](density, config, key), config.method
    record: dict[str, Any] = {}
    if not sampled.trust.is_trusted and config.method == "guided" and config.draws.fallback != "none":
        record = {"replaced": config.method, "why_replaced": sampled.trust.reason}
        method = config.draws.fallback
        sampled = METHODS[method](density, config, jax.random.fold_in(key, 1))
    weights = problem.prior.to_weights(sampled.draws)
    if not np.all(np.isfinite(np.asarray(weights))):
        raise FitError(
            f"draws of the weights must be finite; some of method {method} are not; scale the data, add solver "
            "substeps, or use a narrower prior.scale"
        )
    posterior = Empirical(weights.astype(dtype), sampled.log_weights.astype(dtype))
    found = eqx.tree_at(lambda p: p.posterior, problem, posterior)
    if config.is_linearised:
        assert sampled.centre is not None
        found = linearised(found, problem.prior.to_weights(sampled.centre))
    record |= {"method": method, "num_draws": len(weights), **sampled.diagnostics}
    record |= {"is_trusted": sampled.trust.is_trusted, "reason": sampled.trust.reason}
    return Drawn(found, record, time.perf_counter() - begin)


def warnings(record: Mapping[str, Any]) -> list[str]:
    """What a user must know of draws, from their record."""
    said = []
    if "replaced" in record:
        said.append(
            f"draws must be trusted to be used; those of {record['replaced']} were not ({record['why_replaced']}); "
            f"those of {record['method']} took their place"
        )
    if not record["is_trusted"]:
        said.append(f"the draws of {record['method']} are not to be trusted: {record['reason']}")
    if record.get("stopped"):
        said.append(f"{record['method']} was stopped by its budget before all {record['num_draws']} draws were made")
    return said


def _guided(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    """The computed control, with twice the steps where it needs them: up to `most_steps`, and where that may help."""
    num_steps, eta, cost = config.draws.num_steps, config.draws.eta, 0
    while True:
        found = _guided_paths(density, config, num_steps, eta, key)
        cost += found.num_evaluations
        is_good = found.ancestors >= WANTED_ANCESTORS and found.log_evidence_error <= WANTED_EVIDENCE_ERROR
        if is_good or found.ancestors < HOPELESS_ANCESTORS or 2 * num_steps > config.draws.most_steps:
            break
        num_steps, eta = 2 * num_steps, found.eta
    return found.sampled(num_steps=num_steps, num_evaluations=cost)


def _guided_paths(
    density: Density, config: Config, num_steps: int, eta: float | None, key: PRNGKeyArray
) -> GuidedDraws:
    """One run: paths steered by the residuals and weighed by the log-likelihood."""
    options = config.draws
    settings = GuidedSettings(
        num_paths=options.num,
        num_steps=num_steps,
        horizon=options.horizon,
        eta=eta,
        resample_below=options.resample_below,
        num_moves=options.num_moves,
        chunk=options.chunk,
    )
    return guided_langevin(density, settings, key=key)


def _nuts(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    options = config.draws
    return samplers.nuts(
        density,
        num_chains=options.num_chains,
        num_warmup=options.num_warmup,
        num_draws=options.num,
        budget=config.budget,
        key=key,
    )


def _smc(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    return samplers.smc(density, num_draws=config.draws.num, num_islands=config.draws.num_islands, key=key)


def _sgld(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    options = config.draws
    return samplers.sgld(density, num_chains=options.num_chains, num_draws=options.num, budget=config.budget, key=key)


def _svgd(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    options = config.draws
    num = min(options.num, MOST_SVGD_PARTICLES)
    return samplers.svgd(density, num_draws=num, num_steps=options.num_iterations, key=key)


def _pathfinder(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    return samplers.pathfinder(density, num_draws=config.draws.num, key=key)


def _laplace(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    return samplers.laplace(density, num_draws=config.draws.num, key=key)


def _ensemble(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    return samplers.ensemble(density, num_members=config.draws.num_members, key=key)


def _map(density: Density, config: Config, key: PRNGKeyArray) -> Sampled:
    del config
    return samplers.map_estimate(density, key=key)


METHODS: Mapping[str, Draw] = {
    "guided": _guided,
    "nuts": _nuts,
    "smc": _smc,
    "sgld": _sgld,
    "svgd": _svgd,
    "pathfinder": _pathfinder,
    "laplace": _laplace,
    "ensemble": _ensemble,
    "map": _map,
}
