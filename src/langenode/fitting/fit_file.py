"""A fit as one file: model, prior and posterior, and all that is needed to rebuild them without the data."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode import _version
from langenode.config import Config
from langenode.fitting import build, headers, methods
from langenode.fitting.methods import Ingredients, Trained
from langenode.fitting.noise import noise_levels
from langenode.fitting.units.families import empty_units
from langenode.inference.likelihood import Likelihood
from langenode.inference.partition import Partition
from langenode.inference.predictions import pooled_sigma
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem, linearised, plain_positions
from langenode.models import Linearised
from langenode.posteriors import (
    AbstractPosterior,
    AbstractVariational,
    Bounded,
    Distilled,
    Empirical,
    NewUnits,
    Reference,
    bounded,
    point,
)
from langenode.posteriors.distilled import empty
from langenode.storage import container


def portable(problem: Problem) -> Problem:
    """The problem as its file has it: noise that was stored per trajectory and time is one number per output."""
    if problem.likelihood is None or problem.likelihood.sigma is None:
        return problem
    sigma = jnp.asarray(pooled_sigma(problem.likelihood), problem.prior.mean.dtype)
    noise = Likelihood(sigma[None, None, None], jnp.ones(1))
    return Problem(problem.model, problem.partition, problem.prior, noise, problem.target, problem.posterior)


def fit_bytes(problem: Problem, config: Config, header: Mapping[str, Any]) -> bytes:
    """The content of the file of a portable problem."""
    sigma = None if problem.likelihood is None else problem.likelihood.sigma
    structure = {
        "experiment": config.experiment,
        "config": config.model_dump(mode="json"),
        "version": _version.__version__,
        "positions": list(plain_positions(problem)),
        "num_draws": len(problem.posterior.draws) if isinstance(problem.posterior, Empirical) else None,
        "distilled": problem.posterior.sizes() if isinstance(problem.posterior, Distilled) else None,
        "units": _units_header(problem.posterior),
        "reference_rank": _reference_rank(problem.posterior),
        "is_linearised": isinstance(problem.model, Linearised),
        "noise_sigma": None if sigma is None else [float(value) for value in sigma.ravel()],
        "target": {"name": problem.target.name, **_fields(problem.target)},
    }
    return container.to_bytes({**header, **structure}, (problem.model, problem.prior, problem.posterior))


def _units_header(posterior: AbstractPosterior) -> dict[str, Any] | None:
    """What a distribution of new units is built from, beside its arrays."""
    if not isinstance(posterior, NewUnits):
        return None
    has_occasions = posterior.occasion_scale is not None
    return {"own": list(posterior.own), "members": posterior.num_members, "has_occasions": has_occasions}


def _reference_rank(posterior: AbstractPosterior) -> int | None:
    posterior = posterior.inner if isinstance(posterior, Bounded) else posterior
    reference = getattr(posterior, "reference", None)
    factor = None if reference is None else reference.factor
    return None if factor is None else int(factor.shape[1])


def _fields(target: Any) -> dict[str, Any]:
    return {field.name: getattr(target, field.name) for field in dataclasses.fields(target)}


def read_problem(path: Path, header: Mapping[str, Any], config: Config, model: Any) -> Problem:
    """A fitted problem from its file, without the data; of `model` only the structure matters.

    The header is a checked one (`headers.read_fit_header`). Only shapes are worked out before they have been compared
    with the arrays of the file.
    """
    _check_positions(path, header, model)
    partition = Partition.at(model, header["positions"])
    target = headers.stored_target(path, header, config.target)
    dtype = jnp.dtype(config.precision)
    sigma = header["noise_sigma"]
    levels = noise_levels(config, headers.stored_scaling(path, header)) if sigma is None else None
    stored = None if sigma is None else jnp.asarray(sigma, dtype)[None, None, None]
    noise = Likelihood(stored, jnp.ones(1), levels=levels)

    def build_parts(model: Any) -> Problem:
        weights = partition.flatten(model)
        bounds = (weights, weights) if config.prior.has_bounds else ()
        prior = GaussianPrior(jnp.zeros_like(weights), jnp.ones_like(weights), *bounds)
        posterior = _untrained(config, header, model, weights)
        if prior.truncation is not None and isinstance(posterior, AbstractVariational) and len(weights):
            posterior = bounded(posterior, prior.truncation)
        problem = Problem(model, partition, prior, noise, target, posterior)
        return linearised(problem, weights) if header["is_linearised"] else problem

    try:
        shapes = eqx.filter_eval_shape(build_parts, model)
    except (ValueError, TypeError) as error:
        raise container.FitFileError(
            f"a fit file must make sense; {path}: {' '.join(str(error).split())[:300]}; create it again"
        ) from None
    model, prior, posterior = container.read_tree(path, (shapes.model, shapes.prior, shapes.posterior))
    if not bool((prior.scale > 0).all()):
        raise container.FitFileError(f"the scales of a prior must be positive; {path} has others; create it again")
    return Problem(model, shapes.partition, prior, noise, target, posterior)


def _check_positions(path: Path, header: Mapping[str, Any], model: Any) -> None:
    """Stochastic weights must be among those of the model, and draws of them among the arrays of the file."""
    leaves = jax.tree.leaves(model)
    places = header["positions"]
    if max(places, default=-1) >= len(leaves):
        raise container.FitFileError(
            f"a fit file must match the model it is read into; {path} has more parts than the {len(leaves)} of it; "
            "give the configuration or model it was made with"
        )
    if not all(hasattr(leaves[i], "shape") and jnp.issubdtype(leaves[i].dtype, jnp.inexact) for i in places):
        raise container.FitFileError(f"stochastic weights must be real numbers; {path} has others; create it again")


def _untrained(config: Config, header: Mapping[str, Any], model: Any, weights: jax.Array) -> AbstractPosterior:
    """A posterior of the structure that the file's has."""
    if config.target == "hierarchical":
        return empty_units(config, model, header.get("units"), weights.dtype)
    if weights.shape[0] == 0:
        return point(weights.dtype)
    method = methods.find(config.method)
    if not isinstance(method, Trained):
        if header.get("distilled") is not None:
            return empty(header["distilled"], weights)
        if header["num_draws"] is None:
            raise ValueError("num_draws must say how many draws there are")
        return Empirical(jnp.broadcast_to(weights, (header["num_draws"], *weights.shape)))
    rank = header["reference_rank"]
    factor = None if rank is None else jnp.zeros((weights.shape[0], rank), weights.dtype)
    reference = Reference(weights, jnp.ones_like(weights), factor)
    return method.make(Ingredients(reference, weights, build.Streams.of(config.seed).sampler), config.options)
