"""Cubes of the composite in biaxial stretch with their stress: a picture of the data, by finite elements."""

from typing import Any

import numpy as np

from langenode.simulators import composite
from langenode.simulators.composite.finite_strain import (
    Settings,
    corner_positions,
    equivalent_stress,
    follow,
    problem_of,
)

# Logarithmic strains of the faces, isochoric, reached within this time [s] in this many equal steps.
STRETCH, DURATION, NUM_STEPS = (0.05, -0.1, 0.05), 25.0, 5
NUM_CUBES, RESOLUTION, MAGNIFIED = 3, 10, 3.0


def deformed_cubes(*, resolution: int = RESOLUTION) -> Any:
    """Draw the first cubes of the library in equibiaxial stretch, coloured by von Mises' stress; about 10 s of work."""
    from langenode import plots

    cubes = {f"cube {number:03d}": _cube(number, resolution) for number in range(NUM_CUBES)}
    return plots.deformed_cubes(cubes, label="von Mises stress [MPa]")


def _cube(number: int, resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of the voxels' corners, displacements magnified, and the stress of each voxel."""
    spheres = composite.place_spheres(4, 0.2, seed=number)
    problem = problem_of(spheres, composite.Prony(), Settings(resolution))
    states: dict[str, Any] = {}
    path = np.linspace(0.0, 1.0, NUM_STEPS + 1)[:, None] * np.array(STRETCH)
    times = np.linspace(0.0, DURATION, NUM_STEPS + 1)
    follow(problem, times, path, lambda step, state: states.update(last=state))
    last = states["last"]
    return corner_positions(problem, last, magnified=MAGNIFIED), equivalent_stress(problem, last)
