"""Sequential Monte Carlo."""

from typing import Any

from langenode.config import AtLeastTwo, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Islands of particles."""

    num: AtLeastTwo = 1024
    """particles of all islands together, and draws"""
    num_islands: AtLeastTwo = 4
    """independent runs, whose agreement is checked"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None, on_step: Any = None) -> Any:
    """Draws of all islands."""
    from langenode.samplers import smc

    del budget  # tempering cannot be cut
    return smc(density, num_draws=options.num, num_islands=options.num_islands, key=key, on_step=on_step)


METHOD = Drawn(
    name="smc",
    summary="Sequential Monte Carlo from the prior to the posterior, with Hamiltonian moves.",
    options=Options,
    draw=draw,
    has_steps=True,
    reference_rank=2,
    needs_extra="baselines",
)
