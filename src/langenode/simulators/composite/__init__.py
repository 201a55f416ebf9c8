"""Glass spheres in a viscoelastic matrix: microstructures, their effective stiffness, loadings and stress histories."""

from langenode.simulators.composite.library import CompositeGeometry, shipped_stiffness, stiffnesses
from langenode.simulators.composite.loading import Loadings, make_loadings
from langenode.simulators.composite.microstructure import Microstructure, glass_fraction, place_spheres
from langenode.simulators.composite.prony import Prony, relax
from langenode.simulators.composite.response import composite_data, respond
from langenode.simulators.composite.stiffness import (
    CompositeStiffness,
    Phase,
    composite_stiffness,
    effective_stiffness,
)

__all__ = [
    "CompositeGeometry",
    "CompositeStiffness",
    "Loadings",
    "Microstructure",
    "Phase",
    "Prony",
    "composite_data",
    "composite_stiffness",
    "effective_stiffness",
    "glass_fraction",
    "make_loadings",
    "place_spheres",
    "relax",
    "respond",
    "shipped_stiffness",
    "stiffnesses",
]
