"""The prior of the stochastic weights: from a configuration, a user's argument, or the model's own scales."""

import difflib
import warnings
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from langenode._arrays import placed
from langenode._types import PRNGKeyArray
from langenode.config import Config, ConfigError
from langenode.data import Dataset
from langenode.inference.likelihood import Likelihood
from langenode.inference.partition import Partition
from langenode.inference.predictions import sample_weights
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem, plain_positions
from langenode.inference.weight_scales import penalty_shift, prior_scales, search_units, weights_with_units
from langenode.models import Linearised
from langenode.posteriors.bounds import UNBOUNDED

# A scale, or a mean and a scale, each one number or an array of the leaf's shape; of one leaf, or for all.
PriorArgument = Any

# A standard deviation above this fraction of the prior's: the data hold less than a quarter of the prior's information.
NEAR_ONE = 0.9
NUM_NAMED = 5
# Where a point estimate outside its bounds is put, as a fraction of their distance (or of one, or of a single bound).
INNER_MARGIN = 1e-3
# Standard deviations from the centre of a prior beyond which a normal has no tail left in single precision.
FARTHEST_BOUND = 8.0


class Stated(NamedTuple):
    """A prior, and the names of weights whose prior nothing but a guess of their magnitude supports."""

    prior: GaussianPrior
    unidentified: tuple[str, ...]


def prior_layer(prior: PriorArgument) -> dict[str, Any]:
    """The layer of configuration that an argument `prior=` stands for."""
    if prior is None:
        return {}
    if isinstance(prior, Real):
        return {"prior": {"scale": float(prior)}}
    if not isinstance(prior, Mapping):
        raise ConfigError(
            "a prior must be a number, or map names of leaves to a scale or to (mean, scale); got "
            f"{type(prior).__name__}; e.g. prior={{'rate': (0.5, 0.2)}}"
        )
    means, scales = {}, {}
    for leaf, given in prior.items():
        is_pair = isinstance(given, tuple)
        if is_pair and len(given) != 2:
            raise ConfigError(
                f"the prior of a leaf must be a scale or (mean, scale); got {given!r} for {leaf!r}; give two numbers, "
                "or a list for the scales of an array"
            )
        scales[leaf] = _plain(given[1] if is_pair else given)
        if is_pair:
            means[leaf] = _plain(given[0])
    return {"prior": {"scales": scales, "means": means}}


def _plain(value: Any) -> Any:
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else array.ravel().tolist()


def make_prior(
    config: Config, start: Any, model: Any, partition: Partition, likelihood: Likelihood, data: Dataset
) -> Stated:
    """The prior that a configuration asks for; `start` is the model before, and `model` at the point estimate."""
    weights, options = partition.flatten(model), config.prior
    scale, unidentified = np.ones(partition.dim), ()
    if isinstance(options.scale, float):
        scale = np.full(partition.dim, options.scale)
    elif partition.dim:
        is_population = config.target == "population"
        found = prior_scales(start, model, partition, data, likelihood, is_population=is_population)
        unidentified = tuple(name for name in found.unidentified if _leaf_of(name, partition) not in options.scales)
        scale = found.scale.copy()
    centre = np.zeros(partition.dim) if options.mean == "zero" else np.array(weights, float)
    scale, centre = _with_given(scale, options.scales, partition), _with_given(centre, options.means, partition)
    prior = GaussianPrior(*(placed(part, weights.dtype) for part in (centre, scale, *bounds_of(config, partition))))
    _check_mass(prior, partition)
    return Stated(prior, unidentified)


def bounds_of(config: Config, partition: Partition) -> tuple[np.ndarray, ...]:
    """The lower and the upper bound of every stochastic weight; nothing where none has any."""
    if not config.prior.has_bounds:
        return ()
    found = []
    for given, none in ((config.prior.lower, -UNBOUNDED), (config.prior.upper, UNBOUNDED)):
        of_all = given if isinstance(given, float) else none
        found.append(_with_given(np.full(partition.dim, of_all), given if isinstance(given, dict) else {}, partition))
    if not np.all(found[0] < found[1]):
        name = partition.names[int(np.argmin(found[1] - found[0]))]
        raise ConfigError(f"a lower bound must be below the upper one; that of {name} is not; change prior.lower")
    return tuple(found)


