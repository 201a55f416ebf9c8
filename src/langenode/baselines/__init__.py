"""The usual samplers and approximations of a `posteriors.Density`, through the libraries made for them.

Each is a function `name(density, *, key, ...) -> Sampled`; `METHODS` names them all.
"""

from collections.abc import Callable
from typing import Any

from langenode.baselines.ensemble import ensemble, map_estimate
from langenode.baselines.laplace import LaplaceFit, laplace, laplace_fit
from langenode.baselines.nuts import nuts
from langenode.baselines.pathfinder import pathfinder
from langenode.baselines.sgld import sgld
from langenode.baselines.smc import smc
from langenode.baselines.svgd import svgd

METHODS: dict[str, Callable[..., Any]] = {
    "nuts": nuts,
    "smc": smc,
    "sgld": sgld,
    "svgd": svgd,
    "pathfinder": pathfinder,
    "laplace": laplace,
    "ensemble": ensemble,
    "map": map_estimate,
}

__all__ = [
    "METHODS",
    "LaplaceFit",
    "ensemble",
    "laplace",
    "laplace_fit",
    "map_estimate",
    "nuts",
    "pathfinder",
    "sgld",
    "smc",
    "svgd",
]
