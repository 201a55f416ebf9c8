"""From data to a fitted hierarchical problem: candidates on held-out units, the estimate, its uncertainty."""

import time
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import OnStep
from langenode.config import Config
from langenode.data import Dataset, Scaling
from langenode.fitting.units import families
from langenode.fitting.units.families import in_64_bits
from langenode.fitting.units.integration import integration_error
from langenode.inference.hierarchical import estimate as estimating
from langenode.inference.hierarchical import uncertainty
from langenode.inference.hierarchical.conditional import member_of, stacked
from langenode.inference.hierarchical.estimate import Estimate, LogPrior, Settings
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import make_points
from langenode.inference.hierarchical.units import Units
from langenode.inference.likelihood import inferred_noise
from langenode.inference.partition import Where
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Hierarchical
from langenode.models import UnitModel
from langenode.posteriors import Gaussian, cast

# Points behind reported log-likelihoods, and behind scores of held-out units.
REPORTED_POINTS, SCORE_POINTS = 1024, 256
# Least-squares noise is more than that of a family, whose effects explain a part of it: where a search starts.
FIRST_SHARE, FIRST_PROPORTION = 0.7, 0.1


class SolvedUnits(NamedTuple):
    """A fitted hierarchical problem, its diagnostics and the seconds it took."""

    problem: Problem
    diagnostics: dict[str, Any]
    seconds: float


def settings_of(config: Config) -> Settings:
    """The sizes of a fit."""
    options = config.hierarchical
    return Settings(
        num_points=options.num_points,
        num_laplace=options.num_laplace,
        num_importance=options.num_importance,
        batch_units=options.batch_units,
        num_updates=options.num_updates,
    )


def with_first_noise(model: Any) -> Any:
    """The model with the noise that a search starts from, about a least-squares fit whose noise is one number."""
    rms = jnp.exp(model.log_noise if model.log_noise.ndim == 1 else model.log_noise[0])
    parts = FIRST_SHARE * rms
    if model.log_noise.ndim == 2:
        parts = jnp.stack([parts, jnp.full_like(parts, FIRST_PROPORTION)])
    return eqx.tree_at(lambda m: m.log_noise, model, jnp.log(parts))


def fit_candidate(config: Config, model: Any, train: Dataset, scaling: Scaling, where: Where | None = None) -> Family:
    """The family of a candidate at the maximum of Laplace's approximation, from a least-squares fit."""
    with in_64_bits():
        family = families.make_family(config, with_first_noise(cast(model, jnp.float64)), scaling, where)
        units = families.as_units(config, train, scaling)
        prior = families.make_prior(config, family, train)
        modes = estimating.start_modes(family, units)
        points = make_points(config.hierarchical.num_points, modes.shape[1], units.num, seed=config.seed)
        most = config.hierarchical.num_laplace
        return estimating.search(family, units, modes, points, prior, "laplace", most=most).family


def log_score(config: Config, family: Family, held_out: Dataset, scaling: Scaling) -> float:
    """The log density of held-out units' readings, as new units, per reading."""
    with in_64_bits():
        units = families.as_units(config, held_out, scaling)
        modes = estimating.start_modes(family, units)
        points = make_points(SCORE_POINTS, modes.shape[1], units.num, seed=config.seed + 1)
        values = estimating.unit_values(family, units, modes, points)
        return float(values.sum() / max(int(held_out.mask.sum()), 1))


def solve_units(
    config: Config,
    start: Any,
    train: Dataset,
    scaling: Scaling,
    *,
    where: Where | None = None,
    family: Family | None = None,
    is_companion: bool = False,
    on_step: OnStep | None = None,
) -> SolvedUnits:
    """Estimate the family about a model, and draw what all units share. `train` is scaled.

    A companion (a fold's fit) has no diagnostics.
    """
    begin = time.perf_counter()
    with in_64_bits():
        units = families.as_units(config, train, scaling)
        if family is None:
            family = families.make_family(config, start, scaling, where)
        prior = families.make_prior(config, family, train)
        found = estimating.estimate(
            family, units, prior=prior, settings=settings_of(config), seed=config.seed, on_step=on_step
        )
        drawn, information = draw_families(config, found, units, prior, on_step)
        families_stack = stacked([found.family, *drawn])
        diagnostics = {} if is_companion else diagnose(config, found, units, prior, information, train, scaling)
        problem = as_problem(config, families_stack)
    return SolvedUnits(problem, diagnostics, time.perf_counter() - begin)


