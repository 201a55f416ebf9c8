"""Principal components of trajectories: maps to whitened scores, each weighted by what its component carries.

The components are those of the data, or those of the data within the span of what the model can do. With few noisy
trajectories the former follow the noise: the variance along a direction that was chosen for its variance is too large,
and a population fitted to it too wide.
"""

from typing import NamedTuple

import numpy as np

from langenode._types import Bool, Float

# What a component of pure noise counts as carrying, of its variance.
NOISE_SHARE = 0.01
# Directions that the model's trajectories have in common up to this share of their squared lengths are its span.
SPAN = 0.99999


class Components(NamedTuple):
    """How principal components are chosen, and how much each counts in a distance between whitened scores.

    As many are kept as explain the fraction `explained` of the variance, `most` at most. `span` are trajectories of the
    model, (sample, cell): components are then sought within their span.

    Whitening alone counts all components alike, and one with 0.3 % of the variance, the curvature of an otherwise
    straight family of trajectories, can make a fit lose a mode of the population. One of variance v has the weight

        sqrt(c / (v + floor v_1)),   c = v - s^2 where v > e s^2, else v / 100,   e = (1 + sqrt(p / n))^2,

    relative to the largest of them: `floor` is a share of the leading variance v_1, `noise` the variances of the
    cells' measurement noise, s^2 their mean along the component, and e, the edge of the Marchenko-Pastur distribution
    for n rows in p dimensions, what the largest component of pure noise reaches. Components of pure noise keep a small
    weight: the model's spread must not exceed theirs.
    """

    most: int = 16
    explained: float = 0.999
    floor: float = 0.0
    noise: Float[np.ndarray, " cell"] | None = None
    span: Float[np.ndarray, "sample cell"] | None = None

    def at(self, cells: Bool[np.ndarray, " cell"]) -> "Components":
        """The same for some of the cells."""
        noise, span = (part if part is None else part[..., cells] for part in (self.noise, self.span))
        return self._replace(noise=noise, span=span)

    def basis(self) -> Float[np.ndarray, "component cell"] | None:
        """An orthonormal basis of the model's span; None for that of all cells.

        Trajectories count by their direction alone: some may lie far out.
        """
        if self.span is None:
            return None
        rows = self.span[np.isfinite(self.span).all(1)]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = (rows / np.where(lengths > 0.0, lengths, 1.0))[lengths[:, 0] > 0.0]
        if not len(rows):
            return None
        _, singular, directions = np.linalg.svd(rows, full_matrices=False)
        share = np.cumsum(singular**2) / (singular**2).sum()
        return directions[: min(int(np.searchsorted(share, SPAN)) + 1, self.most)]

    def principal(self, rows: np.ndarray, basis: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Variances and directions of the leading principal components."""
        centred = rows - rows.mean(0)
        _, singular, directions = np.linalg.svd(centred if basis is None else centred @ basis.T, full_matrices=False)
        directions = directions if basis is None else directions @ basis
        values = singular**2 / max(len(rows) - 1, 1)
        total = values.sum()
        if total <= 0.0:  # identical rows: one arbitrary direction, at unit scale
            return np.ones(1), directions[:1]
        keep = int(np.searchsorted(np.cumsum(values) / total, self.explained)) + 1
        keep = min(keep, self.most, int((values > 1e-12 * values[0]).sum()))
        return values[:keep], directions[:keep]

    def weights(
        self, values: Float[np.ndarray, " component"], directions: Float[np.ndarray, "component cell"], ratio: float
    ) -> Float[np.ndarray, " component"]:
        """Weights of components with these variances and directions, the largest one 1; `ratio` is p / n."""
        carried = values
        if self.noise is not None:
            noise = directions**2 @ self.noise
            edge = (1.0 + np.sqrt(ratio)) ** 2
            carried = np.where(values > edge * noise, values - noise, NOISE_SHARE * values)
        weights = np.sqrt(carried / (values + self.floor * values[0]))
        return weights / weights.max()


def principal_maps(
    rows: np.ndarray, mask: np.ndarray, components: Components, *, num_sweeps: int = 30
) -> Float[np.ndarray, "map component cell"]:
    """Maps from rows to weighted whitened principal scores, (1 or rows, component, cell).

    Where cells are missing the principal directions come from filling them in by the current low-rank estimate, over
    and over, and a row's scores are the expected ones given its observed cells: each row has its own map. Rows without
    an observed cell (absent members) and cells that no row observes (padding) take no part, as if they were not there.
    """
    present, seen = mask.any(1), mask.any(0)
    if not present.any():
        return np.zeros((1, 1, rows.shape[1]))
    inside = np.ix_(present, seen)
    inner = _maps_of_present(rows[inside], mask[inside], components.at(np.asarray(seen)), num_sweeps)
    size = inner.shape[1]
    if inner.shape[0] == 1:
        maps = np.zeros((1, size, rows.shape[1]))
        maps[..., seen] = inner
    else:
        maps = np.zeros((rows.shape[0], size, rows.shape[1]))
        maps[np.ix_(present, np.arange(size), seen)] = inner
    return maps


def _maps_of_present(rows: np.ndarray, mask: np.ndarray, components: Components, num_sweeps: int) -> np.ndarray:
    """The same where every row and every cell is observed somewhere."""
    filled = np.where(mask, rows, 0.0)
    mean = filled.sum(0) / np.maximum(mask.sum(0), 1)
    filled = np.where(mask, rows, mean)
    basis = components.basis()
    ratio = (rows.shape[1] if basis is None else len(basis)) / len(rows)
    values, directions = components.principal(filled, basis)
    if mask.all():
        weights = components.weights(values, directions, ratio)
        return (directions / np.sqrt(values)[:, None] * weights[:, None])[None]
    for _ in range(num_sweeps):
        scores = (filled - mean) @ directions.T
        filled = np.where(mask, rows, mean + scores @ directions)
        mean = filled.mean(0)
        values, directions = components.principal(filled, basis)
    residual = filled - mean - (filled - mean) @ directions.T @ directions
    noise = max(float((residual**2).mean()), 1e-6 * float(values[0]))
    maps = np.empty((rows.shape[0], *directions.shape))
    for row in range(rows.shape[0]):
        seen = directions * mask[row]
        precision = seen @ seen.T / noise + np.diag(1.0 / values)
        maps[row] = np.linalg.solve(precision, seen) / noise / np.sqrt(values)[:, None]
    return maps * components.weights(values, directions, ratio)[:, None]
