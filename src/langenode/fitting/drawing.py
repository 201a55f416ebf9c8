"""Draws from a posterior by the configured method, or by its fallback, and what a user must know about them."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import OnStep, PRNGKeyArray
from langenode.config import Config
from langenode.data import Dataset
from langenode.fitting import methods
from langenode.fitting.build import Streams
from langenode.fitting.checkpoints import DrawCheckpoint
from langenode.fitting.distilling import distil_problem, warn_of_failure
from langenode.inference.density import places, whiten
from langenode.inference.distillation import SamplerKind
from langenode.inference.errors import FitError
from langenode.inference.problem import Problem, linearised
from langenode.posteriors import Density, Empirical
from langenode.samplers.common import MOST_PREDICTIONS


def draw(
    config: Config,
    problem: Problem,
    train: Dataset,
    *,
    key: PRNGKeyArray,
    on_step: OnStep | None = None,
    checkpoint: DrawCheckpoint | None = None,
) -> tuple[Problem, dict[str, Any]]:
    """The problem with draws by the configured method, or by its fallback where those are not to be trusted."""
    dtype = jnp.dtype(config.precision)
    method = methods.find_drawn(config.method)
    density = whiten(problem, train, dtype, batch=method.minibatch(config.options))
    watched = _watched(method, on_step, checkpoint)
    sampled = method.draw(density, config.options, key=key, budget=config.budget, **watched)
    record: dict[str, Any] = {}
    fallback = method.fallback(config.options)
    if not sampled.trust.is_trusted and fallback is not None:
        record = {"replaced": method.name, "why_replaced": sampled.trust.reason}
        method = methods.find_drawn(fallback)
        options = getattr(config, fallback)
        # A stream of its own, which only trained distributions use otherwise.
        key = Streams.of(config.seed).sampler
        if on_step is not None:
            on_step(0, None, fallback)
        watched = _watched(method, on_step, checkpoint)
        sampled = method.draw(density, options, key=key, budget=config.budget, **watched)
    weights = problem.prior.to_weights(sampled.draws)
    if not np.all(np.isfinite(np.asarray(weights))):
        raise FitError(
            f"draws of the weights must be finite; some of method {method.name} are not; scale the data, add solver "
            "substeps, or use a narrower prior.scale"
        )
    posterior = Empirical(weights.astype(dtype), sampled.log_weights.astype(dtype))
    found = eqx.tree_at(lambda p: p.posterior, problem, posterior)
    if method.predicts_linearised(getattr(config, method.name)):
        assert sampled.centre is not None
        found = linearised(found, problem.prior.to_weights(sampled.centre))
    record |= {"method": method.name, "num_draws": len(weights), **sampled.diagnostics}
    record |= sampled.trust._asdict()
    asked = method.distils(getattr(config, method.name))
    if asked is not None:
        found, record["distilled"] = _distilled(found, density, asked, config.seed, on_step)
    if sampled.r_hats is not None:
        record["rhat_profile"] = _profile(density, sampled.r_hats)
    return found, record | {"reference_rank": method.reference_rank}


def _distilled(
    problem: Problem, density: Density, asked: tuple[SamplerKind, int], seed: int, on_step: OnStep | None
) -> tuple[Problem, dict[str, Any]]:
    """The problem with a trained sampler in place of its draws; with its draws where the sampler is not near them."""
    found, distillation = distil_problem(problem, density, *asked, key=Streams.of(seed).sampler, on_step=on_step)
    warn_of_failure(distillation, "the draws are kept")
    is_used = distillation.is_near
    return found if is_used else problem, {**distillation.record, "is_used": is_used}


def _watched(method: methods.Drawn, on_step: OnStep | None, checkpoint: DrawCheckpoint | None) -> dict[str, Any]:
    """The arguments by which a method that has steps shows them, and one that can resume stores its state."""
    shown = {} if on_step is None or not method.has_steps else {"on_step": on_step}
    return shown | ({} if checkpoint is None or not method.has_checkpoint else {"checkpoint": checkpoint})


def _profile(density: Density, r_hats: tuple[Any, Any]) -> dict[str, dict[str, list[float]]]:
    """R-hat of single predictions with their scaled times and starts, inside and outside the data, for a figure."""
    found = {}
    for name, place, values in zip(("inside", "outside"), places(density), r_hats, strict=True):
        values = np.asarray(values, float)
        if not len(values):
            continue
        step = -(-_num_all(density, name) // MOST_PREDICTIONS)
        index = np.arange(len(values)) * step
        is_known = (index < len(place.times)) & np.isfinite(values)
        index, values = index[is_known], values[is_known]
        found[name] = {"time": place.times[index].tolist(), "rhat": values.round(4).tolist()}
    return found


def _num_all(density: Density, name: str) -> int:
    function: Any = density.residual if name == "inside" else density.probe
    return jax.eval_shape(function, jax.ShapeDtypeStruct((density.dim,), density.dtype)).shape[0]


def draw_warnings(record: Mapping[str, Any]) -> list[str]:
    """What a user must know about draws, from their record."""
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
