"""The maximum of the marginal likelihood: L-BFGS on a deterministic objective.

The objective is Laplace's approximation first, then importance sampling with fixed points. With many units, Adam on
random units with fresh points takes the place of the second.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array, Float, OnStep
from langenode.inference.errors import FitError
from langenode.inference.hierarchical.batches import descend, evaluate
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.marginal import Points, Rule, make_points, marginal
from langenode.inference.hierarchical.units import Units

# Modes are searched for from zero, too, at the start and after this many accepted steps: the best one may change.
REFRESH_EVERY = 10
# Below this many units all are taken in every update.
MOST_TOGETHER = 512
# A search that could gain no more than this, in nats, has converged: no band depends on it.
NEGLIGIBLE_GAIN = 0.05
# A change by less than this many standard errors may be chance.
MOST_ERRORS = 2.0


class Settings(NamedTuple):
    """Sizes of a fit: points per unit, and the most iterations of each search."""

    num_points: int = 64
    num_laplace: int = 200
    num_importance: int = 100
    batch_units: int = 128
    num_updates: int = 400
    learning_rate: float = 1e-2
    tolerance: float = 1e-7


class Estimate(NamedTuple):
    """The family at its maximum, the units' modes there, and the course of the search."""

    family: Family
    modes: Float[np.ndarray, "unit effect"]
    log_likelihood: float  # of the last rule that was maximised, without the prior
    laplace: float
    num_evaluations: int
    has_converged: bool
    seconds: float


class LogPrior(eqx.Module):
    """The log density of what all units have in common; zero by default: plain maximum likelihood."""

    def __call__(self, family: Family) -> Float[Array, ""]:
        """Nothing is preferred."""
        del family
        return jnp.zeros(())


def trained(family: Family) -> Any:
    """A tree of booleans: True at the numbers that are estimated."""
    flags = jax.tree.map(lambda leaf: False, family)
    flags = eqx.tree_at(lambda f: f.effects, flags, family.effects.trained())
    flags = eqx.tree_at(lambda f: f.model, flags, family.partition.is_rest(family.model))
    if family.occasion_scale is None:
        return flags
    return eqx.tree_at(lambda f: f.occasion_scale, flags, True)


@quick_jit
def objective(
    params: Any,
    static: Any,
    units: Units,
    modes: Array,
    points: Points,
    prior: LogPrior,
    rule: Rule,
    from_zero: Array,
) -> tuple[tuple[Array, Array, Array], Any]:
    """Minus the log posterior of the common numbers; the log-likelihood and the modes; and the gradient."""

    def loss(params):
        family = eqx.combine(params, static)
        found = marginal(family, units, modes, points, rule, from_zero=from_zero)
        total = jnp.sum(jnp.where(units.weight > 0, units.weight * found.values, 0.0))
        return -(total + prior(family)), (total, found.modes)

    (value, (total, modes)), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    return (value, total, modes), gradient


def start_modes(family: Family, units: Units) -> Float[np.ndarray, "unit effect"]:
    """Where searches for modes begin: at zero, the middle of the law."""
    return np.zeros((units.num, family.num_effects(units.num_trajectories)))


_NO_VALUE = (
    "the marginal likelihood must be finite where a fit starts; it is not; give other starting values, scale the data, "
    "or add solver substeps"
)
_NO_DERIVATIVE = (
    "the derivative of the marginal likelihood must be finite where a fit starts; it is not, though the likelihood is, "
    "as where an exponential in the equations overflows; write them so that they do not, for example 1 / (1 + exp(x)) "
    "as jax.nn.sigmoid(-x), or give other starting values"
)


