"""Replicates made ready for the population losses, once and on the host: centres, scales and principal directions."""

import jax.numpy as jnp
import numpy as np

from langenode.data import Replicates
from langenode.inference.targets import Observed


def observe(
    replicates: Replicates,
    centre: np.ndarray,
    *,
    sigma: np.ndarray | None = None,
    max_components: int = 16,
    explained: float = 0.999,
) -> Observed:
    """Prepare replicates for the population losses: centre, principal directions, scales.

    `centre` is the mean model's response from each member's start, shaped like the outputs. As many principal
    components are kept as explain the fraction `explained` of the variance, `max_components` at most.
    """
    outputs, mask = np.asarray(replicates.outputs), np.asarray(replicates.mask)
    deviation = np.where(mask, outputs - centre, 0.0)
    scale = _spread_per_output(deviation, mask)
    flat = (deviation / scale).reshape(*outputs.shape[:2], -1)
    maps = [
        principal_maps(flat[:, c], mask.reshape(flat.shape)[:, c], max_components=max_components, explained=explained)
        for c in range(outputs.shape[1])
    ]
    size = max(m.shape[1] for m in maps)
    num_maps = max(m.shape[0] for m in maps)
    projection = np.zeros((num_maps, outputs.shape[1], size, flat.shape[-1]))
    for condition, m in enumerate(maps):
        projection[:, condition, : m.shape[1]] = m
    projection = projection.reshape(num_maps, outputs.shape[1], size, *outputs.shape[2:]) / scale
    kernel = np.broadcast_to(0.1 * scale, outputs.shape[1:]) if sigma is None else sigma
    # A member counts in a condition where at least one of its cells was observed.
    ordered = np.sort(np.where(mask, outputs, np.nan), axis=0)
    fields = (outputs, mask, centre, mask.any((2, 3)), projection, scale, kernel, ordered)
    return Observed(*(jnp.asarray(field) for field in fields))


def _spread_per_output(deviation: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Rms over conditions and times of the between-member spread of each output; 1 where there is none."""
    count = mask.sum(0)
    mean = deviation.sum(0) / np.maximum(count, 1)
    variance = (np.where(mask, deviation - mean, 0.0) ** 2).sum(0) / np.maximum(count - 1, 1)
    # Cells with fewer than two members (padding, for one) have no spread to average.
    spread = np.sqrt(variance.sum((0, 1)) / np.maximum((count >= 2).sum((0, 1)), 1))
    return np.where(spread > 0.0, spread, 1.0)


def principal_maps(
    rows: np.ndarray, mask: np.ndarray, *, max_components: int, explained: float, num_sweeps: int = 30
) -> np.ndarray:
    """Maps from rows to whitened principal scores, (1 or rows, component, cell).

    Where cells are missing the principal directions come from filling them in by the current low-rank estimate, over
    and over, and a row's scores are the expected ones given its observed cells: each row has its own map. Rows without
    an observed cell (absent members) and cells that no row observes (padding) take no part, as if they were not there.
    """
    present, seen = mask.any(1), mask.any(0)
    if not present.any():
        return np.zeros((1, 1, rows.shape[1]))
    inside = np.ix_(present, seen)
    inner = _maps_of_present(rows[inside], mask[inside], max_components, explained, num_sweeps)
    size = inner.shape[1]
    if inner.shape[0] == 1:
        maps = np.zeros((1, size, rows.shape[1]))
        maps[..., seen] = inner
    else:
        maps = np.zeros((rows.shape[0], size, rows.shape[1]))
        maps[np.ix_(present, np.arange(size), seen)] = inner
    return maps


def _maps_of_present(
    rows: np.ndarray, mask: np.ndarray, max_components: int, explained: float, num_sweeps: int
) -> np.ndarray:
    """The same where every row and every cell is observed somewhere."""
    filled = np.where(mask, rows, 0.0)
    mean = filled.sum(0) / np.maximum(mask.sum(0), 1)
    filled = np.where(mask, rows, mean)
    values, directions = _principal(filled, max_components, explained)
    if mask.all():
        return (directions / np.sqrt(values)[:, None])[None]
    for _ in range(num_sweeps):
        scores = (filled - mean) @ directions.T
        filled = np.where(mask, rows, mean + scores @ directions)
        mean = filled.mean(0)
        values, directions = _principal(filled, max_components, explained)
    residual = filled - mean - (filled - mean) @ directions.T @ directions
    noise = max(float((residual**2).mean()), 1e-6 * float(values[0]))
    maps = np.empty((rows.shape[0], *directions.shape))
    for row in range(rows.shape[0]):
        seen = directions * mask[row]
        precision = seen @ seen.T / noise + np.diag(1.0 / values)
        maps[row] = np.linalg.solve(precision, seen) / noise / np.sqrt(values)[:, None]
    return maps


def _principal(rows: np.ndarray, max_components: int, explained: float) -> tuple[np.ndarray, np.ndarray]:
    """Variances and directions of the leading principal components."""
    centred = rows - rows.mean(0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    values = singular**2 / max(len(rows) - 1, 1)
    total = values.sum()
    if total <= 0.0:  # identical rows: one arbitrary direction, at unit scale
        return np.ones(1), directions[:1]
    keep = int(np.searchsorted(np.cumsum(values) / total, explained)) + 1
    keep = min(keep, max_components, int((values > 1e-12 * values[0]).sum()))
    return values[:keep], directions[:keep]
