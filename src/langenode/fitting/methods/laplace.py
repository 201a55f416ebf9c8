"""The Laplace approximation."""

from typing import Any, Literal

from langenode.config import AtLeastTwo, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """A Gaussian at the mode."""

    num: AtLeastTwo = 1024
    """draws"""
    predictive: Literal["sampled", "linearised"] = "linearised"
    """draws go through the model, or through its linearisation at the mode"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None) -> Any:
    """Draws of the Gaussian, with importance diagnostics."""
    from langenode.samplers import laplace

    del budget
    return laplace(density, num_draws=options.num, key=key)


METHOD = Drawn(
    name="laplace",
    summary="A Gaussian at the mode, with the Gauss-Newton curvature there.",
    options=Options,
    draw=draw,
    predicts_linearised=lambda options: options.predictive == "linearised",
)
