"""The paper's sampler as printed, and every departure from it as a switch.

    dw = NN(w; theta) dtau + gamma sqrt(2) dB,    w_0 ~ N(w_MLE, eps I),    Euler-Maruyama        (paper, section 3)

The reference, which the paper calls the prior, is the OU process `dw = -(w - mean) dtau + gamma sqrt(2) dB`. With all
switches at their other value the chain is that of `langevin`.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax.numpy as jnp

from langenode._types import Array, Float, PRNGKeyArray
from langenode.posteriors.base import BoundTerms, Reference, cast
from langenode.posteriors.controls import AutonomousDrift, StepControl
from langenode.posteriors.langevin import (
    Langevin,
    NoiseKind,
    NormalStart,
    StepKind,
    graded_grid,
    step_noise,
    uniform_grid,
)
from langenode.posteriors.networks import NetworkFactory, NetworkName


class Departures(NamedTuple):
    """The choices that can be taken back one at a time; the first value of each is the printed one.

    - `kl_rate`: `half` weighs the path integral of |df|^2 / gamma^2 by 1/2; `quarter` by the Girsanov rate of this SDE.
    - `drift`: a network of the weights alone, or one that also sees the pseudo-time.
    - `start`: N(w_MLE, eps I) for both processes; or learned for ours, and the reference's stationary distribution.
    - `step`, `noise`, `grid`: the rule, the covariance and the lengths of the steps.
    - `end_term`: whether the loss has the prior's density over that of the reference at its end.
    - `annealing`: gamma changes the `variance` of the reference, or only its pseudo-`time`.
    """

    kl_rate: Literal["half", "quarter"] = "half"
    drift: Literal["autonomous", "time"] = "autonomous"
    start: Literal["mle", "learned"] = "mle"
    step: StepKind = "euler"
    noise: NoiseKind = "fixed"
    grid: Literal["uniform", "graded"] = "uniform"
    end_term: Literal["dropped", "kept"] = "dropped"
    annealing: Literal["variance", "time"] = "variance"


AS_PRINTED = Departures()


def paper_langevin(
    reference: Reference,
    start_weights: Float[Array, " dim"],
    *,
    num_steps: int = 10_000,
    pseudo_time_step: float = 1e-3,
    layers: Sequence[int] | None = None,
    network: NetworkName | NetworkFactory = "mlp",
    start_variance: float = 1e-5,
    contraction: float = 0.0,
    diffusion: float = 1.0,
    departures: Departures = AS_PRINTED,
    key: PRNGKeyArray,
) -> Langevin:
    """The paper's sampler: autonomous drift net (D-D-D-D by default), Euler-Maruyama, start N(w_MLE, eps I), v = 1.

    Its start is independent in every weight, so the reference must have a diagonal covariance.
    """
    dim, dtype = reference.mean.shape[0], reference.mean.dtype
    horizon, widths = num_steps * pseudo_time_step, (dim, dim) if layers is None else tuple(layers)
    standard = NormalStart(jnp.zeros(dim, dtype), jnp.zeros(dim, dtype))
    at_mle = standard if departures.start == "learned" else _start_at(reference, start_weights, start_variance)
    drift = StepControl(dim, num_steps, widths, network=network, key=key)
    if departures.drift == "autonomous":
        drift = AutonomousDrift(dim, widths, contraction, network=network, key=key)
    sampler = Langevin(
        reference=reference,
        control=drift,
        start=at_mle,
        reference_start=at_mle,
        noise=step_noise(departures.noise, num_steps, dim),
        grid=(uniform_grid if departures.grid == "uniform" else graded_grid)(num_steps, horizon),
        diffusion=jnp.asarray(diffusion),
        step_kind=departures.step,
        learn_start=departures.start == "learned",
        keeps_variance=departures.annealing == "time",
        loss_terms=BoundTerms(2.0 if departures.kl_rate == "half" else 1.0, departures.end_term == "kept"),
    )
    return cast(sampler, dtype)


def _start_at(reference: Reference, weights: Float[Array, " dim"], variance: float) -> NormalStart:
    """N(weights, variance I), in the reference's standard units."""
    if reference.factor is not None:
        raise ValueError(
            "the paper's chain needs a reference with a diagonal covariance, since its start is N(w_MLE, eps I) in the "
            f"weights; got a factor of rank {reference.factor.shape[1]}; give Reference(mean, scale), or use langevin"
        )
    return NormalStart(reference.to_standard(weights), 0.5 * math.log(variance) - jnp.log(reference.scale))
