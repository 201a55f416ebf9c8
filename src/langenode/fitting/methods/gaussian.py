"""One Gaussian over the weights: black-box variational inference."""

import functools
from typing import Any

from langenode.config import Count, TrainedOptions
from langenode.fitting.methods.base import Ingredients, Trained
from langenode.fitting.methods.langevin import Estimator


class Options(TrainedOptions):
    """A Gaussian with a full or a diagonal covariance."""

    estimator: Estimator = "reparametrised"
    """estimator of the bound's gradient"""


class LowRankOptions(Options):
    """A Gaussian with a diagonal plus low-rank covariance."""

    rank: Count = 4
    """rank of the part that is not diagonal"""


def make(covariance: Any, ingredients: Ingredients, options: Any) -> Any:
    """The Gaussian before training: its reference."""
    from langenode.posteriors import gaussian

    sizes = {"rank": options.rank} if covariance == "lowrank" else {}
    reference, _, key = ingredients
    return gaussian(reference, covariance, estimator=options.estimator, key=key, **sizes)


def _method(covariance: str, options: type[Options], correlations: str, name: str) -> Trained:
    return Trained(
        name=f"gaussian-{covariance}",
        summary=f"One Gaussian over the weights {correlations} ({name}).",
        options=options,
        make=functools.partial(make, covariance),
    )


METHODS = (
    _method("full", Options, "with all correlations", "black-box variational inference"),
    _method("lowrank", LowRankOptions, "with correlations of low rank", "variational inference"),
    _method("diagonal", Options, "without correlations", "mean-field variational inference"),
)
