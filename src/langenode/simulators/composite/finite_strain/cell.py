"""The mesh of a cell of N^3 voxels, what moves in it, and the fixed pattern of its stiffness.

A displacement is `(F - 1) X + w`: the mean deformation gradient F, and a fluctuation w with

    boundary = "periodic":  w equal on opposite faces
    boundary = "faces":     w without a component normal to the faces, which stay flat and slide freely

Both are maps from the displacements of the voxels' corners to the unknowns; all else is the same.
"""

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from langenode._types import Float, Int
from langenode.simulators.composite.stiffness import CORNERS, shape_gradients

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Boundary = Literal["periodic", "faces"]


class Pattern(NamedTuple):
    """The places of a symmetric sparse matrix: `slots` says where each kept entry of the voxels' matrices is added."""

    starts: Int[np.ndarray, " unknown_and_one"]
    columns: Int[np.ndarray, " nonzero"]
    kept: Int[np.ndarray, " entry"]
    slots: Int[np.ndarray, " entry"]


class Cell(NamedTuple):
    """A cube of unit edge. `freedoms` numbers the unknowns at the corners of the voxels; `num` stands for "fixed"."""

    resolution: int
    boundary: Boundary
    freedoms: Int[np.ndarray, "voxel 24"]
    num: int
    pattern: Pattern
    positions: Float[np.ndarray, "voxel 8 3"]
    gradients: Float[np.ndarray, "8 8 3"]

    def at_voxels(self, unknowns: Float[np.ndarray, " unknown"]) -> Float[np.ndarray, "voxel 8 3"]:
        """Return the fluctuation at the corners of every voxel."""
        return np.append(unknowns, 0.0)[self.freedoms].reshape(-1, 8, 3)

    def gather(self, forces: Float[np.ndarray, "voxel 24"]) -> Float[np.ndarray, " unknown"]:
        """Return the sum of the voxels' forces at every unknown."""
        return np.bincount(self.freedoms.ravel(), forces.ravel(), self.num + 1)[:-1]

    def matrix(self, voxels: Float[np.ndarray, "voxel 24 24"]) -> "csr_array":
        """Return the sum of the voxels' matrices, a CSR array."""
        from scipy.sparse import csr_array

        starts, columns, kept, slots = self.pattern
        data = np.bincount(slots, voxels.reshape(-1)[kept], len(columns))
        return csr_array((data, columns, starts), shape=(self.num, self.num))


def make_cell(resolution: int, boundary: Boundary = "periodic") -> Cell:
    """Mesh a cube of `resolution`^3 voxels."""
    if resolution < 2 or boundary not in ("periodic", "faces"):
        raise ValueError(
            "a cell has two voxels or more along an edge, and a boundary that is 'periodic' or 'faces'; found "
            f"{resolution} and {boundary!r}; correct them"
        )
    corners = np.indices((resolution,) * 3).reshape(3, -1).T[:, None] + CORNERS
    freedoms, num = _periodic(corners, resolution) if boundary == "periodic" else _faces(corners, resolution)
    freedoms = freedoms.reshape(-1, 24)
    return Cell(
        resolution,
        boundary,
        freedoms,
        num,
        _pattern(freedoms, num),
        corners / resolution,
        shape_gradients() * resolution,
    )


def _periodic(corners: np.ndarray, resolution: int) -> tuple[np.ndarray, int]:
    """Identify opposite faces; the first corner is fixed, since a fluctuation is determined up to a translation."""
    nodes = (corners % resolution) @ [resolution**2, resolution, 1]
    freedoms = 3 * nodes[..., None] + np.arange(3) - 3
    num = 3 * resolution**3 - 3
    return np.where(freedoms < 0, num, freedoms), num


def _faces(corners: np.ndarray, resolution: int) -> tuple[np.ndarray, int]:
    """Fix the component normal to a face at its corners."""
    edge = resolution + 1
    nodes = np.indices((edge,) * 3).reshape(3, -1).T
    is_free = (nodes % resolution != 0).ravel()
    numbers = np.where(is_free, np.cumsum(is_free) - 1, is_free.sum()).reshape(-1, 3)
    at_corners = corners @ np.array([edge**2, edge, 1])
    return numbers[at_corners], int(is_free.sum())


def _pattern(freedoms: np.ndarray, num: int) -> Pattern:
    shape = (len(freedoms), 24, 24)
    rows = np.broadcast_to(freedoms[:, :, None], shape).ravel()
    columns = np.broadcast_to(freedoms[:, None], shape).ravel()
    kept = np.flatnonzero((rows < num) & (columns < num))
    places, slots = np.unique(rows[kept].astype(np.int64) * num + columns[kept], return_inverse=True)
    starts = np.searchsorted(places // num, np.arange(num + 1))
    return Pattern(starts.astype(np.int32), (places % num).astype(np.int32), kept, slots)
