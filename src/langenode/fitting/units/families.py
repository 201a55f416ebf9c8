"""The family of a hierarchical fit: which weights are a unit's own, how they are distributed, and what is preferred."""

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
from langenode.models import MLP, LatentCurve, LatentODE, SmoothCurve, UnitModel
from langenode.posteriors import AbstractVariational, Bottleneck, Langevin, NewUnits, Reference, Standard, cast
from langenode.posteriors.base import log_normal
from langenode.posteriors.bottleneck import START_SCALE

# Standard deviation between units, of weights whose spread nobody gave, where a fit starts.
FIRST_SPREAD = 0.3
# The same between the trajectories of a unit.
FIRST_OCCASION = 0.1
# The prior of the noise of standardised outputs: its logarithm is normal about this.
TYPICAL_NOISE = 0.1
# The last layer of a decoder where a fit starts, beside that of an ordinary network and in units of the spread.
DECODER_SCALE = 2.0
# The level of observed rates that is typical of a network's.
RATE_LEVEL = 0.9
# The standard deviation of weights of covariates beside those of other inputs.
COVARIATE_SCALE = 0.1


@contextmanager
def in_64_bits() -> Iterator[None]:
    """Marginal likelihoods are sums over units whose differences decide: 64 bits, whatever JAX is set to."""
    with jax.enable_x64(True):
        yield


class CommonPrior(LogPrior):
    """Normal weights of networks, and log-normal noise and spreads, where the data have been standardised.

    Without it a network with more weights than units have readings would be fitted to their noise. The standard
    deviation of a weight is one; that of the last layer of rates is larger where the data change fast. The
    equations of a user's own have no prior but for networks in them.
    """

    networks: tuple[int, ...] = eqx.field(static=True)  # positions of the leaves in the model
    scales: tuple[Array, ...]  # of their weights; shapes broadcast
    has_scales: bool = eqx.field(static=True)
    spread: Float[Array, " dim"]  # typical of what differs between units

    def __call__(self, family: Family) -> Float[Array, ""]:
        """The log density up to a constant."""
        leaves = jax.tree.leaves(family.model)
        standard = [leaves[place] / scale for place, scale in zip(self.networks, self.scales, strict=True)]
        standard += self._of_map(family.effects)
        value = sum((-0.5 * jnp.sum(leaf**2) for leaf in standard), jnp.zeros(()))
        if not self.has_scales:
            return value
        value = value + jnp.sum(log_normal(family.model.log_noise, np.log(TYPICAL_NOISE), 1.0))
        spreads = getattr(family.effects, "log_scale", None)  # of a Gaussian, in units of the reference
        return value if spreads is None else value + jnp.sum(log_normal(spreads, 0.0, 1.0))

    def _of_map(self, effects: AbstractVariational) -> list[Array]:
        """The weights of a map with networks, in standard deviations; a decoder ends in the units of the effects."""
        if not isinstance(effects, Langevin | Bottleneck):
            return []
        if isinstance(effects, Bottleneck):
            last = lambda b: (b.decoder.layers[-1].weight, b.decoder.layers[-1].bias)  # noqa: E731
            weight, bias = last(effects)
            effects = eqx.tree_at(last, effects, (weight / self.spread[:, None], bias / self.spread))
        return jax.tree.leaves(eqx.filter(effects, effects.trained()))


def make_prior(config: Config, family: Family, train: Dataset) -> CommonPrior:
    """What is preferred of a model's common numbers; `train` is scaled."""
    model, own = family.model, set(family.partition.positions)
    places, of_rates = set(network_positions(model)), {}
    if isinstance(model, LatentODE):
        places |= set(Partition.of(model, lambda m: m.start).positions)
        of_rates = _rate_scales(model, train)
    elif isinstance(model, LatentCurve):
        of_rates = _curve_scales(model, train)
    chosen = tuple(sorted(places - own))
    scales = tuple(jnp.asarray(of_rates.get(place, 1.0)) for place in chosen)
    spread = first_reference(config, model, family.partition).scale
    return CommonPrior(chosen, scales, config.scaling == "standardise", spread)


def _rate_scales(model: LatentODE, train: Dataset) -> dict[int, np.ndarray]:
    """Standard deviations of the weights of the first and the last layer of rates, by position.

    The scale of the last layer is half way, in logarithms, from one to that which makes rates as fast as the data's:
    with the whole of it few units are fitted too closely, with one fast processes cannot be followed.
    """
    num_states, width = model.dynamics.layers[-1].weight.shape
    rates = np.sqrt(np.maximum(1.0, typical_rates(train, num_states) / np.sqrt(width)))
    return _layer_scales(model, lambda m: m.dynamics.layers, _column_scales(model.dynamics, num_states, train), rates)


def _curve_scales(model: LatentCurve, train: Dataset) -> dict[int, np.ndarray]:
    """The same of a curve, whose outputs are those of the data."""
    return _layer_scales(model, lambda m: m.network.layers, _column_scales(model.network, 1, train), np.ones(1))


def _column_scales(network: MLP, num_before: int, train: Dataset) -> Float[np.ndarray, " in"]:
    """Scales of the weights of each input of a network, in which the data's inputs follow `num_before` others.

    Inputs that are constant in time are covariates of units: they have as many values as there are units, so that
    their weights are kept small.
    """
    columns = np.ones(network.sizes[0])
    columns[num_before : num_before + train.num_inputs] = np.where(is_covariate(train), COVARIATE_SCALE, 1.0)
    return columns


