"""The family of a hierarchical fit: which weights are a unit's own, how they are distributed, and what is preferred."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Array, Float
from langenode.config import Config, ConfigError
from langenode.data import Dataset, Scaling
from langenode.fitting import methods
from langenode.fitting.methods import Ingredients
from langenode.inference.hierarchical.conditional import member_of
from langenode.inference.hierarchical.estimate import LogPrior
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.units import Units, by_unit
from langenode.inference.noise import Levels
from langenode.inference.partition import Partition, Where, network_positions, noise_positions
from langenode.models import LatentODE, UnitModel
from langenode.posteriors import AbstractVariational, NewUnits, Reference, Standard, cast
from langenode.posteriors.base import log_normal

# Standard deviation between units, of weights whose spread nobody gave, where a fit starts.
FIRST_SPREAD = 0.3
# The prior of the noise of standardised outputs, and of spreads: their logarithms are normal about these.
TYPICAL_NOISE, TYPICAL_SPREAD = 0.1, 0.3


@contextmanager
def in_64_bits() -> Iterator[None]:
    """Marginal likelihoods are sums over units whose differences decide: 64 bits, whatever JAX is set to."""
    with jax.enable_x64(True):
        yield


class CommonPrior(LogPrior):
    """N(0, 1) for the weights of networks, and log-normal noise and spreads, where the data have been standardised.

    Without it a network with more weights than units has data would be fitted to their noise. The equations of a
    user's own have no prior but for networks in them.
    """

    networks: tuple[int, ...] = eqx.field(static=True)  # positions of the leaves in the model
    has_scales: bool = eqx.field(static=True)

    def __call__(self, family: Family) -> Float[Array, ""]:
        """The log density up to a constant."""
        leaves = jax.tree.leaves(family.model)
        value = sum((-0.5 * jnp.sum(leaves[place] ** 2) for place in self.networks), jnp.zeros(()))
        if not self.has_scales:
            return value
        value = value + jnp.sum(log_normal(family.model.log_noise, np.log(TYPICAL_NOISE), 1.0))
        spreads = getattr(family.effects, "log_scale", None)  # of a Gaussian, in units of the reference
        return value if spreads is None else value + jnp.sum(log_normal(spreads, 0.0, 1.0))


def make_prior(config: Config, family: Family) -> CommonPrior:
    """What is preferred of a model's common numbers."""
    own = set(family.partition.positions)
    places = set(network_positions(family.model))
    if isinstance(family.model, LatentODE):
        places |= set(Partition.of(family.model, lambda m: m.start).positions)
    return CommonPrior(tuple(sorted(places - own)), config.scaling == "standardise")


def own_partition(config: Config, model: Any, where: Where | None) -> Partition:
    """The weights that differ between units."""
    if where is not None:
        return Partition.of(model, where)
    if isinstance(model, UnitModel) and config.stochastic == "all":
        return Partition.of(model, lambda m: m.effects.values)
    chosen = Partition.of(model, config.stochastic)
    if config.stochastic == "unit":
        return chosen
    # Noise is common to all units; in a generic model the start differs between units, too.
    places = set(chosen.positions) - noise_positions(model)
    if isinstance(model, LatentODE):
        places |= set(Partition.of(model, lambda m: m.offset).positions)
        places -= set(Partition.of(model, lambda m: m.unit).positions)
    return Partition.at(model, sorted(places))


def make_family(config: Config, model: Any, scaling: Scaling, where: Where | None = None) -> Family:
    """The family before it is estimated, about a model."""
    if getattr(model, "log_noise", None) is None:
        raise ConfigError(
            "a hierarchical fit infers the noise, a weight of the model; yours has no log_noise; give it one, e.g. "
            "NeuralODE(..., log_noise=jnp.zeros(num_outputs)), or use UnitModel"
        )
    model = cast(model, jnp.float64)
    partition = own_partition(config, model, where)
    occasions = jnp.full(partition.dim, np.log(0.1)) if config.hierarchical.occasions else None
    return Family(make_effects(config, model, partition), model, partition, noise_levels(model, scaling), occasions)


def noise_levels(model: Any, scaling: Scaling) -> Levels | None:
    """Where the level zero of each output is, for noise with a proportional part; on a scale with a knee none has."""
    if model.log_noise.ndim == 1:
        return None
    zero = -scaling.output_shift / scaling.output_scale
    return Levels(jnp.asarray(zero), jnp.asarray(scaling.knees == 0, float))


