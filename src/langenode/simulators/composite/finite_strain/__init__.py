"""Finite-strain finite elements of a composite cell: mean stress along a path of mean strain."""

from langenode.simulators.composite.finite_strain.cell import Boundary, Cell, make_cell
from langenode.simulators.composite.finite_strain.fields import corner_positions, equivalent_stress
from langenode.simulators.composite.finite_strain.linear import SolveError, Solver, SolverName
from langenode.simulators.composite.finite_strain.materials import Voxels, voxel_materials
from langenode.simulators.composite.finite_strain.path import PathError, Settings, follow, problem_of, stretch
from langenode.simulators.composite.finite_strain.step import CellProblem, State, StepError

__all__ = [
    "Boundary",
    "Cell",
    "CellProblem",
    "PathError",
    "Settings",
    "SolveError",
    "Solver",
    "SolverName",
    "State",
    "StepError",
    "Voxels",
    "corner_positions",
    "equivalent_stress",
    "follow",
    "make_cell",
    "problem_of",
    "stretch",
    "voxel_materials",
]
