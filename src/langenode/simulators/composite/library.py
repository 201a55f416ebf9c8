"""Stiffness of replicas of a composite: 128 of the default one come with the package, others are computed.

A replica's number is the seed of its spheres, so a shipped replica and a computed one of the same number agree.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from langenode._types import Float
from langenode.simulators.composite.microstructure import place_spheres
from langenode.simulators.composite.stiffness import (
    GLASS,
    MATRIX_AT_ONCE,
    MATRIX_AT_REST,
    CompositeStiffness,
    composite_stiffness,
    has_pardiso,
)

SHIPPED = Path(__file__).with_name("stiffness.csv")
UPPER = np.triu_indices(6)


class CompositeGeometry(NamedTuple):
    """Spheres in the cube and voxels along its edge. `gap` is the least space between spheres, in radii."""

    num_spheres: int = 4
    volume_fraction: float = 0.2
    resolution: int = 12
    gap: float = 0.3


def stiffnesses(geometry: CompositeGeometry, replicas: Sequence[int]) -> list[CompositeStiffness]:
    """Stiffness of every replica: from the shipped file where it is there, by finite elements (seconds each) if not."""
    known = read_stiffnesses(SHIPPED) if geometry == CompositeGeometry() else {}
    known |= compute_stiffnesses(geometry, [replica for replica in replicas if replica not in known])
    return [known[replica] for replica in replicas]


def compute_stiffnesses(geometry: CompositeGeometry, replicas: Sequence[int]) -> dict[int, CompositeStiffness]:
    """Stiffness by finite elements, of every replica by its number.

    SuperLU lets threads run side by side; Pardiso has one state for all, and threads of its own.
    """

    def compute(replica: int) -> CompositeStiffness:
        spheres = place_spheres(geometry.num_spheres, geometry.volume_fraction, seed=replica, gap=geometry.gap)
        return composite_stiffness(spheres, geometry.resolution)

    with ThreadPoolExecutor(1 if has_pardiso() else os.cpu_count()) as pool:
        return dict(zip(replicas, pool.map(compute, replicas), strict=True))


def shipped_stiffness(replicas: Sequence[int]) -> list[CompositeStiffness]:
    """Stiffness of replicas of the default composite, from the shipped file alone."""
    known = read_stiffnesses(SHIPPED)
    missing = [replica for replica in replicas if replica not in known]
    if missing:
        raise ValueError(
            f"a shipped replica has a number from {min(known)} to {max(known)}; got {missing[0]}; "
            "take another, or compute it with stiffnesses()"
        )
    return [known[replica] for replica in replicas]


def read_stiffnesses(path: str | Path) -> dict[int, CompositeStiffness]:
    """Every replica of a file made by `write_stiffnesses`, by its number."""
    rows = np.loadtxt(path, delimiter=",", ndmin=2)
    if rows.shape[1] != 1 + 2 * len(UPPER[0]):
        raise ValueError(
            f"a row of a stiffness file has {1 + 2 * len(UPPER[0])} numbers; {path} has {rows.shape[1]}; "
            "make it again with python -m langenode.simulators.composite"
        )
    fixed, per_shear = np.split(rows[:, 1:], 2, axis=1)
    return {
        int(replica): CompositeStiffness(_symmetric(first), _symmetric(second))
        for replica, first, second in zip(rows[:, 0], fixed, per_shear, strict=True)
    }


def write_stiffnesses(
    path: str | Path, geometry: CompositeGeometry, replicas: Mapping[int, CompositeStiffness]
) -> None:
    """One row a replica: its number, the upper triangle of `fixed`, the upper triangle of `per_shear`.

    Ten digits: `fixed` is a thousand times the shear stiffness, whose small differences must not be rounded away.
    """
    names = [f"{name}_{i + 1}{j + 1}" for name in CompositeStiffness._fields for i, j in zip(*UPPER, strict=True)]
    header = "\n".join([*_settings(geometry, len(replicas)), ",".join(["replica", *names])])
    rows = [[number, *found.fixed[UPPER], *found.per_shear[UPPER]] for number, found in replicas.items()]
    np.savetxt(path, rows, fmt=["%d", *["%.10g"] * len(names)], delimiter=",", header=header)


def _settings(geometry: CompositeGeometry, num_replicas: int) -> list[str]:
    """What the file is and how it was made."""
    return [
        "Effective stiffness of periodic cubes with glass spheres, by the matrix's shear modulus G:",
        "fixed + G per_shear, in MPa; Voigt's order 11 22 33 23 13 12, engineering shear strains",
        f"glass: K {GLASS.bulk:.7g}, G {GLASS.shear:.7g} MPa; matrix: K {MATRIX_AT_REST.bulk:g} MPa, "
        f"solved at G {MATRIX_AT_REST.shear:g} and {MATRIX_AT_ONCE.shear:g} MPa",
        f"made by: python -m langenode.simulators.composite --replicas {num_replicas} "
        f"--spheres {geometry.num_spheres} --fraction {geometry.volume_fraction:g} "
        f"--resolution {geometry.resolution} --gap {geometry.gap:g} --out FILE",
    ]


def _symmetric(upper: Float[np.ndarray, " 21"]) -> Float[np.ndarray, "6 6"]:
    """The matrix of this upper triangle."""
    matrix = np.zeros((6, 6))
    matrix[UPPER] = upper
    return matrix + np.triu(matrix, 1).T