def draw_families(
    config: Config, found: Estimate, units: Units, prior: LogPrior, on_step: OnStep | None
) -> tuple[list[Family], uncertainty.Information | None]:
    """Draws of what all units share: by its information where there are few numbers, else by a bootstrap over units."""
    num, family = config.hierarchical.num_draws, found.family
    rng = np.random.default_rng([config.seed, 3])
    points = make_points(config.hierarchical.num_points, found.modes.shape[1], units.num, seed=config.seed)
    is_small = uncertainty.num_numbers(family) <= uncertainty.MOST_FOR_LAPLACE and units.num <= estimating.MOST_TOGETHER
    if is_small:
        at_zero = zero_spreads(family)
        information = uncertainty.observed_information(family, units, found.modes, points, prior, at_zero=at_zero)
        density = uncertainty.log_posterior_of(family, units, found.modes, points, prior)
        drawn = uncertainty.laplace_draws(family, information, num, log_posterior=density, rng=rng)
        return drawn, information
    shown = None if on_step is None else (lambda step: on_step(step, num, "bootstrap over units"))
    drawn = uncertainty.bootstrap_draws(family, units, found.modes, points, prior, num, rng=rng, on_step=shown)
    return drawn, None


def zero_spreads(family: Family) -> np.ndarray:
    """Which of the estimated numbers are logarithms of spreads that have gone to zero."""
    marks = jax.tree.map(lambda leaf: np.zeros(np.shape(leaf)), eqx.filter(family, estimating.trained(family)))
    if isinstance(family.effects, Gaussian):
        is_zero = np.asarray(family.effects.log_scale) < uncertainty.LOG_ZERO_SPREAD
        marks = eqx.tree_at(lambda f: f.effects.log_scale, marks, is_zero.astype(float))
    if family.occasion_scale is not None:
        is_zero = np.asarray(family.occasion_scale) < uncertainty.LOG_ZERO_SPREAD
        marks = eqx.tree_at(lambda f: f.occasion_scale, marks, is_zero.astype(float))
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(marks)]) > 0


def as_problem(config: Config, stack: Family) -> Problem:
    """The fitted problem: all weights are stochastic, those that units share by the uncertainty of the estimate."""
    dtype = jnp.dtype(config.precision)
    estimate = member_of(stack, 0)
    # A unit's own weights in the stored model are those of the middle of their distribution.
    middle = estimate.effects.from_noise(jnp.zeros(estimate.effects.num_noise))
    model = estimate.partition.combine(estimate.model, middle)
    whole = families.all_weights(model)
    weights = whole.flatten(model).astype(dtype)
    levels = None if estimate.levels is None else cast(estimate.levels, dtype)
    return Problem(
        cast(model, dtype),
        whole,
        GaussianPrior(weights, jnp.ones_like(weights)),
        inferred_noise(levels),
        Hierarchical(),
        families.new_units(stack, dtype),
    )


# Diagnostics


def diagnose(
    config: Config,
    found: Estimate,
    units: Units,
    prior: LogPrior,
    information: uncertainty.Information | None,
    train: Dataset,
    scaling: Scaling,
) -> dict[str, Any]:
    """Log-likelihoods, information criteria, parameters, shrinkage, importance weights, integration error."""
    from langenode.fitting.units import checking

    family, to_data = found.family, log_slopes(units, scaling)
    value, error, _ = estimating.log_likelihood(
        family, units, found.modes, num_points=REPORTED_POINTS, seed=config.seed
    )
    value += to_data
    num_numbers = uncertainty.num_numbers(family)
    record: dict[str, Any] = {
        "log_likelihood": value,
        "log_likelihood_se": error,
        # With many units it was maximised for some of them only.
        "laplace": found.laplace + to_data if units.num <= estimating.MOST_TOGETHER else None,
        "num_parameters": num_numbers,
        "num_units": int(np.asarray(units.weight > 0).sum()),
        "aic": 2.0 * num_numbers - 2.0 * value,
        "bic": num_numbers * np.log(max(int(np.asarray(units.weight > 0).sum()), 1)) - 2.0 * value,
        "has_converged": found.has_converged,
    }
    if information is not None:
        points = make_points(config.hierarchical.num_points, found.modes.shape[1], units.num, seed=config.seed)
        ratio = uncertainty.sandwich_ratio(family, units, found.modes, points, prior, information)
        record |= {"information_is_positive": information.is_positive, "sandwich_ratio": float(np.nanmax(ratio))}
        if isinstance(family.model, UnitModel) and isinstance(family.effects, Gaussian):
            record["parameters"] = checking.parameter_table(family, information)
    record |= checking.unit_diagnostics(family, units, num_points=512, seed=config.seed)
    record["integration_error"] = integration_error(family, units, seed=config.seed)
    if record["integration_error"] > MOST_INTEGRATION_ERROR:
        warnings.warn(
            "the integrator's error must be small beside the noise at the fast units of the fitted distribution; it is "
            f"{record['integration_error']:.2g} of it; lower model.largest_step, or add solver substeps",
            stacklevel=2,
        )
    return {"hierarchical": record}


MOST_INTEGRATION_ERROR = 0.1


def log_slopes(units: Units, scaling: Scaling) -> float:
    """What a log density of scaled readings lacks to one in the data's own units; readings below a limit have none."""
    seen = np.asarray(units.mask & ~units.below) & (np.asarray(units.weight) > 0)[:, None, None, None]
    slopes = np.log(scaling.slope_at(np.asarray(scaling.unscale_outputs(np.asarray(units.outputs)))))
    return float(slopes[seen].sum())
