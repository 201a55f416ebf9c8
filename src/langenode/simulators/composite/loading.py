"""Loadings of the cube: random walks of its faces, and tension tests as in a laboratory.

A loading is the logarithmic strain normal to the three faces over time. Loadings are isochoric by default: the matrix
is 2500 times stiffer in bulk than in shear, so that an unconstrained walk would produce almost only pressure.
"""

from typing import NamedTuple

import numpy as np

from langenode._types import Float

# Traceless directions of the tension modes: uniaxial, equibiaxial, and planar (the third axis is kept).
_TENSIONS = {
    "uniaxial": [(1.0, -0.5, -0.5), (-0.5, 1.0, -0.5), (-0.5, -0.5, 1.0)],
    "biaxial": [(-1.0, 0.5, 0.5), (0.5, -1.0, 0.5), (0.5, 0.5, -1.0)],
    "planar": [(1.0, -1.0, 0.0), (0.0, 1.0, -1.0), (-1.0, 0.0, 1.0)],
}


class Loadings(NamedTuple):
    """Named strain paths on one time grid."""

    names: tuple[str, ...]
    times: Float[np.ndarray, " time"]
    log_strain: Float[np.ndarray, "loading time 3"]


def make_loadings(
    *,
    num_walks: int,
    num_tensions: int,
    num_steps: int,
    time_step: float,
    amplitude: float,
    isochoric: bool = True,
    rng: np.random.Generator,
) -> Loadings:
    """Make walks of root mean square strain `amplitude` at the end, and tension tests that ramp to it and hold."""
    times = time_step * np.arange(num_steps + 1)
    walks = random_walks(num_walks, num_steps, amplitude, isochoric=isochoric, rng=rng)
    names, tests = tension_tests(num_tensions, num_steps, amplitude)
    names = [*(f"walk {i + 1:03d}" for i in range(num_walks)), *names]
    return Loadings(tuple(names), times, np.concatenate([walks, tests]))


def random_walks(
    num: int, num_steps: int, amplitude: float, *, isochoric: bool, rng: np.random.Generator
) -> Float[np.ndarray, "loading time 3"]:
    """Draw Gaussian random walks from zero; isochoric ones have zero trace."""
    steps = rng.standard_normal((num, num_steps, 3))
    if isochoric:
        # The projection keeps two thirds of the variance.
        steps = (steps - steps.mean(-1, keepdims=True)) * np.sqrt(1.5)
    path = np.cumsum(steps * amplitude / np.sqrt(num_steps), axis=1)
    return np.concatenate([np.zeros((num, 1, 3)), path], axis=1)


def tension_tests(num: int, num_steps: int, amplitude: float) -> tuple[list[str], Float[np.ndarray, "loading time 3"]]:
    """Return the first `num` of 18 tests: nine modes, each at full and at half amplitude, ramped in half the time."""
    modes = [(f"{kind} {i + 1}", np.array(mode)) for kind, ways in _TENSIONS.items() for i, mode in enumerate(ways)]
    if num > 2 * len(modes):
        raise ValueError(f"there are {2 * len(modes)} tension tests; found num_tensions={num}; use fewer")
    ramp = np.minimum(np.arange(num_steps + 1) / max(num_steps // 2, 1), 1.0)
    tests = [(name, size * mode) for size in (1.0, 0.5) for name, mode in modes]
    names = [f"{name} {'full' if i < len(modes) else 'half'}" for i, (name, _) in enumerate(tests[:num])]
    paths = [amplitude * ramp[:, None] * mode for _, mode in tests[:num]]
    return names, np.array(paths).reshape(num, num_steps + 1, 3)
