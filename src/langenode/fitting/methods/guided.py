"""Langevin paths steered by a control that is computed from the model's linearisation."""

from typing import Annotated, Any, Literal

from pydantic import Field

from langenode.config import AtLeastTwo, Count, DrawnOptions, Positive
from langenode.fitting.methods.base import Drawn

# Guided paths that reach these are good enough; below the last, more steps have not been seen to help.
WANTED_ANCESTORS, WANTED_EVIDENCE_ERROR, HOPELESS_ANCESTORS = 0.3, 0.2, 0.02


class Options(DrawnOptions):
    """Weighted paths, resampled on the way."""

    num: AtLeastTwo = 1024
    """paths, and draws"""
    num_steps: AtLeastTwo = 64
    """steps of a path"""
    most_steps: Count = 256
    """steps are doubled up to this where few ancestors survive"""
    horizon: Positive | None = None
    """pseudo-time of a path; none: 0.25 or 0.05, chosen by a pilot"""
    eta: Annotated[float, Field(ge=0)] | None = None
    """caution of the control; none: chosen by a pilot"""
    num_checks: Annotated[int, Field(ge=0)] = 2
    """short runs at a fifth of the horizon that tell whether paths miss a part of the posterior"""
    resample_below: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """relative effective sample size below which paths are resampled"""
    num_moves: Annotated[int, Field(ge=0)] = 0
    """Hamiltonian moves of the end points"""
    chunk: Count | None = None
    """paths evaluated at a time; none for all"""
    fallback: Literal["none", "ensemble-hmc", "smc"] = "none"
    """method that takes over where the draws are not to be trusted"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None) -> Any:
    """Draws, with twice the steps where they are needed: up to `most_steps`, and where that may help."""
    del budget  # a run is short, and cannot be cut
    num_steps, horizon, eta, cost = options.num_steps, options.horizon, options.eta, 0
    while True:
        found = _paths(density, options, num_steps, horizon, eta, key)
        cost += found.num_evaluations
        is_good = found.ancestors >= WANTED_ANCESTORS and found.sampling_error <= WANTED_EVIDENCE_ERROR
        if is_good or found.ancestors < HOPELESS_ANCESTORS or 2 * num_steps > options.most_steps:
            break
        num_steps, horizon, eta = 2 * num_steps, found.horizon, found.eta
    return found.sampled(num_steps=num_steps, num_evaluations=cost)


def _paths(density: Any, options: Options, num_steps: int, horizon: float | None, eta: float | None, key: Any) -> Any:
    """One run: paths steered by the residuals and weighted by the log-likelihood."""
    from langenode.samplers.guided import GuidedSettings, guided_langevin

    settings = GuidedSettings(
        num_paths=options.num,
        num_steps=num_steps,
        horizon=horizon,
        eta=eta,
        resample_below=options.resample_below,
        num_moves=options.num_moves,
        num_checks=options.num_checks,
        chunk=options.chunk,
    )
    return guided_langevin(density, settings, key=key)


METHOD = Drawn(
    name="guided",
    summary="Langevin chain whose control is computed from the model's linearisation, with weighted paths.",
    options=Options,
    draw=draw,
    fallback=lambda options: None if options.fallback == "none" else options.fallback,
)