def _layer_scales(model: Any, layers_of: Any, columns: np.ndarray, rates: np.ndarray) -> dict[int, np.ndarray]:
    """Scales of the first and of the last layer, which sees the inputs, too; `rates` are those of its outputs."""
    layers = layers_of(model)
    place = {
        (number, name): Partition.of(model, lambda m, k=number, name=name: getattr(layers_of(m)[k], name)).positions[0]
        for number in (0, -1)
        for name in ("weight", "bias")
    }
    last = np.concatenate([np.ones(layers[-1].weight.shape[1] - len(columns)), columns])
    found = {place[-1, "weight"]: rates[:, None] * last, place[-1, "bias"]: rates}
    if len(layers) > 1:
        found[place[0, "weight"]] = np.broadcast_to(columns, layers[0].weight.shape)
    return found


def is_covariate(data: Dataset) -> np.ndarray:
    """Which inputs are constant in every trajectory."""
    return np.all(data.inputs == data.inputs[:, :1], axis=(0, 1))


def typical_rates(data: Dataset, num_states: int) -> Float[np.ndarray, " state"]:
    """How fast the outputs change between readings, at the 90 % level and at least 1; hidden states as the fastest."""
    found = np.ones(data.num_outputs)
    for column in range(data.num_outputs):
        slopes = [
            np.abs(np.diff(values[seen]) / np.diff(times[seen]))
            for values, times, seen in zip(data.outputs[..., column], data.times, data.mask[..., column], strict=True)
        ]
        slopes = np.concatenate(slopes) if slopes else np.ones(1)
        found[column] = max(1.0, float(np.quantile(slopes, RATE_LEVEL)) if slopes.size else 1.0)
    return np.concatenate([found, np.full(num_states - len(found), found.max())])


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
    effects, levels = make_effects(config, model, partition), noise_levels(model, scaling)
    return Family(effects, model, partition, levels, _first_occasions(config, model, partition))


def _first_occasions(config: Config, model: Any, partition: Partition) -> Float[Array, " dim"] | None:
    """Logarithms of the spreads between a unit's trajectories where a fit starts; None where these do not differ.

    Where one effect has such a spread all do; those for which none was given start at a small one.
    """
    given: list[float | None] = [None] * partition.dim
    if isinstance(model, UnitModel) and partition.dim == len(model.effects.random):
        given = [effect.occasion for _, effect in model.effects.random]
    if not config.hierarchical.occasions and all(spread is None for spread in given):
        return None
    return jnp.log(jnp.asarray([FIRST_OCCASION if spread is None else spread for spread in given], float))


def noise_levels(model: Any, scaling: Scaling) -> Levels | None:
    """Where the level zero of each output is, for noise with a proportional part; on a scale with a knee none has."""
    if model.log_noise.ndim == 1:
        return None
    zero = -scaling.output_shift / scaling.output_scale
    return Levels(jnp.asarray(zero), jnp.asarray(scaling.knees == 0, float))


def make_effects(
    config: Config, model: Any, partition: Partition, dtype: Any = jnp.float64, *, about: Reference | None = None
) -> AbstractVariational:
    """The distribution of the units' own weights, as a map of white noise, before it is estimated.

    It starts about a normal distribution: the first one, unless another is given.
    """
    weights = partition.flatten(model)
    if config.stochastic == "unit" and config.method.startswith("gaussian"):
        used = len(weights) if isinstance(model, SmoothCurve) else getattr(config.model, "num_latent", len(weights))
        return Standard(scale=jnp.asarray(np.arange(len(weights)) < used, float))
    reference = first_reference(config, model, partition) if about is None else about
    key = jax.random.fold_in(jax.random.key(config.seed), 2)
    made = methods.find_trained(config.method).make(Ingredients(reference, reference.mean, key), config.options)
    return cast(_decoding_to(made, reference.scale), dtype)


def first_reference(config: Config, model: Any, partition: Partition) -> Reference:
    """The normal distribution of the units' own weights where a fit starts."""
    weights = partition.flatten(model)
    spread = jnp.full(len(weights), FIRST_SPREAD)
    if isinstance(model, UnitModel) and len(weights) == len(model.effects.random):
        spread = jnp.asarray([effect.spread for _, effect in model.effects.random], float)
    if config.stochastic == "unit":
        spread = jnp.ones(len(weights))
    return Reference(weights, spread)


def _decoding_to(effects: AbstractVariational, spread: Float[Array, " dim"]) -> AbstractVariational:
    """A bottleneck whose decoder has these spreads where it starts, up to a factor of order one."""
    if not isinstance(effects, Bottleneck):
        return effects
    last = lambda b: (b.decoder.layers[-1].weight, b.decoder.layers[-1].bias)  # noqa: E731
    weight, bias = last(effects)
    larger = DECODER_SCALE / START_SCALE * spread
    return eqx.tree_at(last, effects, (larger[:, None] * weight, larger * bias))


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
    # A map of trees: shapes of a stack are not those that its parts are made with.
    stacked = jax.tree.map(lambda value: jnp.broadcast_to(value, (posterior.num_members, *value.shape)), levels)
    model = jax.tree.unflatten(structure, leaves)
    return Family(posterior.effects, model, partition, stacked, posterior.occasion_scale)
