"""A fit whose draws are replaced by a trained sampler of them."""

import warnings

import equinox as eqx
import numpy as np

from langenode._types import OnStep, PRNGKeyArray
from langenode.inference.distillation import LARGEST_MEAN_ERROR, LARGEST_STD_ERROR, Distillation, SamplerKind, distil
from langenode.inference.errors import FitError
from langenode.inference.problem import Problem
from langenode.posteriors import Density, Distilled, Empirical
from langenode.posteriors.distilled import rescaled

# Draws with unequal weights are resampled to this many.
NUM_RESAMPLED = 4096


def distil_problem(
    problem: Problem,
    density: Density,
    kind: SamplerKind,
    num_updates: int,
    *,
    key: PRNGKeyArray,
    on_step: OnStep | None = None,
) -> tuple[Problem, Distillation]:
    """The problem with a sampler in place of its draws, and how near it is to them. The density is the problem's."""
    posterior = problem.posterior
    if not isinstance(posterior, Empirical):
        raise FitError(
            f"only stored draws can be distilled; this posterior is a {type(posterior).__name__}, which samples at "
            "once already; fit with a method that draws, such as ensemble-hmc"
        )
    if problem.prior.truncation is not None:
        raise FitError(
            "a distilled sampler knows no bounds; this prior has some; keep the draws, or fit with a method that is "
            "trained, such as langevin"
        )
    is_equal = bool(np.ptp(np.asarray(posterior.log_weights)) == 0.0)
    weights = posterior.draws if is_equal else posterior.sample(NUM_RESAMPLED, key=key)
    found = distil(density, problem.prior.to_standard(weights), kind, num_updates=num_updates, key=key, on_step=on_step)
    sampler = rescaled(found.sampler, problem.prior.mean, problem.prior.scale)
    return eqx.tree_at(lambda p: p.posterior, problem, Distilled(sampler)), found


def failure(found: Distillation) -> str | None:
    """Why a distilled sampler may not stand for its draws; None where it may."""
    if found.is_near:
        return None
    record = found.record
    return (
        f"a distilled sampler must predict as its draws do inside the data, means within {LARGEST_MEAN_ERROR} standard "
        f"deviations and these within {100 * LARGEST_STD_ERROR:.0f} %; that by {record['kind']} is off by "
        f"{record['mean_in']:.2f} and {100 * abs(record['std_in'] - 1.0):.0f} %"
    )


def warn_of_failure(found: Distillation, remedy: str) -> None:
    """Warn where the sampler is not near its draws."""
    why = failure(found)
    if why is not None:
        warnings.warn(f"{why}; {remedy}", stacklevel=3)
