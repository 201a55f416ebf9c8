"""Stiffness of microstructures of a composite: 128 of the default one come with the package, others are computed.

A microstructure's number is the seed of its spheres, so a shipped and a computed one of the same number agree.
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
    """Spheres in the cube and voxels along its edge. `gap` is the smallest space between spheres, in radii."""

    num_spheres: int = 4
    volume_fraction: float = 0.2
    resolution: int = 12
    gap: float = 0.3


def stiffnesses(geometry: CompositeGeometry, numbers: Sequence[int]) -> list[CompositeStiffness]:
    """Return the stiffness of every microstructure: shipped if available, else by finite elements (seconds each)."""
    known = read_stiffnesses(SHIPPED) if geometry == CompositeGeometry() else {}
    known |= compute_stiffnesses(geometry, [number for number in numbers if number not in known])
    return [known[number] for number in numbers]


def compute_stiffnesses(geometry: CompositeGeometry, numbers: Sequence[int]) -> dict[int, CompositeStiffness]:
    """Compute the stiffness of every microstructure by finite elements; return it by number.

    SuperLU runs in parallel threads; Pardiso has one global state, and threads of its own.
    """

    def compute(number: int) -> CompositeStiffness:
        spheres = place_spheres(geometry.num_spheres, geometry.volume_fraction, seed=number, gap=geometry.gap)
        return composite_stiffness(spheres, geometry.resolution)

    with ThreadPoolExecutor(1 if has_pardiso() else os.cpu_count()) as pool:
        return dict(zip(numbers, pool.map(compute, numbers), strict=True))


def shipped_stiffness(numbers: Sequence[int]) -> list[CompositeStiffness]:
    """Return the stiffness of microstructures of the default composite, from the shipped file alone."""
    known = read_stiffnesses(SHIPPED)
    missing = [number for number in numbers if number not in known]
    if missing:
        raise ValueError(
            f"a shipped microstructure has a number from {min(known)} to {max(known)}; found {missing[0]}; "
            "choose another, or compute it with stiffnesses()"
        )
    return [known[number] for number in numbers]


def read_stiffnesses(path: str | Path) -> dict[int, CompositeStiffness]:
    """Read every microstructure of a file made by `write_stiffnesses`, by its number."""
    rows = np.loadtxt(path, delimiter=",", ndmin=2)
    if rows.shape[1] != 1 + 2 * len(UPPER[0]):
        raise ValueError(
            f"a row of a stiffness file has {1 + 2 * len(UPPER[0])} numbers; {path} has {rows.shape[1]}; "
            "make it again with python -m langenode.simulators.composite"
        )
    fixed, per_shear = np.split(rows[:, 1:], 2, axis=1)
    return {
        int(number): CompositeStiffness(_symmetric(first), _symmetric(second))
        for number, first, second in zip(rows[:, 0], fixed, per_shear, strict=True)
    }


def write_stiffnesses(
    path: str | Path, geometry: CompositeGeometry, computed: Mapping[int, CompositeStiffness]
) -> None:
    """Write one row per microstructure: its number, then the upper triangles of `fixed` and of `per_shear`.

    Ten digits: `fixed` is a thousand times the shear stiffness, whose small differences must not be rounded away.
    """
    names = [f"{name}_{i + 1}{j + 1}" for name in CompositeStiffness._fields for i, j in zip(*UPPER, strict=True)]
    header = "\n".join([*_settings(geometry, len(computed)), ",".join(["microstructure", *names])])
    rows = [[number, *found.fixed[UPPER], *found.per_shear[UPPER]] for number, found in computed.items()]
    np.savetxt(path, rows, fmt=["%d", *["%.10g"] * len(names)], delimiter=",", header=header)


def _settings(geometry: CompositeGeometry, num: int) -> list[str]:
    """Return the header: what the file is and how it was made."""
    return [
        "Effective stiffness of periodic cubes with glass spheres, by the matrix's shear modulus G:",
        "fixed + G per_shear, in MPa; Voigt's order 11 22 33 23 13 12, engineering shear strains",
        f"glass: K {GLASS.bulk:.7g}, G {GLASS.shear:.7g} MPa; matrix: K {MATRIX_AT_REST.bulk:g} MPa, "
        f"solved at G {MATRIX_AT_REST.shear:g} and {MATRIX_AT_ONCE.shear:g} MPa",
        f"made by: python -m langenode.simulators.composite --microstructures {num} "
        f"--spheres {geometry.num_spheres} --fraction {geometry.volume_fraction:g} "
        f"--resolution {geometry.resolution} --gap {geometry.gap:g} --out FILE",
    ]


def _symmetric(upper: Float[np.ndarray, " 21"]) -> Float[np.ndarray, "6 6"]:
    """Return the symmetric matrix with this upper triangle."""
    matrix = np.zeros((6, 6))
    matrix[UPPER] = upper
    return matrix + np.triu(matrix, 1).T
