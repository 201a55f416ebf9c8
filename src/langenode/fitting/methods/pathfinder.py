"""Pathfinder."""

from typing import Any

from langenode.config import AtLeastTwo, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Gaussians along the way to a mode."""

    num: AtLeastTwo = 1024
    """draws"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None) -> Any:
    """Weighted draws of the best Gaussians."""
    from langenode.samplers import pathfinder

    del budget
    return pathfinder(density, num_draws=options.num, key=key)


METHOD = Drawn(
    name="pathfinder",
    summary="Gaussians along the way to a mode, the best of each way weighted by importance.",
    options=Options,
    draw=draw,
    needs_extra="baselines",
)
