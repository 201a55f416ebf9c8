"""Loadings of the cube: random walks of its faces or of all six strains, and tests as in a laboratory.

A loading is the logarithmic strain over time, normal to the three faces or with shear: 11, 22, 33 or 11, 22, 33, 23,
13, 12 (components of the tensor). Loadings are isochoric by default: the matrix is 2500 times stiffer in bulk than in
shear, so that an unconstrained walk would produce almost only pressure.
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
    log_strain: Float[np.ndarray, "loading time component"]


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


# Of all that is drawn with six components, these shares are walks normal to the faces, as in the paper, and tests.
NORMAL_SHARE, TEST_SHARE = 1.0 / 3.0, 1.0 / 4.0
# The tests with shear among them, the first ones first.
_TESTS = (
    "biaxial 1",
    "uniaxial 1",
    "shear 12",
    "biaxial 2",
    "uniaxial 3",
    "shear 23",
    "planar 1",
    "shear 13",
    "planar 2",
)


def make_six_component_loadings(
    num: int, *, num_steps: int, time_step: float, amplitude: float, is_normal: bool, rng: np.random.Generator
) -> Loadings:
    """Make isochoric loadings of six components: a third face-normal walks, a quarter tests, the rest with shear.

    With `is_normal` all are without shear, for a cell whose faces stay flat.
    """
    modes = [name for name in _TESTS if not (is_normal and name.startswith("shear"))]
    num_tests = min(int(TEST_SHARE * num), len(modes))
    num_normal = num - num_tests if is_normal else int(NORMAL_SHARE * num)
    normal = random_walks(num_normal, num_steps, amplitude, isochoric=True, rng=rng)
    sheared = tensor_walks(num - num_tests - num_normal, num_steps, amplitude, rng=rng)
    ramp = amplitude * np.minimum(np.arange(num_steps + 1) / max(num_steps // 2, 1), 1.0)
    tests = np.array([ramp[:, None] * _direction(name) for name in modes[:num_tests]]).reshape(-1, num_steps + 1, 6)
    names = [*_numbered("normal walk", len(normal)), *_numbered("walk", len(sheared)), *modes[:num_tests]]
    paths = np.concatenate([np.pad(normal, ((0, 0), (0, 0), (0, 3))), sheared, tests])
    return Loadings(tuple(names), time_step * np.arange(num_steps + 1), paths)


def tensor_walks(
    num: int, num_steps: int, amplitude: float, *, rng: np.random.Generator
) -> Float[np.ndarray, "loading time 6"]:
    """Draw random walks of a traceless tensor that prefer no direction; normal components have the `amplitude`."""
    steps = rng.standard_normal((num, num_steps, 6))
    steps[..., :3] = (steps[..., :3] - steps[..., :3].mean(-1, keepdims=True)) * np.sqrt(1.5)
    # The variance of an isotropic tensor's shear component is three quarters of that of a traceless normal one.
    steps[..., 3:] *= np.sqrt(0.75)
    path = np.cumsum(steps * amplitude / np.sqrt(num_steps), axis=1)
    return np.concatenate([np.zeros((num, 1, 6)), path], axis=1)


def _direction(name: str) -> Float[np.ndarray, " 6"]:
    """Return the strain of a test of unit amplitude; shear has the amplitude as the tensor's component."""
    kind, which = name.split()
    found = np.zeros(6)
    if kind == "shear":
        found[("23", "13", "12").index(which) + 3] = 1.0
    else:
        found[:3] = _TENSIONS[kind][int(which) - 1]
    return found


def _numbered(name: str, num: int) -> list[str]:
    return [f"{name} {i + 1:03d}" for i in range(num)]
