"""From data to a fitted hierarchical problem: candidates on held-out units, the estimate, its uncertainty."""

import dataclasses
import time
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._types import Float, Int, OnStep
from langenode.config import Config
from langenode.data import Dataset, Scaling
from langenode.fitting.units import families
from langenode.fitting.units.families import in_64_bits
from langenode.fitting.units.integration import integration_error
from langenode.fitting.units.scoring import first_readings
from langenode.fitting.units.starting import about_normal, has_modes
from langenode.inference.hierarchical import estimate as estimating
from langenode.inference.hierarchical import linear, uncertainty
from langenode.inference.hierarchical.conditional import member_of, stacked
from langenode.inference.hierarchical.estimate import Estimate, LogPrior, Settings
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import Rule, make_points
from langenode.inference.hierarchical.units import Units
from langenode.inference.likelihood import inferred_noise
from langenode.inference.partition import Partition, Where, noise_positions
from langenode.inference.priors import GaussianPrior
from langenode.inference.problem import Problem
from langenode.inference.targets import Hierarchical
from langenode.models import LatentCurve, LatentODE, SmoothCurve, UnitModel
from langenode.posteriors import Gaussian, Standard, cast

# Models for data without known equations.
GENERIC = (LatentODE, LatentCurve, SmoothCurve)
NETWORK_TOLERANCE, MAP_TOLERANCE = 1e-3, 1e-5
# Points behind reported log-likelihoods, and behind scores of held-out units.
REPORTED_POINTS, SCORE_POINTS = 1024, 256
# The same of very many units, of which no single one matters; and how many of them are looked at one by one.
REPORTED_OF_MANY, MOST_CHECKED = 256, 1000
# Spreads between units that a score is averaged over.
NUM_SPREADS = 8
# Least-squares noise is more than that of a family, whose effects explain a part of it: where a search starts.
FIRST_SHARE, FIRST_PROPORTION = 0.7, 0.1


class SolvedUnits(NamedTuple):
    """A fitted hierarchical problem, its diagnostics and the seconds it took."""

    problem: Problem
    diagnostics: dict[str, Any]
    seconds: float


def settings_of(config: Config, family: Family) -> Settings:
    """The sizes of a fit."""
    options = config.hierarchical
    return Settings(
        tolerance=tolerance_of(family),
        num_points=options.num_points,
        num_laplace=options.num_laplace,
        num_importance=options.num_importance,
        batch_units=options.batch_units,
        num_updates=options.num_updates,
    )


def tolerance_of(family: Family) -> float:
    """When a search ends, relative to the objective: no band depends on the last digits of a network's weights."""
    if isinstance(family.model, GENERIC):
        return NETWORK_TOLERANCE
    return MAP_TOLERANCE if has_modes(family) else Settings().tolerance


def is_all_in_model(family: Family) -> bool:
    """Whether all numbers that are estimated are weights of the model, which a candidate keeps."""
    return isinstance(family.effects, Standard) and family.occasion_scale is None


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
        if isinstance(family.model, SmoothCurve):
            return linear.fit_smooth(family, units, seed=config.seed).family
        prior = families.make_prior(config, family, train)
        modes = estimating.start_modes(family, units)
        points = make_points(config.hierarchical.num_points, modes.shape[1], units.num, seed=config.seed)
        most, tolerance = config.hierarchical.num_laplace, tolerance_of(family)
        return estimating.search(family, units, modes, points, prior, "laplace", most=most, tolerance=tolerance).family


class LogScore(NamedTuple):
    """Log densities of held-out units, and how many readings of each they are of."""

    values: Float[np.ndarray, " unit"]
    num_readings: Int[np.ndarray, " unit"]

    @property
    def mean(self) -> float:
        """Per reading."""
        return float(self.values.sum() / max(int(self.num_readings.sum()), 1))

    def error_of_gain(self, before: "LogScore") -> float:
        """The standard error, by units, of what this mean has gained over another one of the same units."""
        gains = self.values - before.values
        num = len(gains)
        if num < 2:
            return 0.0
        rest = gains - self.num_readings * (gains.sum() / max(int(self.num_readings.sum()), 1))
        return float(np.sqrt(num / (num - 1) * (rest**2).sum()) / max(int(self.num_readings.sum()), 1))


