"""Stochastic gradient Langevin dynamics."""

from typing import Any

from langenode.config import AtLeastTwo, Count, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Markov chains driven by gradients of mini-batches."""

    num: AtLeastTwo = 1024
    """draws from all chains together"""
    num_chains: AtLeastTwo = 32
    """chains"""
    batch: Count | None = None
    """cases per mini-batch; none for a quarter of them"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None, on_step: Any = None) -> Any:
    """Draws of all chains."""
    from langenode.samplers import sgld

    return sgld(density, num_chains=options.num_chains, num_draws=options.num, budget=budget, key=key, on_step=on_step)


METHOD = Drawn(
    name="sgld",
    summary="Stochastic gradient Langevin dynamics, in coordinates of the Laplace approximation.",
    options=Options,
    draw=draw,
    has_steps=True,
    minibatch=lambda options: options.batch,
    needs_extra="baselines",
)
