"""Stein variational gradient descent."""

from typing import Annotated, Any

from pydantic import Field

from langenode.config import Count, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Particles that repel each other; their kernel compares all pairs, so they are few."""

    num: Annotated[int, Field(ge=2, le=4096)] = 256
    """particles, and draws"""
    num_iterations: Count = 1000
    """gradient steps"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None) -> Any:
    """The particles after the last step."""
    from langenode.samplers import svgd

    del budget
    return svgd(density, num_draws=options.num, num_steps=options.num_iterations, key=key)


METHOD = Drawn(
    name="svgd",
    summary="Stein variational gradient descent: particles that repel each other.",
    options=Options,
    draw=draw,
    needs_extra="baselines",
)