class _Objective:
    """The objective of a flat vector for SciPy; modes are kept only of points that the search accepts."""

    def __init__(self, family: Family, units: Units, modes: np.ndarray, points: Points, prior: LogPrior, rule: Rule):
        params, self.static = eqx.partition(family, trained(family))
        self.leaves, self.structure = jax.tree.flatten(params)
        self.start = _flat(params)
        self.units, self.points, self.prior = units, points, prior
        self.rule: Rule = rule
        self.modes, self.tried, self.count, self.num_accepted = modes, [], 0, 0
        self.log_likelihood = np.nan
        self.has_value = True  # where only the derivative was not finite

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        is_fresh, modes = (
            jax.device_put(np.asarray(values)) for values in (self.num_accepted % REFRESH_EVERY == 0, self.modes)
        )
        found, gradient = objective(
            self.unflat(flat), self.static, self.units, modes, self.points, self.prior, self.rule, is_fresh
        )
        value, total, modes = found
        slope = _flat(gradient)
        self.count += 1
        if not (np.isfinite(float(value)) and np.all(np.isfinite(slope))):
            self.has_value = bool(np.isfinite(float(value)))
            return 1e12, np.zeros_like(slope)
        self.tried = [*self.tried[-20:], (np.array(flat), np.asarray(modes), float(total))]
        return float(value), slope

    def unflat(self, flat: np.ndarray) -> Any:
        """The numbers that are estimated as a tree, by NumPy: JAX would run a program for each."""
        ends = np.cumsum([leaf.size for leaf in self.leaves], dtype=int)
        parts = zip(np.split(flat, ends)[:-1], self.leaves, strict=True)
        return jax.tree.unflatten(self.structure, [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in parts])

    def accept(self, flat: np.ndarray) -> None:
        """Keep the modes of an accepted point."""
        for tried, modes, total in reversed(self.tried):
            if np.array_equal(tried, flat):
                self.modes, self.log_likelihood = modes, total
                self.num_accepted += 1
                return

    def family(self, flat: np.ndarray) -> Family:
        """The family at a vector."""
        return eqx.combine(jax.tree.map(jnp.asarray, self.unflat(flat)), self.static)


def _flat(tree: Any) -> Float[np.ndarray, " number"]:
    return np.concatenate([np.ravel(np.asarray(leaf, float)) for leaf in jax.tree.leaves(tree)] or [np.zeros(0)])


def gain_left(gradient: np.ndarray, inverse_curvature: Any) -> float:
    """What a further step promises, in nats, by the search's own curvature; it may have ended in a line search."""
    return float(0.5 * gradient @ inverse_curvature.dot(gradient))


class Searched(NamedTuple):
    """Where a search ended."""

    family: Family
    modes: np.ndarray
    log_likelihood: float
    num_evaluations: int
    has_converged: bool


