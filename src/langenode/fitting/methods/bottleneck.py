"""The learned Langevin sampler of few latent variables."""

from typing import Any

from langenode.config import Count, Positive, TrainedOptions
from langenode.fitting.methods.base import Ingredients, NetworkOption, Trained


class Options(TrainedOptions):
    """The latent chain and its decoder."""

    latent_dim: Count = 4
    """latent variables"""
    num_steps: Count = 8
    """steps of the latent chain"""
    horizon: Positive = 2.0
    """pseudo-time of the latent chain"""
    layers: tuple[Count, ...] = (32, 32)
    """widths of the hidden layers of the control"""
    network: NetworkOption = "mlp"
    """network of the control: mlp, residual, unet (encoder-decoder with skips); from Python also a function"""
    decoder_layers: tuple[Count, ...] = (32, 32)
    """widths of the hidden layers of the decoder"""


def make(ingredients: Ingredients, options: Options) -> Any:
    """The chain and its decoder before training."""
    from langenode.posteriors import bottleneck

    return bottleneck(
        ingredients.start_weights,
        latent_dim=options.latent_dim,
        num_steps=options.num_steps,
        horizon=options.horizon,
        layers=options.layers,
        network=options.network,
        decoder_layers=options.decoder_layers,
        key=ingredients.key,
    )


METHOD = Trained(
    name="bottleneck",
    summary="Learned Langevin sampler of few latent variables, which a trained network decodes into the weights.",
    targets=("population", "hierarchical"),
    remedy="a bottleneck's weights have no density; change the target, or use method 'langevin'",
    options=Options,
    make=make,
    reference_of=lambda options: "prior",  # the chain has its own in the latent space
)
