"""The materials of the voxels, and how the matrix relaxes in a time step.

    matrix   a/2 (I1 J^-2/3 - 3) + H : E + K/2 (Jm - 1)^2        Jm: mean of J over the voxel
    glass    lambda/2 tr(E)^2 + mu E : E                         St. Venant-Kirchhoff

The matrix is finite linear viscoelastic: each Prony term has a memory h, `h' = S0' - h / tau`, of the deviatoric stress
of unit modulus, `S0 = J^-2/3 (1 - I1/3 C^-1)`. For S0 linear in time over a step,

    h_new = exp(-x) h + g (S0_new - S0),     g = (1 - exp(-x)) / x,     x = dt / tau

so the stress at its end is `a S0_new + H`: `a = G_inf + sum G_i g_i`, and H is known at its beginning. (The midpoint
rule has exp(-x/2) for g; this g is exact for a ramp at any step, like the superposition's.)
"""

from typing import NamedTuple

import numpy as np

from langenode._types import Float
from langenode.simulators.composite.prony import Prony
from langenode.simulators.composite.stiffness import GLASS, MATRIX_AT_ONCE, Phase


class Voxels(NamedTuple):
    """Moduli of every voxel, in MPa; the matrix's shear moduli are multiplied by `stiffening`, the rest is glass's."""

    stiffening: Float[np.ndarray, " voxel"]
    bulk: Float[np.ndarray, " voxel"]
    lame: Float[np.ndarray, " voxel"]
    shear: Float[np.ndarray, " voxel"]


def voxel_materials(
    fraction: Float[np.ndarray, "n n n"],
    prony: Prony,
    *,
    glass: Phase = GLASS,
    matrix_bulk: float = MATRIX_AT_ONCE.bulk,
) -> Voxels:
    """Return the materials of voxels with these volume fractions of glass.

    A voxel that holds both is a stiffer matrix: its bulk and its instantaneous shear modulus are harmonic means by
    volume. Glass is 60 000 times stiffer in shear than the matrix, so that such a voxel relaxes as the matrix does.
    """
    amount = fraction.ravel()
    is_glass = amount >= 1.0
    in_series = amount * prony.instantaneous / glass.shear + (1.0 - amount)
    return Voxels(
        np.where(is_glass, 0.0, 1.0 / in_series),
        np.where(is_glass, 0.0, 1.0 / (amount / glass.bulk + (1.0 - amount) / matrix_bulk)),
        np.where(is_glass, glass.bulk - 2.0 / 3.0 * glass.shear, 0.0),
        np.where(is_glass, glass.shear, 0.0),
    )


class Relaxation(NamedTuple):
    """The Prony series in a step: the modulus `a` of the new S0, and what every term keeps (`decay`) and gains."""

    modulus: float
    moduli: Float[np.ndarray, " term"]
    decay: Float[np.ndarray, " term"]
    gain: Float[np.ndarray, " term"]


def relaxation(prony: Prony, dt: float) -> Relaxation:
    """Return the factors of a step of length `dt`; in a step of length 0 nothing relaxes."""
    x = dt / prony.times
    gain = np.where(x > 0.0, -np.expm1(-x) / np.where(x > 0.0, x, 1.0), 1.0)
    moduli = prony.moduli
    return Relaxation(float(prony.equilibrium + moduli @ gain), moduli, np.exp(-x), gain)