def search(
    family: Family,
    units: Units,
    modes: np.ndarray,
    points: Points,
    prior: LogPrior,
    rule: Rule,
    *,
    most: int,
    tolerance: float = 1e-7,
    on_step: Callable[[int], None] | None = None,
) -> Searched:
    """L-BFGS from a family; the tolerance is relative, of the objective."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits

    function = _Objective(family, units, modes, points, prior, rule)
    first, _ = function(function.start)
    if first >= 1e12:
        raise FitError(_NO_DERIVATIVE if function.has_value else _NO_VALUE)
    function.accept(function.start)
    steps = iter(range(1, most + 1))

    def accepted(flat: np.ndarray) -> None:
        function.accept(flat)
        if on_step is not None:
            on_step(next(steps, most))

    options = {"maxiter": most, "maxfun": 3 * most + 20, "ftol": tolerance * 1e-2, "gtol": 1e-5, "maxls": 30}
    # Its matrices have a few rows: with several threads they would wait for each other 100 times as long.
    with threadpool_limits(1, user_api="blas"):
        found = minimize(function, function.start, jac=True, method="L-BFGS-B", callback=accepted, options=options)
    function.accept(found.x)
    is_done = bool(found.success) or gain_left(found.jac, found.hess_inv) < NEGLIGIBLE_GAIN
    return Searched(function.family(found.x), function.modes, function.log_likelihood, function.count, is_done)


def estimate(
    family: Family,
    units: Units,
    *,
    prior: LogPrior | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    modes: np.ndarray | None = None,
    on_step: OnStep | None = None,
) -> Estimate:
    """Maximise the marginal likelihood, from the family given: Laplace's approximation, then importance sampling.

    Without iterations of the latter the former is the end; without those of the former there is no such value.
    """
    prior = LogPrior() if prior is None else prior
    settings = Settings() if settings is None else settings
    begin = time.perf_counter()
    modes = start_modes(family, units) if modes is None else modes
    num_effects = modes.shape[1]
    is_large = units.num > MOST_TOGETHER
    some = _first_units(units, modes, MOST_TOGETHER) if is_large else (units, modes)
    points = make_points(settings.num_points, num_effects, some[0].num, seed=seed)

    def shown(what: str, most: int) -> Callable[[int], None] | None:
        return None if on_step is None else functools.partial(_shown, on_step, most, what)

    most = settings.num_laplace
    first = Searched(family, some[1], np.nan, 0, True)
    if most > 0:
        tolerance, on_laplace = settings.tolerance, shown("Laplace", most)
        first = search(family, *some, points, prior, "laplace", most=most, tolerance=tolerance, on_step=on_laplace)
    if settings.num_importance == 0 and not is_large:
        last = first._replace(num_evaluations=0)
    elif is_large:
        last = _by_batches(first.family, units, modes, prior, settings, seed, on_step)
    else:
        most = settings.num_importance
        last = search(
            first.family,
            units,
            first.modes,
            points,
            prior,
            "importance",
            most=most,
            tolerance=settings.tolerance,
            on_step=shown("importance sampling", most),
        )
    return Estimate(
        last.family,
        last.modes,
        last.log_likelihood,
        first.log_likelihood,
        first.num_evaluations + last.num_evaluations,
        last.has_converged,  # the first is but its start
        time.perf_counter() - begin,
    )


def _shown(on_step: OnStep, most: int, what: str, step: int) -> None:
    on_step(step, most, what)


def _first_units(units: Units, modes: np.ndarray, num: int) -> tuple[Units, np.ndarray]:
    return jax.tree.map(lambda leaf: leaf[:num], units), modes[:num]


# Many units


def _by_batches(
    family: Family,
    units: Units,
    modes: np.ndarray,
    prior: LogPrior,
    settings: Settings,
    seed: int,
    on_step: OnStep | None,
) -> Searched:
    """Adam on random units with fresh points; the last quarter of the path is averaged.

    The search has converged where the last quarter raised the log-likelihood of all units by no more than half a nat
    per number, which is as far as the maximum itself is from the truth, or by no more than chance.
    """
    params, static = eqx.partition(family, trained(family))
    share = settings.batch_units / float(np.asarray(units.weight).sum())
    scaled, modes = _Scaled(prior, share), np.array(modes)

    def gradient(params: Any, rows: np.ndarray, seed: int) -> Any:
        points = make_points(settings.num_points, modes.shape[1], len(rows), seed=seed)
        batch = jax.tree.map(lambda leaf: leaf[rows], units)
        starts, fresh = jnp.asarray(modes[rows]), jnp.asarray(True)
        found, slope = objective(params, static, batch, starts, points, scaled, "importance", fresh)
        if not (np.isfinite(float(found[0])) and np.all(np.isfinite(_flat(slope)))):
            return None
        modes[rows] = np.asarray(found[2])
        return slope

    options = {name: getattr(settings, name) for name in ("batch_units", "num_updates", "learning_rate")}
    rng = np.random.default_rng([seed, 1])
    last = descend(gradient, params, units.num, **options, rng=rng, on_step=on_step)
    points = make_points(settings.num_points, modes.shape[1], units.num, seed=seed)
    found, before = (evaluate(eqx.combine(p, static), units, modes, points) for p in (last.params, last.before))
    weight = np.asarray(units.weight, float)
    gains = np.where(weight > 0, weight * (found.values - before.values), 0.0)
    error = float(np.sqrt((gains**2).sum()))
    is_done = bool(gains.sum() < max(0.5 * len(_flat(params)), MOST_ERRORS * error))
    total = float(np.where(weight > 0, weight * found.values, 0.0).sum())
    return Searched(eqx.combine(last.params, static), found.modes, total, settings.num_updates, is_done)


class _Scaled(LogPrior):
    """A share of a log prior: that of a mini-batch."""

    prior: LogPrior
    share: float

    def __call__(self, family: Family) -> Float[Array, ""]:
        """The log density times the share."""
        return self.share * self.prior(family)


def log_likelihood(
    family: Family, units: Units, modes: np.ndarray, *, num_points: int = 1024, seed: int = 0, num_seeds: int = 2
) -> tuple[float, float, np.ndarray]:
    """The log-likelihood by many points, its standard error by independent shifts, and the units' own values."""
    values = []
    for number in range(num_seeds):
        points = make_points(num_points, modes.shape[1], units.num, seed=seed + 1000 + number)
        values.append(unit_values(family, units, modes, points))
    weight = np.asarray(units.weight, float)
    own = np.where(weight > 0, weight * np.array(values), 0.0)
    # Units have shifts of their own, so their errors are independent: many units tell the error well by two seeds.
    variance = own.var(axis=0, ddof=1).sum() / num_seeds if num_seeds > 1 else np.nan
    return float(own.sum(1).mean()), float(np.sqrt(variance)), np.mean(values, axis=0)


def unit_values(family: Family, units: Units, modes: np.ndarray, points: Points) -> np.ndarray:
    """Log-likelihoods of the units by importance sampling."""
    return evaluate(family, units, modes, points).values
