"""Ensembles of point estimates: a mode from each of many draws of the prior, equally weighted; and the best alone."""

from typing import Any

import numpy as np

from langenode._types import PRNGKeyArray
from langenode.posteriors import Density, Sampled
from langenode.samplers.common import at_least, finish, unchecked
from langenode.samplers.modes import Modes, find_modes, prior_starts


def ensemble(density: Density, *, key: PRNGKeyArray, num_members: int = 64, num_iterations: int = 60) -> Sampled:
    """A deep ensemble: its spread is that of the modes, not of the posterior.

    Members whose search failed are dropped and counted.
    """
    at_least(1, num_members=num_members)
    modes = find_modes(density, prior_starts(density, num_members, key=key), num_iterations=num_iterations)
    is_sound = modes.is_sound()
    diagnostics = _diagnostics(modes) | {"failed": int(np.sum(~is_sound))}
    points = modes.points[is_sound] if np.any(is_sound) else modes.points
    return finish("ensemble", density, points, None, diagnostics, unchecked("ensemble"))


def map_estimate(density: Density, *, key: PRNGKeyArray, num_starts: int = 8, num_iterations: int = 60) -> Sampled:
    """The highest of a few modes, as one draw: no uncertainty."""
    at_least(1, num_starts=num_starts)
    modes = find_modes(density, prior_starts(density, num_starts, key=key), num_iterations=num_iterations)
    return finish("map", density, modes.best()[None], None, _diagnostics(modes), unchecked("map"))


def _diagnostics(modes: Modes) -> dict[str, Any]:
    highest = float(np.max(np.asarray(modes.log_posteriors, float)))
    return {"num_evaluations": modes.num_evaluations, "log_posterior": highest}
