"""Effective linear stiffness of a periodic voxel cube: trilinear finite elements with mean dilatation.

The energy density in a voxel is K/2 (mean div u)^2 + G |dev eps|^2; averaging the dilatation over the voxel prevents
locking in a nearly incompressible matrix. For macroscopic unit strains e_i and periodic fluctuations u_i,

    C_ij = < (e_i + grad u_i) : C : (e_j + grad u_j) >        u_i: minimiser of the energy

in Voigt's order 11, 22, 33, 23, 13, 12 with engineering shear strains. Moduli and stiffness in MPa.
"""

import importlib.util
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from langenode._types import Float, Int
from langenode.simulators.composite.microstructure import Microstructure, glass_fraction

if TYPE_CHECKING:
    from scipy.sparse import csc_array

VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
# The corners of a voxel, in the order of its nodes.
CORNERS = np.array(list(itertools.product((0, 1), repeat=3)))


class Phase(NamedTuple):
    """An isotropic elastic material, in MPa."""

    bulk: float
    shear: float

    @classmethod
    def from_young(cls, young: float, poisson: float) -> "Phase":
        """Convert: K = E / (3 (1 - 2 nu)), G = E / (2 (1 + nu))."""
        return cls(young / (3.0 * (1.0 - 2.0 * poisson)), young / (2.0 * (1.0 + poisson)))

    @property
    def stiffness(self) -> Float[np.ndarray, "6 6"]:
        """The (6, 6) stiffness of the material."""
        return self.bulk * VOLUMETRIC + self.shear * DEVIATORIC


