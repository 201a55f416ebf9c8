"""The paper's own sampler."""

from typing import Any

from langenode.config import Count, Positive, TrainedOptions
from langenode.fitting.methods.base import Ingredients, Trained
from langenode.fitting.methods.langevin import annealed_diffusion


class Options(TrainedOptions):
    """The paper's chain over the weights."""

    num_steps: Count = 10_000
    """Euler-Maruyama steps of the chain"""
    pseudo_time_step: Positive = 1e-3
    """pseudo-time per step"""
    layers: tuple[Count, ...] | None = None
    """widths of the hidden layers of the drift; none for as wide as there are weights"""
    start_variance: Positive = 1e-5
    """variance of the start about the maximum-likelihood weights"""
    contraction: Positive = 1.0
    """strength of the constant pull towards the reference's mean"""
    diffusion: Positive = 1.0
    """gamma, shared by the chain and its reference"""
    diffusion_start: Positive | None = None
    """gamma at the first update, annealed to diffusion over half of the updates"""


def make(ingredients: Ingredients, options: Options) -> Any:
    """The chain before training."""
    from langenode.posteriors import paper_langevin

    return paper_langevin(
        ingredients.reference,
        ingredients.start_weights,
        num_steps=options.num_steps,
        pseudo_time_step=options.pseudo_time_step,
        layers=options.layers,
        start_variance=options.start_variance,
        contraction=options.contraction,
        diffusion=options.diffusion,
        key=ingredients.key,
    )


METHOD = Trained(
    name="paper",
    summary="The paper's own sampler: a drift network of the weights alone, in many small Euler-Maruyama steps.",
    targets=("tempered", "posterior", "population"),
    options=Options,
    make=make,
    reference="prior",
    diffusion=annealed_diffusion,
    warns_of_scales=False,  # its scales are the paper's, on purpose
    in_all=False,  # slow
)
