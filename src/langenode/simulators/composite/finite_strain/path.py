"""The mean stress of a cell along a path of mean strain."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from langenode._types import Float
from langenode.simulators.composite.finite_strain.cell import Boundary, make_cell
from langenode.simulators.composite.finite_strain.linear import SolverName
from langenode.simulators.composite.finite_strain.materials import voxel_materials
from langenode.simulators.composite.finite_strain.step import CellProblem, Iteration, State, StepError, second_piola
from langenode.simulators.composite.microstructure import Microstructure, glass_fraction
from langenode.simulators.composite.prony import Prony
from langenode.simulators.composite.stiffness import VOIGT

_ROWS, _COLUMNS = np.array(VOIGT).T


class Settings(NamedTuple):
    """How a cell is meshed, held and solved; `tolerance` is of the change of the mean stress, relative."""

    resolution: int = 8
    boundary: Boundary = "periodic"
    solver: SolverName = "kept"
    tolerance: float = 1e-5


class PathError(ArithmeticError):
    """A path with a step that did not converge; `step` counts from one."""

    def __init__(self, step: int, reason: str):
        super().__init__(f"step {step}: {reason}")
        self.step = step


def stretch(log_strain: Float[np.ndarray, " component"]) -> Float[np.ndarray, "3 3"]:
    """Return `U = exp(e)` of a logarithmic strain with 3 or 6 components (11, 22, 33, 23, 13, 12)."""
    values, vectors = np.linalg.eigh(as_tensor(log_strain))
    return (vectors * np.exp(values)) @ vectors.T


def as_tensor(components: Float[np.ndarray, " component"]) -> Float[np.ndarray, "3 3"]:
    """Return the symmetric tensor with these 3 or 6 components."""
    tensor = np.zeros((3, 3))
    num = len(components)
    tensor[_ROWS[:num], _COLUMNS[:num]] = components
    tensor[_COLUMNS[:num], _ROWS[:num]] = components
    return tensor


def problem_of(
    spheres: Microstructure,
    prony: Prony,
    settings: Settings,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> CellProblem:
    """Return a microstructure as a problem to be solved step by step."""
    cell = make_cell(settings.resolution, settings.boundary)
    voxels = voxel_materials(glass_fraction(spheres, settings.resolution), prony)
    options: dict[str, Any] = {"solver": settings.solver, "tolerance": settings.tolerance}
    return CellProblem(cell, voxels, prony, **options, on_iteration=on_iteration)


# Threads of the linear algebra library would wait for each other: its matrices here are small.
@threadpool_limits.wrap(limits=1, user_api="blas")
def follow(
    problem: CellProblem,
    times: Float[np.ndarray, " time"],
    log_strain: Float[np.ndarray, "time component"],
    on_state: Callable[[int, State], None] | None = None,
) -> Float[np.ndarray, "time 6"]:
    """Return the mean second Piola-Kirchhoff stress at all times, all six components, in MPa.

    The cell is undeformed and relaxed at the first time; a strain there is applied at once.
    """
    if problem.cell.boundary == "faces" and log_strain.shape[1] == 6 and np.any(log_strain[:, 3:]):
        raise ValueError(
            "faces that stay flat and slide freely carry no shear; the loading has shear strains; use "
            "boundary='periodic', or a loading normal to the faces"
        )
    state, stresses = problem.start(), np.zeros((len(times), 6))
    for n, dt in enumerate(np.diff(times, prepend=times[0])):
        if n == 0 and not np.any(log_strain[0]):
            continue
        try:
            state, response = problem.advance(state, stretch(log_strain[n]), float(dt))
        except StepError as error:
            raise PathError(n, str(error)) from error
        stresses[n] = second_piola(state.mean, np.asarray(response.mean_stress))[_ROWS, _COLUMNS]
        if on_state is not None:
            on_state(n, state)
    return stresses
