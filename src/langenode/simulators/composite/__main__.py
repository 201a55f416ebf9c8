"""Compute a file of stiffnesses: python -m langenode.simulators.composite --microstructures 128 --out FILE."""

import argparse
from pathlib import Path

from langenode.simulators.composite.library import CompositeGeometry, compute_stiffnesses, write_stiffnesses


def main() -> None:
    """Compute and write microstructures 0, 1, 2, ... of one geometry; nothing is written if one of them fails."""
    default = CompositeGeometry()
    parser = argparse.ArgumentParser(
        prog="python -m langenode.simulators.composite",
        description="Effective stiffness of random microstructures of a composite.",
    )
    parser.add_argument("--microstructures", type=int, default=128, help="how many, numbered from zero")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--spheres", type=int, default=default.num_spheres, help="spheres in the cube")
    parser.add_argument("--fraction", type=float, default=default.volume_fraction, help="volume fraction of glass")
    parser.add_argument("--resolution", type=int, default=default.resolution, help="voxels along an edge")
    parser.add_argument("--gap", type=float, default=default.gap, help="smallest space between spheres, in radii")
    given = parser.parse_args()
    if given.microstructures < 1:
        parser.error(f"--microstructures must be one or more; found {given.microstructures}; give their number")
    if not given.out.parent.is_dir():
        parser.error(f"--out must be in an existing folder; found {given.out}; make {given.out.parent} first")
    geometry = CompositeGeometry(given.spheres, given.fraction, given.resolution, given.gap)
    try:
        found = compute_stiffnesses(geometry, range(given.microstructures))
    except ValueError as error:
        parser.error(str(error))
    write_stiffnesses(given.out, geometry, found)
    print(f"{len(found)} microstructures in {given.out}")


if __name__ == "__main__":
    main()
