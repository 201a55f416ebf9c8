"""Two weights: their densities, alone and together, beside the exact ones."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode.plots.general import DATA, EXTRA, OTHER, OURS, kernel_density, new_figure

# Heights of contours over the highest point, and how finely and from how many samples an estimate is drawn.
LEVELS, NUM_MESH, MOST_SAMPLES = (0.05, 0.3, 0.7), 80, 1024


class AnalyticLaw(NamedTuple):
    """The exact law of two weights: its moments and its density, a function of points (n, 2)."""

    mean: np.ndarray
    std: np.ndarray
    corr: float
    density: Callable[[np.ndarray], np.ndarray]


def weight_densities(
    ours: np.ndarray,
    drawn: np.ndarray,
    names: Sequence[str],
    *,
    label: str,
    other: np.ndarray | None = None,
    other_label: str = "",
    law: AnalyticLaw | None = None,
) -> Any:
    """Plot 1-D densities on the diagonal, 2-D below (ours) and above (the other method), with principal vectors.

    The joint densities are contours of kernel estimates over the samples; dark ones are those of the exact law.
    """
    figure, axes = new_figure(2, 2, width=3.8, height=3.4)
    sets = [(ours, label, OURS)] + ([(other, other_label, OTHER)] if other is not None else [])
    limits = _common_limits([points for points, _, _ in sets] + [drawn])
    for i in range(2):
        _marginal(axes[i, i], i, sets, drawn, names, limits, law)
    _joint(axes[1, 0], ours, label, OURS, names, limits, law)
    if other is not None:
        # The upper panel has the axes of the lower one, so that the two clouds can be compared by eye.
        _joint(axes[0, 1], other, other_label, OTHER, names, limits, law)
    else:
        _joint(axes[0, 1], drawn, "drawn by the generator", EXTRA, names, limits, law)
    return figure


def _common_limits(sets: Sequence[np.ndarray]) -> np.ndarray:
    points = np.concatenate(sets)
    low, high = np.quantile(points, 0.001, axis=0), np.quantile(points, 0.999, axis=0)
    margin = 0.08 * (high - low) + 1e-9
    return np.stack([low - margin, high + margin])


def _marginal(axis: Any, i: int, sets: Any, drawn: np.ndarray, names: Any, limits: np.ndarray, law: Any) -> None:
    grid = np.linspace(limits[0, i], limits[1, i], 300)
    for points, name, colour in sets:
        axis.plot(grid, kernel_density(points[:, i], grid), color=colour, label=name)
    if law is not None:
        axis.plot(grid, _analytic_marginal(law, i, grid), color=DATA, ls="--", label="analytic")
    elif np.ptp(drawn[:, i]) == 0:
        axis.axvline(drawn[0, i], color=DATA, ls="--", label="truth")
    axis.set(xlabel=names[i], ylabel="density", xlim=(grid[0], grid[-1]))
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=8)


def _analytic_marginal(law: AnalyticLaw, i: int, grid: np.ndarray) -> np.ndarray:
    """Return the marginal, by summing the joint density over the other weight."""
    other = 1 - i
    across = np.linspace(law.mean[other] - 6 * law.std[other], law.mean[other] + 6 * law.std[other], 300)
    points = np.empty((len(grid), len(across), 2))
    points[..., i], points[..., other] = grid[:, None], across[None, :]
    density = law.density(points.reshape(-1, 2)).reshape(len(grid), len(across))
    return np.trapezoid(density, across, axis=1)


def _joint(axis: Any, points: np.ndarray, name: str, colour: str, names: Any, limits: np.ndarray, law: Any) -> None:
    axis.scatter(points[:2048, 0], points[:2048, 1], s=3, color=colour, alpha=0.25, lw=0, rasterized=True)
    _kernel_contours(axis, points[:MOST_SAMPLES], colour, limits)
    _principal_vector(axis, points.mean(0), np.cov(points.T), colour, name)
    if law is not None:
        x, y = (np.linspace(limits[0, i], limits[1, i], 160) for i in range(2))
        mesh = np.stack(np.meshgrid(x, y), axis=-1)
        density = law.density(mesh.reshape(-1, 2)).reshape(len(y), len(x))
        axis.contour(x, y, density / density.max(), levels=LEVELS, colors=DATA, linewidths=0.8)
        cross = law.corr * law.std[0] * law.std[1]
        covariance = np.array([[law.std[0] ** 2, cross], [cross, law.std[1] ** 2]])
        _principal_vector(axis, law.mean, covariance, DATA, "analytic")
    axis.set(xlabel=names[0], ylabel=names[1], xlim=limits[:, 0], ylim=limits[:, 1])
    axis.legend(fontsize=8, framealpha=0.7, edgecolor="none")


def _kernel_contours(axis: Any, points: np.ndarray, colour: str, limits: np.ndarray) -> None:
    """Draw a Gaussian kernel estimate of the joint density, with Scott's width along and across the points."""
    covariance = np.cov(points.T)
    if np.linalg.matrix_rank(covariance) < 2:
        return
    root = np.linalg.cholesky(covariance) * len(points) ** (-1.0 / 6.0)
    x, y = (np.linspace(limits[0, i], limits[1, i], NUM_MESH) for i in range(2))
    mesh = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    at, centres = (np.linalg.solve(root, part.T).T for part in (mesh, points))
    squares = ((at[:, None] - centres) ** 2).sum(-1)
    density = np.exp(-0.5 * squares).mean(1).reshape(NUM_MESH, NUM_MESH)
    axis.contour(x, y, density / density.max(), levels=LEVELS, colors=colour, linewidths=0.8)


def _principal_vector(axis: Any, mean: np.ndarray, covariance: np.ndarray, colour: str, name: str) -> None:
    values, vectors = np.linalg.eigh(covariance)
    reach = 2.5 * np.sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    ends = np.stack([mean - reach, mean + reach])
    axis.plot(ends[:, 0], ends[:, 1], color=colour, ls="--", lw=1.4, label=name)
    axis.plot(*mean, marker="o", ms=8, color=colour, mec="white")
