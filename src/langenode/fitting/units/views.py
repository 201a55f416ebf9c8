"""Training units beside the fitted distribution: the arrays behind NPDE and figures."""

import jax
import numpy as np

from langenode._types import Float
from langenode.config import Config
from langenode.data import Dataset, refine, separate_by_start
from langenode.experiments.unit_figures import MOST_PANELS, OwnFit, UnitViews
from langenode.fitting.units.checking import standard_effects
from langenode.fitting.units.families import in_64_bits
from langenode.fitting.units.predicting import NUM_POINTS, Arranged, arrange, respond, stack_of
from langenode.fitting.units.scoring import is_below
from langenode.inference.hierarchical.conditional import condition, member_of, stacked
from langenode.inference.hierarchical.family import Family
from langenode.inference.predictions import Rule
from langenode.inference.problem import Problem
from langenode.scores.metrics import central_bands
from langenode.scores.npde import below_limit, npde

# Units that are looked at, and the draws of each one's effects.
MOST_UNITS, NUM_DRAWS = 200, 256
# Simulated data sets; half of them are for moments, half for ranks.
NUM_SIMULATED = 1000
# Points of a curve in a panel.
NUM_FINE = 100
# Noises per draw of a unit's effects: its band would be ragged with few.
NUM_NOISES = 4


def unit_views(problem: Problem, config: Config, train: Dataset, rule: Rule) -> UnitViews:
    """What figures show of the training units, at the estimate of what all units share."""
    data = some_units(separate_by_start(train), MOST_UNITS)
    arranged = arrange(config, data, rule)
    with in_64_bits():
        family = member_of(stack_of(problem), 0)
        key = jax.random.key(config.seed)
        draws = condition(
            stacked([family]), arranged.units, NUM_DRAWS, num_points=NUM_POINTS, seed=config.seed, key=key
        ).xi
        own, _ = _respond(family, arranged, draws)
        typical, _ = _respond(family, arranged, np.zeros_like(draws[:, :1]))
        simulated = simulate(family, arranged, NUM_SIMULATED, rng=np.random.default_rng([config.seed, 11]))
        names, effects = standard_effects(family, draws)
        fits = own_fits(family, config, arranged.shown, draws, rule)
    errors = _errors(config, arranged, simulated, rule)
    pick = np.random.default_rng(config.seed).permutation(effects.shape[0] * effects.shape[1])
    return UnitViews(
        data=arranged.shown,
        typical=rule.unscaled(typical)[0],
        own=np.median(rule.unscaled(own), axis=0),
        simulated=np.asarray(rule.unscaled(simulated), float),
        npde=errors,
        effect_names=names,
        effects=effects.reshape(len(effects) * effects.shape[1], effects.shape[-1])[pick],
        fits=fits,
    )


def some_units(data: Dataset, most: int) -> Dataset:
    """The data of a limited number of units, evenly spread among all."""
    if data.num_units <= most:
        return data
    return data.select(np.isin(data.unit, np.linspace(0, data.num_units - 1, most).round().astype(int)))


def _respond(family: Family, arranged: Arranged, xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return respond(stacked([family]), arranged, xi, np.zeros(xi.shape[:2], int))


def simulate(
    family: Family, arranged: Arranged, num: int, *, rng: np.random.Generator
) -> Float[np.ndarray, "sim traj time out"]:
    """Readings of new units at the times and inputs of the data, in the fit's units."""
    num_effects = family.num_effects(arranged.units.num_trajectories)
    outputs, noise = _respond(family, arranged, rng.standard_normal((arranged.units.num, num, num_effects)))
    return outputs + noise * rng.standard_normal(outputs.shape)


def own_fits(family: Family, config: Config, data: Dataset, draws: np.ndarray, rule: Rule) -> list[OwnFit]:
    """Some trajectories on fine grids under draws of their units' effects, for panels."""
    duration = float((data.times[:, -1] - data.times[:, 0]).max())
    fine = refine(data, duration / NUM_FINE).data if duration > 0.0 else data
    arranged = arrange(config, fine, rule)
    outputs, noise = _respond(family, arranged, draws)
    rng = np.random.default_rng([config.seed, 13])
    noisy = np.concatenate([outputs + noise * rng.standard_normal(outputs.shape) for _ in range(NUM_NOISES)])
    ((low, high),) = central_bands(np.asarray(rule.unscaled(noisy), float), (90,))
    own = np.median(rule.unscaled(outputs), axis=0)
    typical = rule.unscaled(_respond(family, arranged, np.zeros_like(draws[:, :1]))[0])[0]
    num = min(max(1, MOST_PANELS // data.num_outputs), data.num_trajectories)
    found = []
    for trajectory in np.linspace(0, data.num_trajectories - 1, num).round().astype(int):
        cut = slice(int(fine.lengths[trajectory]))
        curves = (values[trajectory, cut] for values in (typical, own, low, high))
        found.append(OwnFit(int(trajectory), fine.times[trajectory, cut], *curves))
    return found


def _errors(
    config: Config, arranged: Arranged, simulated: Float[np.ndarray, "sim traj time out"], rule: Rule
) -> Float[np.ndarray, "traj time out"]:
    """NPDE of every reading; one below the limit of quantification is drawn from simulations that are below it, too."""
    data, rng = arranged.shown, np.random.default_rng([config.seed, 12])
    readings, below = np.array(rule.scaled(data.outputs), float), is_below(config, data)
    if below.any():
        limits = rule.scaled(np.broadcast_to(np.asarray(config.hierarchical.quantification_limit), data.outputs.shape))
        readings[below] = below_limit(simulated[:, below], limits[below], rng=rng)
    found = np.full(data.outputs.shape, np.nan)
    for unit in range(data.num_units):
        own = data.mask & (data.unit == unit)[:, None, None]
        if own.any():
            found[own] = npde(readings[own], simulated[:, own], rng=rng)
    return found
