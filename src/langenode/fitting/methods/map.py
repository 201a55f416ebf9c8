"""The mode of the posterior alone."""

from typing import Any

from langenode.config import DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """It has none."""


def draw(density: Any, options: Options, *, key: Any, budget: float | None) -> Any:
    """The best mode that was found."""
    from langenode.samplers import map_estimate

    del options, budget
    return map_estimate(density, key=key)


METHOD = Drawn(
    name="map",
    summary="The mode of the posterior alone: no uncertainty of the weights.",
    options=Options,
    draw=draw,
)
