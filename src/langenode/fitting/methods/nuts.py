"""The No-U-Turn sampler."""

from typing import Any

from langenode.config import AtLeastTwo, Count, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Markov chains."""

    num: AtLeastTwo = 1024
    """draws from all chains together"""
    num_chains: AtLeastTwo = 32
    """chains"""
    num_warmup: Count = 300
    """transitions of each chain that adapt it and are discarded"""


def draw(density: Any, options: Options, *, key: Any, budget: float | None, on_step: Any = None) -> Any:
    """Draws of all chains."""
    from langenode.samplers import nuts

    sizes = {"num_chains": options.num_chains, "num_warmup": options.num_warmup, "num_draws": options.num}
    return nuts(density, **sizes, budget=budget, key=key, on_step=on_step)


METHOD = Drawn(
    name="nuts",
    summary="No-U-Turn sampler: Markov chain Monte Carlo.",
    options=Options,
    draw=draw,
    has_steps=True,
    reference_rank=1,
    needs_extra="baselines",
)
