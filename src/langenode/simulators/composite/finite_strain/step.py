"""One load step: a linear predictor, Newton's method with line search, and shorter steps where that fails."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from langenode._types import Float
from langenode.simulators.composite.finite_strain import potential
from langenode.simulators.composite.finite_strain.cell import Cell
from langenode.simulators.composite.finite_strain.linear import IndefiniteError, SolveError, Solver, SolverName
from langenode.simulators.composite.finite_strain.materials import Voxels, relaxation
from langenode.simulators.composite.finite_strain.potential import Moduli, Response
from langenode.simulators.composite.prony import Prony

# The predictor moves the boundary, so that its error is not made good as cheaply as that of a Newton iteration.
PREDICTOR_TOLERANCE, NEWTON_TOLERANCE = 1e-6, 1e-5
MOST_ITERATIONS, MOST_HALVINGS, DEEPEST_CUT = 15, 5, 5
# A step's first tangent is kept as long as an iteration lowers the energy norm (a square) to this share.
KEPT_PROGRESS = 1e-4
# Of the line search: the energy must fall by this share of what its slope promises, but for rounding errors.
LEAST_PROGRESS, ROUNDING = 1e-4, 1e-12


class StepError(ArithmeticError):
    """A load step that did not converge, even when cut."""


class State(NamedTuple):
    """A cell at a time: mean deformation gradient, fluctuation, S0 and the Prony terms' memories at all points."""

    mean: Float[np.ndarray, "3 3"]
    unknowns: Float[np.ndarray, " unknown"]
    unit_stress: Float[np.ndarray, "voxel 8 3 3"]
    memory: Float[np.ndarray, "term voxel 8 3 3"]


class Iteration(NamedTuple):
    """A Newton iteration: energy norm (force times change of displacement) and the share of it that was taken."""

    energy_norm: float
    share: float


class CellProblem:
    """A cell of given materials, and how its steps are solved; `stress_scale` is the largest mean stress so far."""

    def __init__(
        self,
        cell: Cell,
        voxels: Voxels,
        prony: Prony,
        *,
        solver: SolverName = "kept",
        tolerance: float = 1e-5,
        on_iteration: Callable[[Iteration], None] | None = None,
    ):
        self.cell, self.voxels, self.prony = cell, voxels, prony
        self.solver = Solver(solver)
        self.tolerance = tolerance
        self.stress_scale = 0.0
        self._on_iteration = on_iteration
        self._tangent: tuple[float, np.ndarray] | None = None

    def start(self) -> State:
        """Return the relaxed, undeformed cell, for a new path; the factor of an earlier one is of use still."""
        self._tangent, self.stress_scale = None, 0.0
        points = (len(self.cell.freedoms), 8, 3, 3)
        memory = np.zeros((self.prony.num_times, *points))
        return State(np.eye(3), np.zeros(self.cell.num), np.zeros(points), memory)

    def advance(
        self, state: State, mean: Float[np.ndarray, "3 3"], dt: float, depth: int = 0
    ) -> tuple[State, Response]:
        """Return the state at a new mean deformation gradient after `dt`, and the response there."""
        with jax.enable_x64(True), np.errstate(all="ignore"):  # what is not finite is looked for
            return self._advance(state, mean, dt, depth)

    def _advance(self, state: State, mean: np.ndarray, dt: float, depth: int) -> tuple[State, Response]:
        try:
            return _Step(self, state, mean, dt).solve()
        except (StepError, SolveError) as error:
            self._tangent = None
            if depth >= DEEPEST_CUT:
                raise StepError(
                    f"a load step must converge; it did not, cut into {2**depth} parts ({error}); use shorter steps, "
                    "less strain or a finer grid"
                ) from error
        middle, _ = self._advance(state, 0.5 * (state.mean + mean), 0.5 * dt, depth + 1)
        return self._advance(middle, mean, 0.5 * dt, depth + 1)


