"""The demonstrations and a user's own data: a configuration, data, a model, metrics and figures each."""

from langenode.experiments import ou, own, schlogl
from langenode.experiments.base import Drawing, Experiment, Results, Splits

DEMONSTRATIONS: dict[str, Experiment] = {one.EXPERIMENT.name: one.EXPERIMENT for one in (ou, schlogl)}
EXPERIMENTS: dict[str, Experiment] = {**DEMONSTRATIONS, own.EXPERIMENT.name: own.EXPERIMENT}

__all__ = ["DEMONSTRATIONS", "EXPERIMENTS", "Drawing", "Experiment", "Results", "Splits"]
