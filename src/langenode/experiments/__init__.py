"""The demonstrations and a user's own data: configuration, data, model, metrics and figures of each.

Belongs here: what one experiment does differently from the others. Does not belong here: stages that all share (`runs`)
and figures that depend on no experiment (`plots`).
"""

from langenode.experiments import hyperelastic, ou, own, schlogl, viscoelastic
from langenode.experiments.base import Companion, Drawing, Experiment, Results, Splits

DEMONSTRATIONS: dict[str, Experiment] = {
    one.EXPERIMENT.name: one.EXPERIMENT for one in (ou, schlogl, hyperelastic, viscoelastic)
}
EXPERIMENTS: dict[str, Experiment] = {**DEMONSTRATIONS, own.EXPERIMENT.name: own.EXPERIMENT}

__all__ = ["DEMONSTRATIONS", "EXPERIMENTS", "Companion", "Drawing", "Experiment", "Results", "Splits"]
