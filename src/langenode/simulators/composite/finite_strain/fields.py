"""Fields in a cell, for pictures: where the voxels' corners are, and the equivalent stress."""

import numpy as np

from langenode._types import Float
from langenode.simulators.composite.finite_strain.step import CellProblem, State


def corner_positions(problem: CellProblem, state: State, *, magnified: float = 1.0) -> Float[np.ndarray, "voxel 8 3"]:
    """Return the positions of the voxels' corners; displacements are `magnified`."""
    cell = problem.cell
    displacement = cell.positions @ (state.mean - np.eye(3)).T + cell.at_voxels(state.unknowns)
    return cell.positions + magnified * displacement


def equivalent_stress(problem: CellProblem, state: State) -> Float[np.ndarray, " voxel"]:
    """Return von Mises' equivalent of the Cauchy stress, the mean over each voxel, in MPa."""
    cell, voxels = problem.cell, problem.voxels
    f = state.mean + np.einsum("eai,qaj->eqij", cell.at_voxels(state.unknowns), cell.gradients)
    matrix = problem.prony.equilibrium * state.unit_stress + np.tensordot(problem.prony.moduli, state.memory, 1)
    strain = 0.5 * (np.swapaxes(f, -1, -2) @ f - np.eye(3))
    trace = np.trace(strain, axis1=-2, axis2=-1)[..., None, None]
    lame, shear, stiffening = (x[:, None, None, None] for x in (voxels.lame, voxels.shear, voxels.stiffening))
    second = stiffening * matrix + lame * trace * np.eye(3) + 2.0 * shear * strain
    # A pressure has no part in the equivalent stress.
    cauchy = f @ second @ np.swapaxes(f, -1, -2) / np.linalg.det(f)[..., None, None]
    deviator = cauchy - np.trace(cauchy, axis1=-2, axis2=-1)[..., None, None] / 3.0 * np.eye(3)
    return np.sqrt(1.5 * np.sum(deviator**2, axis=(-2, -1))).mean(1)
