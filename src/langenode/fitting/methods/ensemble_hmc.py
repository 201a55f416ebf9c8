"""An annealed ensemble of Hamiltonian chains."""

from typing import Annotated, Any, Literal

from pydantic import Field

from langenode.config import AtLeastTwo, Count, DrawnOptions
from langenode.fitting.methods.base import Drawn


class Options(DrawnOptions):
    """Chains from the prior to the posterior, with long trajectories in one metric."""

    num: AtLeastTwo = 4096
    """draws that are kept of all members together"""
    num_members: AtLeastTwo | None = None
    """chains; none: 16, or 32 up to 50 weights"""
    num_leapfrog: Count | None = None
    """steps of a trajectory; none: 256, or 128 up to 50 weights"""
    num_warmup: Count = 24
    """transitions at the posterior that adapt step sizes and metric and are discarded"""
    least_transitions: Annotated[int, Field(ge=0)] | None = None
    """transitions of each member before they may end, once all diagnostics pass; none: 192, or 128 up to 50 weights"""
    most_transitions: Annotated[int, Field(ge=16)] | None = None
    """transitions of each member at most; none: 512, or 256 up to 50 weights, or twice that near agreement"""
    with_evidence: bool = False
    """estimate the log-evidence, roughly, by following the powers of the likelihood down again"""
    distil: Literal["langevin", "bottleneck"] | None = None
    """trained sampler that takes the draws' place in the fit where it predicts as they do: a small file"""
    distil_updates: Count = 3000
    """gradient updates of that sampler"""


def draw(
    density: Any, options: Options, *, key: Any, budget: float | None, on_step: Any = None, checkpoint: Any = None
) -> Any:
    """Draws of all members."""
    from langenode.samplers.ensemble_hmc import ensemble_hmc, shape_of, sizes

    state = on_state = None
    if checkpoint is not None:
        state = checkpoint.read(lambda found: shape_of(density, **found))
        on_state = lambda state: checkpoint.write(state, sizes(state))  # noqa: E731
    return ensemble_hmc(
        density,
        num_draws=options.num,
        num_members=options.num_members,
        num_leapfrog=options.num_leapfrog,
        num_warmup=options.num_warmup,
        least_transitions=options.least_transitions,
        most_transitions=options.most_transitions,
        with_evidence=options.with_evidence,
        budget=budget,
        key=key,
        on_step=on_step,
        state=state,
        on_state=on_state,
    )


METHOD = Drawn(
    name="ensemble-hmc",
    summary="Annealed ensemble of Hamiltonian chains with long trajectories and a pooled metric.",
    options=Options,
    draw=draw,
    has_steps=True,
    has_checkpoint=True,
    distils=lambda options: None if options.distil is None else (options.distil, options.distil_updates),
    reference_rank=0,
)
