"""Langevin paths steered to a posterior by a control that is computed: the paths, their bridges and their starts."""

from langenode.samplers.guided.paths import GuidedDraws, choose_eta, guided_langevin

__all__ = ["GuidedDraws", "choose_eta", "guided_langevin"]
