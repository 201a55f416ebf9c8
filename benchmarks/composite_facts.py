"""The composite's numbers in docs/guide/composite.md: its stiffness, its resolution, the scatter of its stresses.

python benchmarks/composite_facts.py              # from the shipped stiffnesses, seconds
python benchmarks/composite_facts.py --solve      # and by finite elements: linearity, resolution, gaps; minutes
"""

import argparse

import numpy as np

from langenode.models.mechanics import MANDEL
from langenode.simulators import composite
from langenode.simulators.composite.library import compute_stiffnesses
from langenode.simulators.composite.stiffness import (
    DEVIATORIC,
    GLASS,
    MATRIX_AT_ONCE,
    MATRIX_AT_REST,
    VOLUMETRIC,
    reuss,
)

# With these factors the scalar product of two stiffnesses in Voigt's order is that of the tensors.
FACTORS = np.outer(MANDEL, MANDEL)


def isotropic_shear(per_shear: np.ndarray) -> np.ndarray:
    """G_eff / G: the projection of a stiffness on the unit shear stiffness."""
    unit = FACTORS * DEVIATORIC
    return np.tensordot(FACTORS * per_shear, unit, 2) / (unit**2).sum()


def lower_bound(share: float) -> float:
    """Hashin and Shtrikman's for G_eff / G."""
    matrix = MATRIX_AT_ONCE
    ease = 6.0 * (matrix.bulk + 2.0 * matrix.shear) / (5.0 * matrix.shear * (3.0 * matrix.bulk + 4.0 * matrix.shear))
    return 1.0 + share / (1.0 / (GLASS.shear - matrix.shear) + (1.0 - share) * ease) / matrix.shear


def of_stiffness() -> None:
    """C0, G_eff and the scatter of C1 over the 128 shipped microstructures."""
    shipped = composite.shipped_stiffness(range(128))
    fixed, per_shear = (np.stack([getattr(s, name) for s in shipped]) for name in ("fixed", "per_shear"))
    bulk = fixed[:, :3, :3].mean((1, 2))
    rest = np.abs(fixed - bulk[:, None, None] * VOLUMETRIC).max()
    print(f"K_eff {bulk.mean():.2f} +- {bulk.std(ddof=1):.2f} MPa; the rest of C0 at most {rest:.1e} MPa")
    shear = isotropic_shear(per_shear)
    print(f"G_eff / G {shear.mean():.3f} +- {shear.std(ddof=1):.3f}; lower bound {lower_bound(0.2):.3f}")
    scatter = FACTORS * (per_shear - per_shear.mean(0))
    variance = (scatter**2).sum((1, 2)).mean()
    size = np.sqrt((FACTORS * per_shear.mean(0) ** 2 * FACTORS).sum())
    isotropic = ((shear - shear.mean()) ** 2).mean() * ((FACTORS * DEVIATORIC) ** 2).sum()
    share = 100 * isotropic / variance
    print(
        f"scatter of C1 {100 * np.sqrt(variance) / size:.1f} % of its mean; {share:.0f} % of its variance is isotropic"
    )


def of_stress(seed: int) -> None:
    """The scatter between microstructures, and what a random modulus explains of it."""
    loadings = composite.make_loadings(
        num_walks=88,
        num_tensions=12,
        num_steps=50,
        time_step=1.0,
        amplitude=0.02,
        isochoric=True,
        rng=np.random.default_rng(seed),
    )
    stress = composite.respond(loadings, composite.shipped_stiffness(range(32)), composite.Prony())
    mean = stress.mean(0)
    scatter = stress - mean
    factors = (scatter * mean).sum((1, 2, 3)) / (mean**2).sum()
    explained = (factors**2).sum() * (mean**2).sum() / (scatter**2).sum()
    print(
        f"std between microstructures {100 * np.sqrt((scatter**2).mean() / (stress**2).mean()):.1f} % of the stress's,"
    )
    print(f"of its variance a factor for each microstructure explains {100 * explained:.0f} %")


def by_finite_elements(seeds: list[int]) -> None:
    """Linearity in G, and what finer voxels change, with several gaps between spheres."""
    geometry = composite.CompositeGeometry()
    shear, errors = 0.5 * (MATRIX_AT_REST.shear + MATRIX_AT_ONCE.shear), []
    for seed in range(8):
        cube = composite.place_spheres(geometry.num_spheres, geometry.volume_fraction, seed=seed, gap=geometry.gap)
        glass = composite.glass_fraction(cube, geometry.resolution)
        bulks, shears = reuss(glass, GLASS.bulk, MATRIX_AT_REST.bulk), reuss(glass, GLASS.shear, shear)
        third = composite.effective_stiffness(bulks, shears)
        known = composite.shipped_stiffness([seed])[0]
        errors.append(relative(known.at(shear) - third, third - known.fixed))
    print(f"C_eff is linear in G to {max(errors):.1e} of its part that depends on G")
    for gap in (0.3, 0.2, 0.1):
        coarse, fine = (compute_stiffnesses(geometry._replace(gap=gap, resolution=n), seeds) for n in (12, 16))
        changes = [relative(fine[s].per_shear - coarse[s].per_shear, coarse[s].per_shear) for s in seeds]
        print(f"gap {gap}: C1 changes from 12^3 to 16^3 by " + ", ".join(f"{100 * c:.1f}" for c in changes) + " %")
    finest = compute_stiffnesses(geometry._replace(resolution=20), seeds[:2])
    coarse = composite.shipped_stiffness(seeds[:2])
    before, after = ([isotropic_shear(s.per_shear) for s in found] for found in (coarse, finest.values()))
    changes = [new / old - 1.0 for old, new in zip(before, after, strict=True)]
    print("G_eff from 12^3 to 20^3: " + ", ".join(f"{100 * c:+.1f}" for c in changes) + " %")


def relative(difference: np.ndarray, whole: np.ndarray) -> float:
    return float(np.linalg.norm(FACTORS * difference) / np.linalg.norm(FACTORS * whole))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solve", action="store_true", help="finite elements, too")
    parser.add_argument("--seed", type=int, default=0, help="of the loadings")
    options = parser.parse_args()
    of_stiffness()
    of_stress(options.seed)
    if options.solve:
        by_finite_elements([0, 1, 2, 3])


if __name__ == "__main__":
    main()
