"""Langevin paths steered to a posterior by a control that is computed: the paths, their bridges and their starts."""

from langenode.samplers.guided.paths import GuidedSettings
from langenode.samplers.guided.pilot import run_pilot
from langenode.samplers.guided.sampler import GuidedDraws, guided_langevin

__all__ = ["GuidedDraws", "GuidedSettings", "guided_langevin", "run_pilot"]
