"""Glass spheres in a viscoelastic matrix: microstructures, their effective stiffness and a library of replicas."""

from langenode.simulators.composite.library import CompositeGeometry, shipped_stiffness, stiffnesses
from langenode.simulators.composite.microstructure import Microstructure, glass_fraction, place_spheres
from langenode.simulators.composite.stiffness import (
    CompositeStiffness,
    Phase,
    composite_stiffness,
    effective_stiffness,
)

__all__ = [
    "CompositeGeometry",
    "CompositeStiffness",
    "Microstructure",
    "Phase",
    "composite_stiffness",
    "effective_stiffness",
    "glass_fraction",
    "place_spheres",
    "shipped_stiffness",
    "stiffnesses",
]
