"""The learned Langevin sampler."""

import itertools
from typing import Any, Literal

from langenode.config import Count, Positive, TrainedOptions
from langenode.fitting.methods.base import Ingredients, NetworkOption, Trained

Estimator = Literal["reparametrised", "sticking", "log_variance"]


class Options(TrainedOptions):
    """The chain over the weights."""

    num_steps: Count = 16
    """steps of the chain"""
    horizon: Positive = 3.0
    """pseudo-time of the chain"""
    layers: tuple[Count, ...] = (32, 32)
    """widths of the hidden layers of the control"""
    network: NetworkOption = "mlp"
    """network of the control: mlp, residual, unet (encoder-decoder with skips); from Python also a function"""
    grid: Literal["graded", "uniform"] = "graded"
    """pseudo-times graded towards the end, or equal steps"""
    step: Literal["exact", "euler"] = "exact"
    """reference step: exact, or Euler-Maruyama"""
    noise: Literal["full", "diagonal", "fixed"] = "full"
    """learned covariance of each step; full is diagonal above 32 weights"""
    learn_start: bool = True
    """learn the distribution of the first state"""
    diffusion: Positive = 1.0
    """gamma, shared by the chain and its reference"""
    diffusion_start: Positive | tuple[Positive, ...] | None = None
    """gamma at the first update, annealed to diffusion over half of the updates; several values are stages of that"""
    estimator: Estimator = "reparametrised"
    """estimator of the bound's gradient"""


def make(ingredients: Ingredients, options: Options) -> Any:
    """The chain before training."""
    from langenode.posteriors import langevin

    return langevin(
        ingredients.reference,
        num_steps=options.num_steps,
        horizon=options.horizon,
        layers=options.layers,
        network=options.network,
        grid=options.grid,
        step_kind=options.step,
        diffusion=options.diffusion,
        noise=options.noise,
        learn_start=options.learn_start,
        estimator=options.estimator,
        key=ingredients.key,
    )


def annealed_diffusion(options: Any, num_updates: int) -> Any:
    """Gamma from `diffusion_start`, through its stages, to `diffusion` over half of the updates; None without one."""
    import optax

    if options.diffusion_start is None:
        return None
    start = options.diffusion_start
    values = (*(start if isinstance(start, tuple) else (start,)), options.diffusion)
    ends = [num_updates * (stage + 1) // (2 * (len(values) - 1)) for stage in range(len(values) - 1)]
    lengths = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    stages = [optax.linear_schedule(a, b, n) for (a, b), n in zip(itertools.pairwise(values), lengths, strict=True)]
    return optax.join_schedules(stages, ends[:-1])


METHOD = Trained(
    name="langevin",
    summary="Learned Langevin sampler: a short chain from a reference distribution, pushed by a trained control.",
    options=Options,
    make=make,
    diffusion=annealed_diffusion,
)
