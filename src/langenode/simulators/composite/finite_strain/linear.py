"""Linear systems of a path: one factor is kept, as the preconditioner of conjugate gradients, until it serves no more.

Along a path the stiffness changes little, so that conjugate gradients with an old factor need few steps, each of which
costs a hundredth of a new factor. The way out is a new factor, and with it a direct solve. A matrix that is not
positive definite is refused: Newton's method would go to a saddle of the energy (glass has spurious ones), whose
stresses are thousands of times too large.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from langenode._types import Float

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SolverName = Literal["kept", "direct", "pardiso"]
# A solve that needs this many steps is done by a new factor.
MOST_STEPS = 60
# Unknowns of the largest factor whose pivots are read, and random vectors that a larger one is tried on.
MOST_READ, NUM_PROBES = 6000, 8
# A new factor costs as much as some hundred steps: it is due once ageing has cost as many more than when it was new.
FACTOR_COST = 100


class SolveError(ArithmeticError):
    """A linear system without a usable solution."""


class IndefiniteError(SolveError):
    """A stiffness that is not positive definite: of a state that is no minimum of the energy."""

    def __init__(self):
        super().__init__("a stiffness must be positive definite; it is not, so that the state is no minimum")


class Solver:
    """Solves systems with symmetric matrices that change little from one to the next.

    `kept`: SciPy's SuperLU, its factor kept as a preconditioner. `direct`: a new factor for every system. `pardiso`:
    the same by pypardiso, where installed.
    """

    def __init__(self, name: SolverName = "kept"):
        self.name = name
        self.num_factors = 0
        self.num_steps = 0
        self._factor = None
        self._fewest, self._wasted = MOST_STEPS, 0

    def solve(
        self, matrix: "csr_array", load: Float[np.ndarray, " unknown"], tolerance: float
    ) -> Float[np.ndarray, " unknown"]:
        """Return the solution; `tolerance` is of the residual in the preconditioner's norm, for the kept factor."""
        if not (np.all(np.isfinite(matrix.data)) and np.all(np.isfinite(load))):  # a factorisation may end the process
            raise SolveError("a linear system must be finite; the stiffness or the forces are not")
        if self.name == "pardiso":
            from langenode.simulators.composite.stiffness import pardiso_solve

            self.num_factors += 1
            return _finite(pardiso_solve(matrix.tocsc(), load))
        if self.name == "direct" or self._factor is None or self._wasted > FACTOR_COST:
            return self._solve_anew(matrix, load)
        before = self.num_steps
        found = self._iterate(matrix, load, tolerance)
        self._fewest = min(self._fewest, self.num_steps - before)
        self._wasted += self.num_steps - before - self._fewest
        return self._solve_anew(matrix, load) if found is None else found

    def _solve_anew(self, matrix: "csr_array", load: np.ndarray) -> np.ndarray:
        from scipy.sparse.linalg import splu

        self.num_factors += 1
        self._factor = None  # two at a time would need twice the memory
        self._fewest, self._wasted = MOST_STEPS, 0
        options = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        try:
            # Symmetric: rows are columns.
            self._factor = splu(matrix.T, **options)
        except RuntimeError as error:
            self._factor = None
            raise SolveError(f"a stiffness must be regular; its factorisation failed ({error})") from error
        if not _is_positive(self._factor):
            self._factor = None
            raise IndefiniteError
        return _finite(self._factor.solve(load))

    def _iterate(self, matrix: "csr_array", load: np.ndarray, tolerance: float) -> np.ndarray | None:
        """Return the solution by conjugate gradients, or None after too many steps."""
        assert self._factor is not None
        solution, residual = np.zeros_like(load), load.copy()
        descent = self._factor.solve(residual)
        direction, size = descent.copy(), residual @ descent
        first = size
        for _ in range(MOST_STEPS):
            if size <= tolerance**2 * first:
                return solution
            image = matrix @ direction
            curvature = direction @ image
            if not curvature > 0.0:
                raise IndefiniteError
            self.num_steps += 1
            solution += size / curvature * direction
            residual -= size / curvature * image
            descent = self._factor.solve(residual)
            size, before = residual @ descent, size
            direction = descent + size / before * direction
        return None


def _is_positive(factor: Any) -> bool:
    """Return whether a matrix is positive definite, from its factor.

    Pivots are on the diagonal, and their signs are those of the eigenvalues. To read them takes a copy of the factor,
    so large ones are tried on random vectors, in which the small eigenvalues, the first to change sign, weigh most.
    """
    size = factor.shape[0]
    if size <= MOST_READ:
        return bool(np.all(factor.U.diagonal() > 0.0))
    probes = np.random.default_rng(0).standard_normal((size, NUM_PROBES))
    return bool(np.all(np.sum(probes * factor.solve(probes), axis=0) > 0.0))


def _finite(solution: np.ndarray) -> np.ndarray:
    if not np.all(np.isfinite(solution)):
        raise SolveError("a linear system must have a finite solution; it has none")
    return solution
