"""Stress histories of composite cubes: linear viscoelastic superposition in logarithmic strain.

    T(t) = C0 e(t) + C1 integral of G(t - s) de(s),    S = T / (1 + 2 E)    along the cube's axes

C0 and C1 are a cube's effective stiffness, linear in the matrix's shear modulus, from finite elements. T is conjugate
to the logarithmic strain e, S to Green's strain E = (exp(2 e) - 1) / 2. Compared with finite-strain finite elements
this is 4 to 5 % off at 2.6 % strain; the same superposition in Green's strain would be off by a factor.
"""

from collections.abc import Sequence

import numpy as np

from langenode.data import Dataset
from langenode.simulators.composite.loading import Loadings
from langenode.simulators.composite.prony import Prony, relax
from langenode.simulators.composite.stiffness import CompositeStiffness

STRAIN_NAMES, STRESS_NAMES = ("E11", "E22", "E33"), ("S11", "S22", "S33")


def respond(loadings: Loadings, stiffnesses: Sequence[CompositeStiffness], prony: Prony) -> np.ndarray:
    """Return second Piola-Kirchhoff stresses normal to the faces, (microstructure, loading, time, 3), in MPa."""
    strain = loadings.log_strain
    relaxed = relax(prony, loadings.times, strain)
    fixed = np.stack([stiffness.fixed[:3, :3] for stiffness in stiffnesses])
    per_shear = np.stack([stiffness.per_shear[:3, :3] for stiffness in stiffnesses])
    conjugate = np.einsum("rij,ltj->rlti", fixed, strain) + np.einsum("rij,ltj->rlti", per_shear, relaxed)
    return conjugate / np.exp(2.0 * strain)


def composite_data(
    loadings: Loadings, numbers: Sequence[int], stiffnesses: Sequence[CompositeStiffness], prony: Prony
) -> Dataset:
    """Build the data of every microstructure under every loading: a loading is a condition, a microstructure a unit."""
    stress = respond(loadings, stiffnesses, prony)
    green = np.expm1(2.0 * loadings.log_strain) / 2.0
    num_cubes, num_loadings = stress.shape[:2]
    return Dataset.from_arrays(
        loadings.times,
        stress.reshape(-1, *stress.shape[2:]),
        inputs=np.tile(green, (num_cubes, 1, 1)),
        condition=np.tile(np.array(loadings.names), num_cubes),
        unit=np.repeat(np.array([f"cube {number:03d}" for number in numbers]), num_loadings),
        input_names=STRAIN_NAMES,
        output_names=STRESS_NAMES,
        units={"time": "s"} | dict.fromkeys(STRESS_NAMES, "MPa"),
    )