def within_bounds(config: Config, model: Any, partition: Partition) -> Any:
    """The model with its stochastic weights inside their bounds, which a point estimate does not know."""
    bounds = bounds_of(config, partition)
    if not bounds:
        return model
    weights, (lower, upper) = np.asarray(partition.flatten(model), float), bounds
    width = np.minimum(upper - lower, np.maximum(1.0, np.minimum(np.abs(lower), np.abs(upper))))
    inside = np.clip(weights, lower + INNER_MARGIN * width, upper - INNER_MARGIN * width)
    outside = [partition.names[i] for i in np.flatnonzero((weights < lower) | (weights > upper))]
    if outside:
        warnings.warn(
            f"the point estimate must lie within the bounds of the weights; that of {', '.join(outside[:NUM_NAMED])} "
            f"does not ({len(outside)} of {len(weights)}); it is moved to the bound, and the data contradict the bound "
            "or know little of the weight",
            stacklevel=5,
        )
    return partition.combine(model, jnp.asarray(inside, partition.flatten(model).dtype))


def _check_mass(prior: GaussianPrior, partition: Partition) -> None:
    """Refuse bounds that leave nothing of the prior."""
    if prior.lower is None or prior.upper is None:
        return
    far = np.maximum(np.asarray(prior.lower - prior.mean), np.asarray(prior.mean - prior.upper)) / prior.scale
    if len(far) and far.max() > FARTHEST_BOUND:
        raise ConfigError(
            f"bounds must leave something of the prior; those of {partition.names[int(far.argmax())]} begin "
            f"{far.max():.0f} standard deviations from its centre; give another prior.means or a larger prior.scale"
        )


def check_leaves(config: Config, partition: Partition) -> None:
    """Raise unless every leaf whose prior is given has stochastic weights, and as many as there are numbers."""
    sizes = dict(zip(partition.leaf_names, partition.sizes, strict=True))
    given = (config.prior.scales, config.prior.means, config.prior.lower, config.prior.upper)
    for leaf, values in (pair for part in given if isinstance(part, dict) for pair in part.items()):
        if leaf not in sizes:
            near = difflib.get_close_matches(leaf, sizes, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sizes)}"
            raise ConfigError(f"a prior must be of a leaf with stochastic weights; got {leaf!r}; {hint}")
        if np.size(values) not in (1, sizes[leaf]):
            raise ConfigError(
                f"a prior needs one number per weight of a leaf, or one for all; {leaf!r} has {sizes[leaf]} weights "
                f"and {np.size(values)} numbers were given; give {sizes[leaf]}, or 1"
            )


def _with_given(values: np.ndarray, given: Mapping[str, Any], partition: Partition) -> np.ndarray:
    """The values with those of some leaves replaced."""
    leaves = zip(partition.leaf_names, partition.sizes, np.cumsum(partition.sizes, dtype=int), strict=True)
    for leaf, size, end in leaves:
        if leaf in given:
            values[end - size : end] = np.ravel(given[leaf])
    return values


def _leaf_of(name: str, partition: Partition) -> str:
    """The leaf of a weight."""
    return next(leaf for leaf in partition.leaf_names if name == leaf or name.startswith(f"{leaf}["))


def prior_diagnostics(
    config: Config, problem: Problem, unidentified: tuple[str, ...], *, key: PRNGKeyArray
) -> dict[str, Any]:
    """How much the data added to the prior: widths of single weights over those of the prior, and what is unknown.

    Of weights with a meaning of their own, not of networks; nothing of a population, which more data do not narrow.
    """
    found: dict[str, Any] = {"unidentified": list(unidentified)} if unidentified else {}
    model = problem.model.at if isinstance(problem.model, Linearised) else problem.model
    partition = Partition.at(model, plain_positions(problem))
    judged = np.flatnonzero(weights_with_units(model, partition))
    if config.target == "population" or not len(judged):
        return found
    weights = np.asarray(sample_weights(problem.posterior, config.predict.num_weights, key=key), float)
    ratios = (weights.std(0) / np.asarray(problem.prior.scale, float))[judged]
    widest = judged[np.argsort(-ratios, kind="stable")[:NUM_NAMED]].tolist()
    summary = {
        "median": float(np.median(ratios)),
        "share_near_one": float(np.mean(ratios > NEAR_ONE)),
        "widest": {partition.names[i]: float(ratios[np.flatnonzero(judged == i)[0]]) for i in widest},
    }
    return found | {"prior_width_ratio": summary}


def penalty_diagnostics(config: Config, start: Any, problem: Problem, data: Dataset) -> dict[str, Any]:
    """By how many standard errors the penalty moved the point estimate, for weights that have units of their own."""
    if config.mle.units != "automatic" or not config.mle.penalty or not problem.partition.dim or start is None:
        return {}
    assert problem.likelihood is not None
    units = search_units(start, data)
    shift = penalty_shift(
        problem.model, problem.partition, data, problem.likelihood, penalty=config.mle.penalty, units=units
    )
    return {"penalty_shift": shift}
