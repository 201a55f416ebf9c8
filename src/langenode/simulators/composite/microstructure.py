"""Glass spheres in a periodic cube, and the glass content of each voxel."""

from typing import NamedTuple

import numpy as np

from langenode._types import Float

# Random placement jams at 0.38 of the volume, gaps included, in a large cube; slightly later in a small one.
DENSEST_PLACEMENT = 0.5
TRIALS_PER_SPHERE = 1000
MOST_RESTARTS = 100


class Microstructure(NamedTuple):
    """Equal spheres in the unit cube, repeated periodically in all directions."""

    centres: Float[np.ndarray, "sphere 3"]
    radius: float

    @property
    def volume_fraction(self) -> float:
        """The volume fraction of glass."""
        return len(self.centres) * 4.0 / 3.0 * np.pi * self.radius**3


def periodic_distances(
    centres: Float[np.ndarray, "sphere 3"], point: Float[np.ndarray, " 3"]
) -> Float[np.ndarray, " sphere"]:
    """Return the distance of a point to the nearest image of every centre."""
    offsets = centres - point
    return np.linalg.norm(offsets - np.round(offsets), axis=1)


def place_spheres(num_spheres: int, volume_fraction: float, *, seed: int, gap: float = 0.3) -> Microstructure:
    """Place spheres by random sequential addition: uniform centres, rejected if too close; restart when stuck.

    `gap` is the smallest distance between two surfaces as a fraction of the radius: a layer of matrix much thinner than
    a voxel is not resolved, and makes the stiffness depend on the position of the voxels.
    """
    if num_spheres < 1 or not 0.0 < volume_fraction < 1.0 or gap < 0.0:
        raise ValueError(
            "a composite has one sphere or more, a volume fraction between 0 and 1 and no negative gap; found "
            f"{num_spheres}, {volume_fraction} and {gap}; correct them"
        )
    radius = float((volume_fraction / num_spheres * 3.0 / (4.0 * np.pi)) ** (1.0 / 3.0))
    apart = (2.0 + gap) * radius
    rng = np.random.default_rng(seed)
    # A sphere must also keep its distance from its own images, one edge away.
    if apart <= 1.0 and volume_fraction * (1.0 + gap / 2.0) ** 3 < DENSEST_PLACEMENT:
        for _ in range(MOST_RESTARTS):
            centres = _place_once(num_spheres, apart, rng)
            if centres is not None:
                return Microstructure(centres, radius)
    raise ValueError(
        f"spheres must fit into the cube at random without touching; {num_spheres} of volume fraction "
        f"{volume_fraction} and gap {gap} were not placed; lower one of them (0.3 with a gap of 0.3 is about the limit)"
    )


def _place_once(num_spheres: int, apart: float, rng: np.random.Generator) -> Float[np.ndarray, "sphere 3"] | None:
    """Return centres at least `apart` from each other, or None if one of them finds no place."""
    centres = np.empty((0, 3))
    for _ in range(num_spheres * TRIALS_PER_SPHERE):
        centre = rng.random(3)
        if np.all(periodic_distances(centres, centre) >= apart):
            centres = np.vstack([centres, centre])
            if len(centres) == num_spheres:
                return centres
    return None


def glass_fraction(
    microstructure: Microstructure, resolution: int, *, subsamples: int = 10
) -> Float[np.ndarray, "n n n"]:
    """Return the volume fraction of glass in every voxel, from `subsamples`^3 points in each."""
    if resolution < 1 or subsamples < 1:
        raise ValueError(f"voxels and points must be one or more; found {resolution} and {subsamples}; correct them")
    num_points = resolution * subsamples
    points = (np.arange(num_points) + 0.5) / num_points
    inside = np.zeros((num_points,) * 3, bool)
    for centre in microstructure.centres:
        offsets = points[:, None] - centre
        x, y, z = ((offsets - np.round(offsets)) ** 2).T
        inside |= x[:, None, None] + y[:, None] + z <= microstructure.radius**2
    blocks = inside.reshape(resolution, subsamples, resolution, subsamples, resolution, subsamples)
    return blocks.mean((1, 3, 5))
