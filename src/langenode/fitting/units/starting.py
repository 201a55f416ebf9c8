"""Where maps that can have several modes start: about the normal distribution that suits the units best.

The chain of a Langevin map, and the decoder of a bottleneck, learn what a normal distribution lacks. From a start far
from the units they would first have to find these, by an integral that is good near them only.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from langenode._types import Array, Float, OnStep
from langenode.config import Config
from langenode.fitting.units.families import first_reference, make_effects
from langenode.inference.hierarchical import estimate as estimating
from langenode.inference.hierarchical.estimate import LogPrior, Settings
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.units import Units
from langenode.posteriors import Bottleneck, Gaussian, Langevin, Reference, gaussian

# A spread that went to zero leaves nothing for a map to bend: this part of the first one is kept.
LEAST_SPREAD = 0.1


def has_modes(family: Family) -> bool:
    """Whether the map of effects can have several modes."""
    return isinstance(family.effects, Langevin | Bottleneck)


def about_normal(
    config: Config,
    family: Family,
    units: Units,
    prior: LogPrior,
    settings: Settings,
    on_step: OnStep | None,
) -> Family:
    """The family at the maximum of Laplace's approximation for normal effects, with its map about them."""
    first = first_reference(config, family.model, family.partition)
    normal = gaussian(first, "diagonal", key=jax.random.key(config.seed))
    plain = eqx.tree_at(lambda f: f.effects, family, normal)
    found = estimating.estimate(
        plain, units, prior=prior, settings=settings._replace(num_importance=0), seed=config.seed, on_step=on_step
    ).family
    assert isinstance(found.effects, Gaussian)
    effects = make_effects(config, found.model, found.partition, about=_about(found.effects, first.scale))
    return eqx.tree_at(lambda f: f.effects, found, effects)


def _about(effects: Gaussian, first: Float[Array, " dim"]) -> Reference:
    spread = jnp.exp(effects.log_scale) * effects.reference.scale
    return Reference(effects.reference.to_weights(effects.shift), jnp.maximum(spread, LEAST_SPREAD * first))
