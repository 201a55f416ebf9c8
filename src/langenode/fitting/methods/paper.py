"""The paper's own sampler, every printed choice as printed, each departure a switch."""

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import Field

from langenode.config import Config, ConfigError, Count, Positive, TrainedOptions
from langenode.fitting.methods.base import Ingredients, NetworkOption, ReferenceKind, Trained
from langenode.fitting.methods.langevin import annealed_diffusion


class Options(TrainedOptions):
    """The paper's chain over the weights; the defaults are as printed, the other values of the switches are ours."""

    num_steps: Count = 10_000
    """steps of the chain"""
    pseudo_time_step: Positive = 1e-3
    """pseudo-time per step"""
    layers: tuple[Count, ...] | None = None
    """widths of the hidden layers of the drift; none for as wide as there are weights"""
    network: NetworkOption = "mlp"
    """network of the drift: mlp, residual, unet (encoder-decoder with skips); from Python also a function"""
    start_variance: Positive = 1e-5
    """variance of the start about the maximum-likelihood weights"""
    diffusion: Positive = 1.0
    """gamma, shared by the chain and its reference"""
    diffusion_start: Positive | tuple[Positive, ...] | None = None
    """gamma at the first update, annealed to diffusion over half of the updates; several values are stages of that"""
    kl_rate: Literal["half", "quarter"] = "half"
    """factor of the path KL's integral: 1/2 as printed, or 1/4, the rate of this SDE"""
    drift: Literal["autonomous", "time"] = "autonomous"
    """drift network of the weights alone, or also of the pseudo-time"""
    contraction: Annotated[float, Field(ge=0)] = 0.0
    """constant pull towards the reference's mean, added to an autonomous drift; the paper has none"""
    start: Literal["mle", "learned"] = "mle"
    """start of the chain: about the maximum likelihood, or a learned normal distribution"""
    step: Literal["euler", "exact"] = "euler"
    """reference step: Euler-Maruyama, or exact"""
    noise: Literal["fixed", "diagonal", "full"] = "fixed"
    """covariance of each step: that of the reference, or learned"""
    grid: Literal["uniform", "graded"] = "uniform"
    """equal steps, or graded towards the end"""
    end_term: Literal["dropped", "kept"] = "dropped"
    """prior density over that of the reference at its end, in the loss: dropped as printed, or kept"""
    annealing: Literal["variance", "time"] = "variance"
    """gamma scales the variance of the reference, as printed, or only its pseudo-time"""
    reference: ReferenceKind = "prior"
    """process without control: the prior, or a Gaussian fitted about the maximum likelihood"""


def make(ingredients: Ingredients, options: Options) -> Any:
    """The chain before training."""
    from langenode.posteriors import Departures, paper_langevin

    return paper_langevin(
        ingredients.reference,
        ingredients.start_weights,
        num_steps=options.num_steps,
        pseudo_time_step=options.pseudo_time_step,
        layers=options.layers,
        network=options.network,
        start_variance=options.start_variance,
        contraction=options.contraction,
        diffusion=options.diffusion,
        departures=Departures(**{name: getattr(options, name) for name in Departures._fields}),
        key=ingredients.key,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paper(Trained):
    """The paper's sampler: its switches must fit together."""

    def check(self, config: Config) -> None:
        """Raise a `ConfigError` where switches contradict each other."""
        super().check(config)
        options = config.options
        assert isinstance(options, Options)
        if options.reference == "local" and options.start == "mle":
            raise ConfigError(
                "a reference fitted about the maximum likelihood needs a start that is learned, since N(w_MLE, eps I) "
                "is far from it; got paper.reference='local' with paper.start='mle'; set paper.start='learned'"
            )
        if options.drift == "time" and options.contraction > 0.0:
            raise ConfigError(
                "a contraction belongs to an autonomous drift; got paper.drift='time' with paper.contraction="
                f"{options.contraction}; set paper.contraction=0"
            )


METHOD = Paper(
    name="paper",
    summary="The paper's sampler as printed: a drift network of the weights alone, in many small Euler-Maruyama steps.",
    targets=("tempered", "posterior", "population"),
    options=Options,
    make=make,
    reference_of=lambda options: options.reference,
    diffusion=annealed_diffusion,
    warns_of_scales=False,  # its scales are the paper's, on purpose
    in_all=False,  # slow
)