class _Step:
    """A step from one state to the next: the material's history is known, the fluctuation is sought."""

    def __init__(self, problem: CellProblem, state: State, mean: np.ndarray, dt: float):
        self.problem, self.state, self.mean, self.dt = problem, state, mean, dt
        self.cell, voxels = problem.cell, problem.voxels
        self.relaxation = relaxation(problem.prony, dt)
        self.moduli = Moduli(voxels.stiffening * self.relaxation.modulus, voxels.bulk, voxels.lame, voxels.shear)
        factors = self.relaxation
        kept = np.tensordot(factors.moduli * factors.decay, state.memory, 1)
        kept -= factors.moduli @ factors.gain * state.unit_stress
        self.history = voxels.stiffening[:, None, None, None] * kept
        self._kept: np.ndarray | None = None
        self._last_norm = np.inf

    def solve(self) -> tuple[State, Response]:
        unknowns = self._predict()
        response = self._respond(unknowns, self.mean)
        stress = None
        for _ in range(MOST_ITERATIONS):
            if not _is_sound(response):
                raise StepError("an element is turned inside out")
            before, stress = stress, self._mean_stress(response)
            if before is not None and self._is_small(stress - before, stress):
                self.problem.stress_scale = max(self.problem.stress_scale, float(np.linalg.norm(stress)))
                return self._finish(unknowns), response
            unknowns, response = self._improve(unknowns, response)
        raise StepError(f"{MOST_ITERATIONS} Newton iterations were not enough")

    def _is_small(self, change: np.ndarray, stress: np.ndarray) -> bool:
        """Whether the mean stress stands still, by the largest one of the path."""
        scale = max(self.problem.stress_scale, float(np.linalg.norm(stress)))
        return (
            float(np.linalg.norm(change)) <= self.problem.tolerance * scale + 1e-14 * self.problem.prony.instantaneous
        )

    def _predict(self) -> np.ndarray:
        """Return the fluctuation that follows the new mean by the tangent of the last converged state.

        With the affine guess instead, glass would be strained as much as the rest, and Newton's method break down.
        """
        state, problem = self.state, self.problem
        if problem._tangent is None or problem._tangent[0] != self.dt:
            problem._tangent = (self.dt, self._stiffness(state.unknowns, state.mean))
        voxels = problem._tangent[1]
        affine = (self.cell.positions @ (self.mean - state.mean).T).reshape(-1, 24)
        forces = np.asarray(self._respond(state.unknowns, state.mean).forces) + np.einsum("eab,eb->ea", voxels, affine)
        matrix = self.cell.matrix(voxels)
        return state.unknowns - problem.solver.solve(matrix, self.cell.gather(forces), PREDICTOR_TOLERANCE)

    def _improve(self, unknowns: np.ndarray, response: Response) -> tuple[np.ndarray, Response]:
        """Return the fluctuation after a Newton iteration, its length halved until the energy falls."""
        problem = self.problem
        forces = self.cell.gather(np.asarray(response.forces))
        direction = self._direction(unknowns, forces)
        slope, energy, share = float(forces @ direction), float(response.energy), 1.0
        scale = 1e-3 * problem.prony.instantaneous  # points have energies of this size near zero, which cancel
        if abs(slope) > KEPT_PROGRESS * self._last_norm:
            self._kept = None
        self._last_norm = abs(slope)
        for _ in range(MOST_HALVINGS):
            trial = unknowns + share * direction
            found = self._respond(trial, self.mean)
            limit = energy + LEAST_PROGRESS * share * slope + ROUNDING * (abs(energy) + scale)
            if _is_sound(found) and float(found.energy) <= limit:
                if problem._on_iteration is not None:
                    problem._on_iteration(Iteration(abs(slope), share))
                return trial, found
            share *= 0.5
        raise StepError("no length of a Newton iteration lowers the energy")

    def _direction(self, unknowns: np.ndarray, forces: np.ndarray) -> np.ndarray:
        """Return Newton's direction, or that of the safe stiffness where the full one is not positive definite.

        After the first iteration of a step its tangent is nearly that of the end, and a new one takes as long as
        thirty steps of conjugate gradients.
        """
        problem = self.problem
        if self._kept is not None:
            return -problem.solver.solve(self.cell.matrix(self._kept), forces, NEWTON_TOLERANCE)
        for is_safe in (False, True):
            voxels = self._stiffness(unknowns, self.mean, is_safe=is_safe)
            try:
                found = -problem.solver.solve(self.cell.matrix(voxels), forces, NEWTON_TOLERANCE)
            except IndefiniteError:
                if is_safe:
                    raise
            else:
                problem._tangent = (self.dt, voxels)
                self._kept = voxels if problem.solver.name == "kept" else None
                return found
        raise AssertionError

    def _respond(self, unknowns: np.ndarray, mean: np.ndarray) -> Response:
        at_voxels, shapes = self.cell.at_voxels(unknowns), self.cell.gradients
        return potential.respond(at_voxels, mean, shapes, self.history, self.moduli)

    def _stiffness(self, unknowns: np.ndarray, mean: np.ndarray, *, is_safe: bool = False) -> np.ndarray:
        at_voxels, shapes = self.cell.at_voxels(unknowns), self.cell.gradients
        return potential.stiffness(at_voxels, mean, shapes, self.history, self.moduli, is_safe=is_safe)

    def _mean_stress(self, response: Response) -> np.ndarray:
        return second_piola(self.mean, np.asarray(response.mean_stress))

    def _finish(self, unknowns: np.ndarray) -> State:
        at_voxels, factors = self.cell.at_voxels(unknowns), self.relaxation
        unit_stress = np.asarray(potential.unit_stress(at_voxels, self.mean, self.cell.gradients))
        change = unit_stress - self.state.unit_stress
        memory = np.empty_like(self.state.memory)
        for term, (decay, gain) in enumerate(zip(factors.decay, factors.gain, strict=True)):
            memory[term] = decay * self.state.memory[term] + gain * change
        return State(self.mean, unknowns, unit_stress, memory)


def _is_sound(response: Response) -> bool:
    return bool(np.isfinite(response.energy)) and float(response.smallest) > 0.0


def second_piola(mean: Float[np.ndarray, "3 3"], stress: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3 3"]:
    """Return `F^-1 P`, symmetric at equilibrium, from the mean first Piola-Kirchhoff stress P."""
    found = np.linalg.solve(mean, stress)
    return 0.5 * (found + found.T)
