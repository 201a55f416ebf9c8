"""The demonstrations: a configuration, a generator, a model, metrics and figures each."""

from langenode.experiments import ou
from langenode.experiments.base import Experiment, Results, Splits

EXPERIMENTS: dict[str, Experiment] = {ou.EXPERIMENT.name: ou.EXPERIMENT}

__all__ = ["EXPERIMENTS", "Experiment", "Results", "Splits"]
