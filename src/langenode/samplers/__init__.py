"""From a `posteriors.Density` to weighted draws: one file per method, `name(density, *, key, ...) -> Sampled`.

Belongs here: guided paths, and the usual samplers and approximations through the libraries made for them. Does not
belong here: distributions that are trained (`posteriors`), and which method is chosen when (`fitting`).
"""

from langenode.samplers.ensemble import ensemble, map_estimate
from langenode.samplers.ensemble_hmc import ensemble_hmc
from langenode.samplers.interacting import interacting
from langenode.samplers.laplace import LaplaceFit, laplace, laplace_fit
from langenode.samplers.nuts import nuts
from langenode.samplers.pathfinder import pathfinder
from langenode.samplers.sgld import sgld
from langenode.samplers.smc import smc
from langenode.samplers.svgd import svgd

__all__ = [
    "LaplaceFit",
    "ensemble",
    "ensemble_hmc",
    "interacting",
    "laplace",
    "laplace_fit",
    "map_estimate",
    "nuts",
    "pathfinder",
    "sgld",
    "smc",
    "svgd",
]