# Stiffness of an isotropic material for unit bulk modulus and for unit shear modulus.
VOLUMETRIC = np.outer([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
DEVIATORIC = np.diag([2.0, 2.0, 2.0, 1.0, 1.0, 1.0]) - 2.0 / 3.0 * VOLUMETRIC

GLASS = Phase.from_young(60_000.0, 0.33)
MATRIX_AT_ONCE = Phase(920.0, 0.362)
MATRIX_AT_REST = Phase(920.0, 0.084)

Solve = Callable[["csc_array", np.ndarray], np.ndarray]


def reuss(glass: Float[np.ndarray, "n n n"], glass_modulus: float, matrix_modulus: float) -> Float[np.ndarray, "n n n"]:
    """Return the modulus of voxels that hold both phases: the harmonic mean by volume.

    Assigning each voxel to one phase would be far too stiff.
    """
    return 1.0 / (glass / glass_modulus + (1.0 - glass) / matrix_modulus)


class ElementMatrices(NamedTuple):
    """A voxel of unit edge: stiffness K `bulk` + G `shear`, and nodal displacements `affine` under unit strains."""

    bulk: Float[np.ndarray, "24 24"]
    shear: Float[np.ndarray, "24 24"]
    affine: Float[np.ndarray, "24 6"]


def element_matrices() -> ElementMatrices:
    """Integrate the element matrices by the Gauss rule of 2^3 points, exact for a cube."""
    strain = np.array([_strain_operator(gradient) for gradient in shape_gradients()])
    dilatation = strain[:, :3].sum(1).mean(0)
    shear = np.einsum("qia,ij,qjb->ab", strain, DEVIATORIC, strain) / len(strain)
    affine = np.zeros((8, 3, 6))
    for column, (i, j) in enumerate(VOIGT):
        affine[:, i, column] += 0.5 * CORNERS[:, j]
        affine[:, j, column] += 0.5 * CORNERS[:, i]
    return ElementMatrices(np.outer(dilatation, dilatation), shear, affine.reshape(24, 6))


def shape_gradients() -> Float[np.ndarray, "8 8 3"]:
    """Return the gradients of the eight corners' shape functions at the eight Gauss points of a voxel of unit edge."""
    return np.array([_gradient(signs) for signs in itertools.product((-1.0, 1.0), repeat=3)])


def _gradient(signs: tuple[float, ...]) -> Float[np.ndarray, "8 3"]:
    position = 0.5 + np.array(signs) / np.sqrt(12.0)
    factors = np.where(CORNERS == 1, position, 1.0 - position)
    slopes = 2.0 * CORNERS - 1.0
    return np.stack([slopes[:, i] * np.delete(factors, i, axis=1).prod(1) for i in range(3)], axis=1)


def _strain_operator(gradient: Float[np.ndarray, "8 3"]) -> Float[np.ndarray, "6 24"]:
    """Return the Voigt strain at a Gauss point from the displacements of the eight nodes."""
    operator = np.zeros((6, 8, 3))
    for row, (i, j) in enumerate(VOIGT):
        operator[row, :, i] = gradient[:, j]
        operator[row, :, j] = gradient[:, i]
    return operator.reshape(6, 24)


def _degrees_of_freedom(resolution: int) -> Int[np.ndarray, "voxel 24"]:
    """Number the displacements at the nodes of every voxel; nodes on opposite faces are identified."""
    voxels = np.indices((resolution,) * 3).reshape(3, -1).T
    nodes = (voxels[:, None] + CORNERS) % resolution
    numbers = nodes @ [resolution**2, resolution, 1]
    return (3 * numbers[..., None] + np.arange(3)).reshape(-1, 24)


def direct_solve(matrix: "csc_array", loads: np.ndarray) -> np.ndarray:
    """Solve with SciPy's SuperLU, set for a symmetric positive matrix: 2 to 3 times faster than by default."""
    from scipy.sparse.linalg import splu

    factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return factors.solve(loads)


def pardiso_solve(matrix: "csc_array", loads: np.ndarray) -> np.ndarray:
    """Solve with Intel's Pardiso (pypardiso, if installed): 2 to 4 times faster from 16 voxels per edge on."""
    try:
        from pypardiso import spsolve  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "pardiso_solve needs pypardiso; it is not installed; pip install pypardiso, or use direct_solve"
        ) from error
    return spsolve(matrix.tocsr(), loads)


def has_pardiso() -> bool:
    """Whether pypardiso is installed: twice as fast, but it needs Intel's libraries."""
    return importlib.util.find_spec("pypardiso") is not None


def default_solve() -> Solve:
    """Return pypardiso's solver where it is installed, else SciPy's."""
    return pardiso_solve if has_pardiso() else direct_solve


def effective_stiffness(
    bulk: Float[np.ndarray, "n n n"], shear: Float[np.ndarray, "n n n"], *, solve: Solve | None = None
) -> Float[np.ndarray, "6 6"]:
    """Return the stiffness of the periodic cube whose voxels have these moduli (MPa).

    `solve` solves the linear system; `default_solve()` if not given.
    """
    _check(bulk, shear)
    pattern, freedoms = element_matrices(), _degrees_of_freedom(len(bulk))
    voxels = bulk.reshape(-1, 1, 1) * pattern.bulk + shear.reshape(-1, 1, 1) * pattern.shear
    matrix, loads = _assemble(voxels, freedoms, pattern.affine)
    displacements = np.zeros_like(loads)
    # The first node is fixed: a periodic fluctuation is determined up to a translation.
    displacements[3:] = (solve or default_solve())(matrix[3:, 3:], loads[3:])
    total = pattern.affine + displacements[freedoms]
    stiffness = np.einsum("eai,eaj->ij", total, voxels @ total) / len(voxels)
    return 0.5 * (stiffness + stiffness.T)  # removes the asymmetry of rounding


def _check(bulk: Float[np.ndarray, "n n n"], shear: Float[np.ndarray, "n n n"]) -> None:
    if bulk.shape != shear.shape or len(bulk) < 2:
        raise ValueError(
            "both moduli must be given in the same voxels, at least two along an edge; found shapes "
            f"{bulk.shape} and {shear.shape}; give (n, n, n) each"
        )
    if not (np.all(np.isfinite(bulk) & (bulk > 0.0)) and np.all(np.isfinite(shear) & (shear > 0.0))):
        raise ValueError(
            f"moduli must be positive and finite; the smallest are {bulk.min()} and {shear.min()}; correct them"
        )


def _assemble(
    voxels: Float[np.ndarray, "voxel 24 24"],
    freedoms: Int[np.ndarray, "voxel 24"],
    affine: Float[np.ndarray, "24 6"],
) -> "tuple[csc_array, np.ndarray]":
    """Return the sparse stiffness of all displacements, and the negative nodal forces of the six unit strains."""
    from scipy.sparse import coo_array

    size = int(freedoms.max()) + 1
    rows = np.broadcast_to(freedoms[:, :, None], voxels.shape).ravel()
    columns = np.broadcast_to(freedoms[:, None, :], voxels.shape).ravel()
    loads = np.zeros((size, 6))
    np.add.at(loads, freedoms, -voxels @ affine)
    return coo_array((voxels.ravel(), (rows, columns)), shape=(size, size)).tocsc(), loads


class CompositeStiffness(NamedTuple):
    """Stiffness of a composite as a function of its matrix's shear modulus G: `fixed` + G `per_shear`."""

    fixed: Float[np.ndarray, "6 6"]
    per_shear: Float[np.ndarray, "6 6"]

    def at(self, shear: float) -> Float[np.ndarray, "6 6"]:
        """Return the stiffness (MPa) at a shear modulus of the matrix of `shear` MPa."""
        return self.fixed + shear * self.per_shear


def composite_stiffness(
    microstructure: Microstructure,
    resolution: int,
    *,
    glass: Phase = GLASS,
    matrix_bulk: float = MATRIX_AT_ONCE.bulk,
    shears: tuple[float, float] = (MATRIX_AT_REST.shear, MATRIX_AT_ONCE.shear),
    solve: Solve | None = None,
) -> CompositeStiffness:
    """Interpolate linearly between solves at the matrix shear moduli `shears`; between them the error is 0.01 %."""
    fraction = glass_fraction(microstructure, resolution)
    bulk = reuss(fraction, glass.bulk, matrix_bulk)
    soft, hard = (effective_stiffness(bulk, reuss(fraction, glass.shear, shear), solve=solve) for shear in shears)
    per_shear = (hard - soft) / (shears[1] - shears[0])
    return CompositeStiffness(soft - shears[0] * per_shear, per_shear)