def make_effects(config: Config, model: Any, partition: Partition, dtype: Any = jnp.float64) -> AbstractVariational:
    """The distribution of the units' own weights, as a map of white noise, before it is estimated."""
    weights = partition.flatten(model)
    if config.stochastic == "unit" and config.method.startswith("gaussian"):
        return Standard(jnp.asarray(np.arange(len(weights)) < getattr(config.model, "num_latent", len(weights)), float))
    spread = jnp.full(len(weights), FIRST_SPREAD)
    if isinstance(model, UnitModel) and len(weights) == len(model.effects.random):
        spread = jnp.asarray([effect.spread for _, effect in model.effects.random], float)
    if config.stochastic == "unit":
        spread = jnp.ones(len(weights))
    reference = Reference(weights, spread)
    key = jax.random.fold_in(jax.random.key(config.seed), 2)
    made = methods.find_trained(config.method).make(Ingredients(reference, weights, key), config.options)
    return cast(made, dtype)


def as_units(config: Config, data: Dataset, scaling: Scaling, *, num: int | None = None) -> Units:
    """Scaled data by unit, with the limit of quantification in the units of the fit."""
    limit = config.hierarchical.quantification_limit
    if limit is None:
        return by_unit(data, num=num)
    if len(limit) not in (1, data.num_outputs):
        raise ConfigError(
            f"hierarchical.quantification_limit needs one number, or one per output ({data.num_outputs}); got "
            f"{len(limit)}; change it"
        )
    return by_unit(data, limit=scaling.scale_outputs(np.broadcast_to(limit, data.num_outputs)), num=num)


# Stored with a fit


def new_units(families: Family, dtype: Any) -> NewUnits:
    """A stack of families as the distribution of new units' weights."""
    partition, whole = families.partition, all_weights(member_of(families, 0).model)
    is_own = np.concatenate(
        [np.full(size, place in partition.positions) for place, size in zip(whole.positions, whole.sizes, strict=True)]
    )
    leaves = jax.tree.leaves(families.model)
    shared = [
        leaves[place].reshape(len(leaves[place]), whole.sizes[whole.positions.index(place)])
        for place in whole.positions
        if place not in partition.positions
    ]
    own = tuple(int(place) for place in np.flatnonzero(is_own))
    return cast(NewUnits(families.effects, jnp.concatenate(shared, axis=1), families.occasion_scale, own), dtype)


def empty_units(config: Config, model: Any, header: Any, dtype: Any) -> NewUnits:
    """A distribution of new units of the structure that a file's has; its numbers mean nothing."""
    if header is None:
        raise ValueError("a hierarchical fit must say which weights are a unit's own")
    whole, own = all_weights(model), tuple(header["own"])
    if sorted(set(own)) != list(own) or own[-1] >= whole.dim:
        raise ValueError("a unit's own weights must be among those of the model")
    offsets = np.cumsum([0, *whole.sizes[:-1]])
    places = [place for place, offset in zip(whole.positions, offsets, strict=True) if offset in own]
    partition, members = Partition.at(model, places), header["members"]
    if partition.dim != len(own):
        raise ValueError("a unit's own weights must be whole leaves of the model")
    effects = cast(make_effects(config, model, partition, dtype), dtype)
    stack = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (members, *leaf.shape)) if eqx.is_array(leaf) else leaf, effects
    )
    occasions = jnp.zeros((members, len(own)), dtype) if header["has_occasions"] else None
    return NewUnits(stack, jnp.zeros((members, whole.dim - len(own)), dtype), occasions, own)


def all_weights(model: Any) -> Partition:
    """Every weight of a model."""
    leaves = jax.tree.leaves(model)
    return Partition.at(model, [place for place, leaf in enumerate(leaves) if eqx.is_inexact_array(leaf)])


def stored_families(problem: Any, partition: Partition, levels: Levels | None) -> Family:
    """The stack of families behind a fitted problem."""
    posterior: NewUnits = cast(problem.posterior, jnp.float64)
    whole, own = problem.partition, set(partition.positions)
    leaves, structure = jax.tree.flatten(cast(problem.model, jnp.float64))
    # Every array of a stack has the axis of members: whole numbers too, which are not weights.
    leaves = [
        jnp.broadcast_to(leaf, (posterior.num_members, *leaf.shape)) if eqx.is_array(leaf) else leaf for leaf in leaves
    ]
    offset = 0
    for place, shape, size in zip(whole.positions, whole.shapes, whole.sizes, strict=True):
        if place in own:
            continue
        leaves[place] = posterior.shared[:, offset : offset + size].reshape(posterior.num_members, *shape)
        offset += size
    arrays = dataclasses.asdict(levels) if levels is not None else None
    stacked = None
    if arrays is not None:
        stacked = Levels(*(jnp.broadcast_to(value, (posterior.num_members, *value.shape)) for value in arrays.values()))
    model = jax.tree.unflatten(structure, leaves)
    return Family(posterior.effects, model, partition, stacked, posterior.occasion_scale)
