"""Interacting Langevin particles."""

from typing import Annotated, Any

from pydantic import Field

from langenode.config import AtLeastTwo, Count, DrawnOptions, Positive
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Particles of which each is preconditioned by the covariance of others; they must outnumber the weights."""

    num: AtLeastTwo = 4096
    """draws that are kept of all particles together"""
    num_particles: AtLeastTwo | None = None
    """particles; none: 64, and four per weight"""
    num_warmup: Annotated[int, Field(ge=0)] = 160
    """steps that adapt the step size and are discarded"""
    num_steps: Count = 640
    """steps after that"""
    step_size: Positive | None = None
    """length of a step; none: adapted if steps are adjusted, else 0.05"""
    adjusted: bool = True
    """accept or reject every step, which makes it exact; without, variances are too large by half the step size"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None, on_step: Any = None) -> Any:
    """Draws of all particles."""
    from langenode.samplers import interacting

    return interacting(
        density,
        num_draws=options.num,
        num_particles=options.num_particles,
        num_warmup=options.num_warmup,
        num_steps=options.num_steps,
        step_size=options.step_size,
        is_adjusted=options.adjusted,
        budget=budget,
        key=key,
        on_step=on_step,
    )


METHOD = Drawn(
    name="interacting",
    summary="Interacting Langevin particles, each preconditioned by the covariance of the others.",
    options=Options,
    draw=draw,
    has_steps=True,
    needs_extra="baselines",
)
