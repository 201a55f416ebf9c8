"""The error of the integrator at units of the fitted distribution, by halving its steps.

At the mean unit it may be small and at the fast ones large; an error there would be booked as noise or as spread.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from langenode._compiling import quick_jit
from langenode._types import Array
from langenode.inference.hierarchical.family import Family
from langenode.inference.hierarchical.units import Units
from langenode.models import Heun, RungeKutta

# Units that are drawn, and the level of their errors that is reported.
NUM_UNITS, LEVEL = 64, 0.95


def halved(model: Any) -> Any | None:
    """The model with steps of half the length; None where it has no fixed steps."""
    solver = getattr(model, "solver", None)
    if not isinstance(solver, Heun | RungeKutta):
        return None
    num = 2 * solver.substeps
    finer = Heun(num, solver.input_rule) if isinstance(solver, Heun) else RungeKutta(num)
    return eqx.tree_at(lambda m: m.solver, model, finer)


def integration_error(family: Family, units: Units, *, seed: int) -> float:
    """How far readings move when steps are halved, in standard deviations of the noise: the 95 % level over new units.

    Each new unit has the times and inputs of one of the data's. Zero for formulas and adaptive solvers.
    """
    finer = halved(family.model)
    if finer is None or (getattr(family.model, "curve", None) is not None):
        return 0.0
    rng = np.random.default_rng(seed)
    xi = jnp.asarray(rng.standard_normal((NUM_UNITS, family.num_effects(units.num_trajectories))))
    rows = rng.integers(0, units.num, NUM_UNITS)
    some = jax.tree.map(lambda leaf: leaf[rows], units)
    fine = eqx.tree_at(lambda f: f.model, family, finer)
    errors = np.asarray(_largest_errors(family, fine, xi, some))
    # A unit at which the model is not finite has an error that no step size explains.
    errors = np.where(np.isfinite(errors), errors, np.inf)
    return float(min(np.quantile(errors, LEVEL), 1e9))


@quick_jit
def _largest_errors(family: Family, fine: Family, xi: Array, units: Units) -> Array:
    def one(xi: Array, unit: Units) -> Array:
        coarse, log_variance = family.respond(xi, unit)
        error = jnp.abs(fine.respond(xi, unit)[0] - coarse) / jnp.exp(0.5 * log_variance)
        return jnp.max(jnp.where(unit.mask, error, 0.0))

    return jax.vmap(one)(xi, units)
