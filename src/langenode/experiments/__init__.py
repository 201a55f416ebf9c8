"""The demonstrations and a user's own data: configuration, data, model, metrics and figures of each.

Belongs here: what one experiment does differently from the others. Does not belong here: stages that all share (`runs`)
and figures that know no experiment (`plots`).

An experiment is one file with one entry, `EXPERIMENT`, loaded when it is first used. Another package adds its own by an
entry point of the group `langenode.experiments` whose object is an `Experiment`; its name is the entry point's.
"""

from langenode.experiments.registry import Registry

DEMONSTRATIONS = Registry("ou", "schlogl", "hyperelastic", "viscoelastic", group="langenode.experiments")
EXPERIMENTS = Registry(*DEMONSTRATIONS.built_in, "own", group="langenode.experiments")

__all__ = ["DEMONSTRATIONS", "EXPERIMENTS"]