def log_score(config: Config, family: Family, held_out: Dataset, scaling: Scaling, num_fitted: int) -> LogScore:
    """The log densities of held-out units' readings given their first ones.

    Where starts are known exactly, no reading is given. The spread of latent effects is as uncertain as `num_fitted`
    units leave it, as in predictions: densities are averaged over it.
    """
    from scipy.special import logsumexp

    with in_64_bits():
        units = families.as_units(config, held_out, scaling)
        given = first_readings(held_out, 1 if config.noise.in_start else 0)
        first = families.as_units(config, dataclasses.replace(held_out, mask=given), scaling)
        modes = estimating.start_modes(family, units)
        points = make_points(SCORE_POINTS, modes.shape[1], units.num, seed=config.seed + 1)
        members = uncertainty.with_typical_spreads(family, num_fitted, NUM_SPREADS)
        values = [[estimating.unit_values(one, some, modes, points) for one in members] for some in (units, first)]
        whole, part = (np.asarray(logsumexp(np.array(rows), axis=0)) for rows in values)
        rest = (held_out.mask & ~given).sum(axis=(1, 2))
        counts = np.bincount(held_out.unit, weights=rest, minlength=len(whole)).astype(int)
        return LogScore(np.asarray(whole - part, float), counts)


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

    A companion (a fold's fit) has no diagnostics, and starts at its candidate's estimate.
    """
    begin = time.perf_counter()
    with in_64_bits():
        units = families.as_units(config, train, scaling)
        if family is None:
            family = families.make_family(config, start, scaling, where)
        if isinstance(family.model, SmoothCurve):
            solved = _solve_smooth(config, family, units, train, scaling, is_companion=is_companion)
            return solved._replace(seconds=time.perf_counter() - begin)
        prior = families.make_prior(config, family, train)
        settings = settings_of(config, family)
        if is_companion and is_all_in_model(family) and settings.num_importance == 0:
            settings = settings._replace(num_laplace=1)  # the candidate was searched for as long as the final fit is
        if has_modes(family):
            family = about_normal(config, family, units, prior, settings, on_step)
            if settings.num_importance > 0:  # Laplace's approximation is poor where a map bends
                settings = settings._replace(num_laplace=0)
        found = estimating.estimate(family, units, prior=prior, settings=settings, seed=config.seed, on_step=on_step)
        drawn, information = draw_families(config, found, units, prior, on_step)
        families_stack = stacked([found.family, *drawn])
        diagnostics = {} if is_companion else diagnose(config, found, units, prior, information, train, scaling)
        problem = as_problem(config, families_stack)
    return SolvedUnits(problem, diagnostics, time.perf_counter() - begin)


def _solve_smooth(
    config: Config, family: Family, units: Units, train: Dataset, scaling: Scaling, *, is_companion: bool
) -> SolvedUnits:
    """The same for smooth curves, of which all but their sizes is known in closed form."""
    found = linear.fit_smooth(family, units, seed=config.seed)
    rng = np.random.default_rng([config.seed, 3])
    drawn = linear.draw_smooth(found, units, config.hierarchical.num_draws, rng=rng)
    diagnostics = {}
    if not is_companion:
        modes = estimating.start_modes(found.family, units)
        estimate = Estimate(found.family, modes, np.nan, np.nan, 0, found.has_converged, 0.0)
        diagnostics = diagnose(config, estimate, units, LogPrior(), None, train, scaling)
    return SolvedUnits(as_problem(config, stacked([found.family, *drawn])), diagnostics, 0.0)


def draw_families(
    config: Config, found: Estimate, units: Units, prior: LogPrior, on_step: OnStep | None
) -> tuple[list[Family], uncertainty.Information | None]:
    """Draws of what all units share: by its information where there are few numbers, else by a bootstrap over units.

    Of a generic model the numbers are those of its last layers and its noise, in which it is linear or nearly so.
    """
    num, family = config.hierarchical.num_draws, found.family
    rng = np.random.default_rng([config.seed, 3])
    points = make_points(config.hierarchical.num_points, found.modes.shape[1], units.num, seed=config.seed)
    is_generic, fixed = isinstance(family.model, GENERIC), zero_spreads(family)
    rule: Rule = "laplace" if is_generic else "importance"
    if is_generic:
        fixed = fixed | ~of_last_layers(family)
    num_free = int((uncertainty.has_effect(family) & ~fixed).sum())
    information, shown = None, None
    if units.num > estimating.MOST_TOGETHER:
        arguments = (family, units, found.modes, points, prior)
        information = uncertainty.score_information(*arguments, fixed=fixed)
        drawn = uncertainty.normal_draws(family, information, num, rng=rng)
    elif num_free <= uncertainty.MOST_FOR_LAPLACE:
        arguments = (family, units, found.modes, points, prior)
        information = uncertainty.observed_information(*arguments, fixed=fixed, rule=rule)
        density = uncertainty.log_posterior_of(*arguments, rule=rule)
        drawn = uncertainty.laplace_draws(family, information, num, log_posterior=density, rng=rng)
    else:
        if on_step is not None:
            shown = lambda step: on_step(step, num, "bootstrap over units")  # noqa: E731
        arguments = (family, units, found.modes, points, prior, num)
        drawn = uncertainty.bootstrap_draws(*arguments, rng=rng, rule=rule, on_step=shown)
    if isinstance(family.effects, Standard):
        drawn = uncertainty.with_drawn_spreads(drawn, int(np.asarray(units.weight > 0).sum()), rng)
    return drawn, information


def of_last_layers(family: Family) -> np.ndarray:
    """Which of the estimated numbers are weights of last layers, of the start, or of the noise."""
    model, chosen = family.model, set(Partition.of(family.model, "last_layer").positions)
    chosen |= noise_positions(model)
    if isinstance(model, LatentODE):
        chosen |= set(Partition.of(model, lambda m: (m.start, m.offset)).positions)
    leaves, structure = jax.tree.flatten(model)
    marks = [np.full(np.shape(leaf), float(place in chosen)) for place, leaf in enumerate(leaves)]
    whole = jax.tree.map(lambda leaf: np.zeros(np.shape(leaf)), family)
    whole = eqx.tree_at(lambda f: f.model, whole, jax.tree.unflatten(structure, marks))
    kept = eqx.filter(whole, estimating.trained(family))
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(kept)]) > 0


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
    num_points = REPORTED_OF_MANY if units.num > estimating.MOST_TOGETHER else REPORTED_POINTS
    value, error, _ = estimating.log_likelihood(family, units, found.modes, num_points=num_points, seed=config.seed)
    value += to_data
    num_numbers = uncertainty.num_numbers(family)
    has_laplace = units.num <= estimating.MOST_TOGETHER and np.isfinite(found.laplace)
    record: dict[str, Any] = {
        "log_likelihood": value,
        "log_likelihood_se": error,
        # With many units it was maximised for some of them only, and of maps with several modes not at all.
        "laplace": found.laplace + to_data if has_laplace else None,
        "num_parameters": num_numbers,
        "num_units": int(np.asarray(units.weight > 0).sum()),
        "aic": 2.0 * num_numbers - 2.0 * value,
        "bic": num_numbers * np.log(max(int(np.asarray(units.weight > 0).sum()), 1)) - 2.0 * value,
        "has_converged": found.has_converged,
    }
    # Of a network no number is looked at by itself.
    if information is not None and not isinstance(family.model, GENERIC):
        record["information_is_positive"] = information.is_positive
        points = make_points(config.hierarchical.num_points, found.modes.shape[1], units.num, seed=config.seed)
        ratio = uncertainty.sandwich_ratio(family, units, found.modes, points, prior, information)
        record["sandwich_ratio"] = float(np.nanmax(ratio))
        if isinstance(family.model, UnitModel) and isinstance(family.effects, Gaussian):
            record["parameters"] = checking.parameter_table(family, information)
    record |= checking.unit_diagnostics(family, units, num_points=512, seed=config.seed, most=MOST_CHECKED)
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
