"""A fit and its file: what training or drawing gave, stored with all that is needed to rebuild it without the data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from langenode import _version
from langenode.config import Config
from langenode.data import Scaling
from langenode.fitting.build import make_posterior, make_target
from langenode.fitting.solve import Drawn
from langenode.inference.algorithm1 import FitResult
from langenode.inference.likelihood import Likelihood
from langenode.inference.partition import Partition
from langenode.inference.predictions import noise_scales
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem, linearised, plain_positions
from langenode.posteriors import Empirical, Reference, point
from langenode.storage import container


class Solved(NamedTuple):
    """A fitted problem, the time it took, and its course: a record for the file and rows for the history.

    The record has one entry: `training` (updates made, asked for and skipped) or `sampling` (what the method says of
    its draws).
    """

    problem: Problem
    seconds: float
    record: dict[str, dict[str, Any]]
    history: np.ndarray  # (update, [loss, data term, KL]); no rows where nothing was trained
    validation: np.ndarray

    @classmethod
    def trained(cls, result: FitResult, num_asked: int) -> "Solved":
        """What Algorithm 1 gave."""
        state = result.state
        num_updates = int(state.step)
        training = {"updates": num_updates, "asked": num_asked, "skipped": int(state.skipped)}
        history = np.asarray(state.history)[:num_updates]
        return cls(result.problem, result.seconds, {"training": training}, history, np.asarray(state.validation))

    @classmethod
    def drawn(cls, result: Drawn) -> "Solved":
        """What a method that draws gave."""
        return cls(result.problem, result.seconds, {"sampling": result.record}, np.zeros((0, 3)), np.zeros(0))


def fit_header(
    scaling: Scaling,
    noise_factor: np.ndarray,
    input_names: Sequence[str],
    output_names: Sequence[str],
    columns: Mapping[str, Any],
) -> dict[str, Any]:
    """What a fit file says beside its weights and configuration: units, names, and the columns they were read from."""
    return {
        "scaling": scaling.to_dict(),
        "noise_factor": noise_factor.tolist(),
        "input_names": list(input_names),
        "output_names": list(output_names),
        "columns": {part: names for part, names in columns.items() if names is not None},
    }


def fit_bytes(problem: Problem, config: Config, header: dict[str, Any]) -> bytes:
    """The content of a fit file: model, prior and posterior, and all that is needed to rebuild their structure."""
    reference = getattr(problem.posterior, "reference", None)
    rank = None if reference is None or reference.factor is None else int(reference.factor.shape[1])
    sigma = None
    if problem.likelihood is not None and problem.likelihood.sigma is not None:
        sigma = noise_scales(problem, problem.prior.mean[None])[0].tolist()
    extra = {
        "experiment": config.experiment,
        "config": config.model_dump(mode="json"),
        "version": _version.__version__,
        "positions": list(plain_positions(problem)),
        "num_draws": len(problem.posterior.draws) if isinstance(problem.posterior, Empirical) else None,
        "reference_rank": rank,
        "noise_sigma": sigma,
        "temperature": getattr(problem.target, "temperature", None),
    }
    return container.to_bytes({**header, **extra}, (problem.model, problem.prior, problem.posterior))


def read_fit(path: Path, config: Config, model: Any) -> Problem:
    """A fitted problem from its file, without the data; of `model` only the structure matters.

    Noise that was stored for every trajectory and time is now one number an output.
    """
    header = container.read_header(path)
    num_leaves = len(jax.tree.leaves(model))
    if max(header["positions"], default=-1) >= num_leaves:
        raise container.FitFileError(
            f"a fit file must match the model it is read into; {path} has more parts than the {num_leaves} of it; "
            "give the configuration or model it was made with"
        )
    partition = Partition.at(model, header["positions"])
    weights = partition.flatten(model)
    rank = header["reference_rank"]
    factor = None if rank is None else jnp.zeros((partition.dim, rank), weights.dtype)
    reference = Reference(weights, jnp.ones_like(weights), factor)
    posterior = point(weights.dtype)
    if partition.dim > 0:
        num_draws = header.get("num_draws") or 1
        posterior = make_posterior(config, reference, weights, num_draws=num_draws, key=jax.random.key(0))
    target = make_target(config, int(header["temperature"] or 1))
    sigma = header["noise_sigma"]
    stored = None if sigma is None else jnp.asarray(sigma, weights.dtype)[None, None, None]
    noise = Likelihood(stored, jnp.ones(1))
    problem = Problem(model, partition, GaussianPrior(weights, weights), noise, target, posterior)
    if config.is_linearised:
        problem = linearised(problem, weights)
    model, prior, posterior = container.read_tree(path, (problem.model, problem.prior, problem.posterior))
    return Problem(model, problem.partition, prior, noise, target, posterior)
