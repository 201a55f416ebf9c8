"""An ensemble of Hamiltonian chains, annealed from the prior to the posterior, that share a metric.

Members start at draws of the prior and follow powers of the likelihood to the posterior; none is ever resampled. Then
each runs as a chain with long trajectories. One metric is pooled over the members, since the metric of a member's own
place is wrong a step further on; step sizes are their own.
"""

from langenode.samplers.ensemble_hmc.sampler import ensemble_hmc
from langenode.samplers.ensemble_hmc.state import State, shape_of, sizes

__all__ = ["State", "ensemble_hmc", "shape_of", "sizes"]
