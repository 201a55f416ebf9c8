"""Figures of material laws: cubes with spheres, and means with spreads of data and predictions."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode.plots.general import DATA, EXTRA, OTHER, OURS, new_figure

LIGHT = "#56B4E9"
# Panels whose ranges differ by more than this factor have axes of their own.
MOST_APART = 4.0
COMPONENTS = (OURS, OTHER, EXTRA, "#CC79A7", "#E69F00", LIGHT)


def sphere_cubes(cubes: Mapping[str, tuple[np.ndarray, float]]) -> Any:
    """Plot periodic unit cubes with spheres, given by centres (sphere, 3) and a radius."""
    figure, axes = new_figure(len(cubes), 1, width=3.0, height=3.0, subplot_kw={"projection": "3d"})
    for axis, (name, (centres, radius)) in zip(axes[0], cubes.items(), strict=True):
        for centre in _images(centres, radius):
            axis.plot_surface(*_sphere(centre, radius), color=OURS, lw=0, antialiased=False, shade=True)
            _draw_caps(axis, centre, radius)
        _draw_edges(axis)
        axis.set(xlim=(0, 1), ylim=(0, 1), zlim=(0, 1), box_aspect=(1, 1, 1))
        axis.set_axis_off()
        axis.set_title(name, fontsize=10)
    return figure


def _images(centres: np.ndarray, radius: float) -> np.ndarray:
    """Return the centres and those of their periodic images whose spheres reach into the cube."""
    shifts = np.stack(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 3), axis=-1).reshape(-1, 3)
    images = (centres[:, None] + shifts).reshape(-1, 3)
    outside = np.maximum(np.maximum(-images, images - 1.0), 0.0)
    return images[(outside**2).sum(1) < radius**2]


def _sphere(centre: np.ndarray, radius: float) -> np.ndarray:
    """Return points of a sphere's surface, without those outside the cube."""
    u, v = np.meshgrid(np.linspace(0.0, 2.0 * np.pi, 49), np.linspace(0.0, np.pi, 25))
    direction = np.stack([np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v)])
    points = centre[:, None, None] + radius * direction
    inside = np.all((points >= -0.01) & (points <= 1.01), axis=0)
    return np.where(inside, points, np.nan)


def _draw_caps(axis: Any, centre: np.ndarray, radius: float) -> None:
    """Draw the discs in which a sphere meets the cube's faces: without them it would look hollow."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    angle = np.linspace(0.0, 2.0 * np.pi, 97)
    for normal in range(3):
        for face in (0.0, 1.0):
            height = abs(centre[normal] - face)
            if height >= radius:
                continue
            reach = np.sqrt(radius**2 - height**2)
            disc = np.empty((len(angle), 3))
            others = [k for k in range(3) if k != normal]
            disc[:, normal] = face
            for k, wave in zip(others, (np.cos(angle), np.sin(angle)), strict=True):
                disc[:, k] = np.clip(centre[k] + reach * wave, 0.0, 1.0)
            axis.add_collection3d(Poly3DCollection([disc], facecolor=LIGHT, edgecolor=OURS, lw=0.3))


def _draw_edges(axis: Any) -> None:
    corners = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1]), axis=-1).reshape(-1, 3)
    for i, start in enumerate(corners):
        for end in corners[i + 1 :]:
            if np.abs(start - end).sum() == 1:
                axis.plot(*np.stack([start, end], axis=1), color=DATA, lw=0.8)


# The corners of a voxel's faces, in order around each, by the face's normal and side; corners count as binary numbers.
_FACES = {
    (0, 0): (0, 1, 3, 2),
    (0, 1): (4, 5, 7, 6),
    (1, 0): (0, 1, 5, 4),
    (1, 1): (2, 3, 7, 6),
    (2, 0): (0, 2, 6, 4),
    (2, 1): (1, 3, 7, 5),
}


def deformed_cubes(cubes: Mapping[str, tuple[np.ndarray, np.ndarray]], *, label: str) -> Any:
    """Plot deformed cubes of N^3 voxels: the positions of their corners (voxel, 8, 3), and a positive value of each.

    Colours are logarithmic from the smallest to the largest value of all cubes; the undeformed cube is outlined.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    shown = {name: _surface(*cube) for name, cube in cubes.items()}
    values = np.concatenate([value for _, value in shown.values()])
    norm, colours = LogNorm(values.min(), values.max()), colormaps["viridis"]
    figure, axes = new_figure(len(cubes), 1, width=3.0, height=3.0, subplot_kw={"projection": "3d"})
    for axis, (name, (faces, value)) in zip(axes[0], shown.items(), strict=True):
        axis.add_collection3d(Poly3DCollection(faces, facecolor=colours(norm(value)), edgecolor="k", lw=0.1))
        _draw_edges(axis)
        ends = np.concatenate([faces.reshape(-1, 3), np.zeros((1, 3)), np.ones((1, 3))])
        middle, half = (ends.max(0) + ends.min(0)) / 2.0, np.ptp(ends, axis=0).max() / 2.0
        axis.set(**{f"{x}lim": (m - half, m + half) for x, m in zip("xyz", middle, strict=True)}, box_aspect=(1, 1, 1))
        axis.set_axis_off()
        axis.set_title(name, fontsize=10)
    figure.colorbar(ScalarMappable(norm, colours), ax=list(axes[0]), label=label, shrink=0.7)
    return figure


def _surface(corners: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the three faces of a cube that a viewer sees, as quadrilaterals, and their values."""
    num = round(len(values) ** (1.0 / 3.0))
    places = np.indices((num,) * 3).reshape(3, -1)
    faces, found = [], []
    for normal, side in ((0, 1), (1, 0), (2, 1)):
        is_there = places[normal] == side * (num - 1)
        faces.append(corners[is_there][:, _FACES[normal, side]])
        found.append(values[is_there])
    return np.concatenate(faces), np.concatenate(found)


class SpreadPanel(NamedTuple):
    """Points: mean and standard deviation of the data, and of the predictions (no spread for a point fit).

    `realisations`, (sample, point), are single predictions.
    """

    mean: np.ndarray
    std: np.ndarray
    predicted: np.ndarray
    predicted_std: np.ndarray | None
    realisations: np.ndarray | None = None

    def thin(self, keep: slice | np.ndarray) -> "SpreadPanel":
        """Return some of the points."""
        spread, single = (None if x is None else x[..., keep] for x in (self.predicted_std, self.realisations))
        return SpreadPanel(self.mean[keep], self.std[keep], self.predicted[keep], spread, single)


def spread_parity(panels: Mapping[str, SpreadPanel], *, label: str, inset: bool, most: int = 1500) -> Any:
    """Plot predicted against observed means with one standard deviation; an inset shows the region near zero.

    Below, where predictions have a spread: predicted against observed standard deviations. The frame is that of the
    data and of most predictions: single ones may lie outside.
    """
    has_spread = any(panel.predicted_std is not None for panel in panels.values())
    frames = {name: _frame(panel) for name, panel in panels.items()}
    has_one_range = _are_alike([float(np.ptp(panel.mean)) for panel in panels.values()])
    shares = has_one_range and _are_alike([high - low for low, high in frames.values()])
    shared: dict[str, Any] = {"sharex": "row" if has_one_range else False, "sharey": "row" if shares else False}
    figure, axes = new_figure(len(panels), 1 + has_spread, width=3.9, height=3.7, **shared)
    if has_spread:
        for axis, panel in zip(axes[1], panels.values(), strict=True):
            _spreads(axis, panel, most)
            axis.set_xlabel(f"std of the data, {label}")
        for axis in axes[1]:  # once all are drawn: a limit that is set leaves out what a panel beside it adds
            axis.set(xlim=(0, axis.get_xlim()[1]), ylim=(0, axis.get_ylim()[1]))
        axes[1, 0].set_ylabel(f"std of the prediction, {label}")
    for axis, (name, panel) in zip(axes[0], panels.items(), strict=True):
        _parity(axis, panel, most)
        axis.set_title(name, fontsize=10)
        axis.set_xlabel(f"data, {label}")
        low, high = zip(*frames.values(), strict=True) if shares else ([frames[name][0]], [frames[name][1]])
        axis.set_ylim(min(low), max(high))
        if inset:
            _near_zero(axis, panel, most)
    axes[0, 0].set_ylabel(f"prediction, {label}")
    for axis in axes.flat:
        axis.locator_params(axis="x", nbins=4)
        axis.locator_params(axis="y", nbins=5)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=len(labels), loc="outside upper center")
    return figure


def _are_alike(reaches: list[float]) -> bool:
    return max(reaches) < MOST_APART * min(reaches)


def _frame(panel: SpreadPanel) -> tuple[float, float]:
    """Return the range of the data, of the predictions and of all but a thousandth of the realisations."""
    spread = 0.0 if panel.predicted_std is None else panel.predicted_std
    parts = [panel.mean - panel.std, panel.mean + panel.std, panel.predicted - spread, panel.predicted + spread]
    parts += [] if panel.realisations is None else [np.quantile(panel.realisations, [0.001, 0.999])]
    low, high = min(part.min() for part in parts), max(part.max() for part in parts)
    margin = 0.04 * (high - low)
    return float(low - margin), float(high + margin)


def _parity(axis: Any, panel: SpreadPanel, most: int) -> None:
    panel = panel.thin(slice(None, None, max(1, len(panel.mean) // most)))
    if panel.realisations is not None:
        across = np.broadcast_to(panel.mean, panel.realisations.shape)
        axis.plot(
            across.ravel(),
            panel.realisations.ravel(),
            ",",
            color=LIGHT,
            alpha=0.5,
            rasterized=True,
            zorder=1,
        )
        axis.plot([], [], ".", color=LIGHT, ms=5, label="realisations")  # a pixel cannot be seen in a legend
    options = {"fmt": "none", "lw": 0.7, "alpha": 0.45}
    axis.errorbar(panel.mean, panel.predicted, xerr=panel.std, ecolor=OTHER, label="data ± std", **options)
    if panel.predicted_std is not None:
        axis.errorbar(
            panel.mean, panel.predicted, yerr=panel.predicted_std, ecolor=OURS, label="prediction ± std", **options
        )
    axis.plot(panel.mean, panel.predicted, ".", color=DATA, ms=1.5, label="means")
    axis.axline((0.0, 0.0), slope=1.0, color=DATA, lw=0.7, ls="--")


def _spreads(axis: Any, panel: SpreadPanel, most: int) -> None:
    assert panel.predicted_std is not None
    panel = panel.thin(slice(None, None, max(1, len(panel.mean) // most)))
    axis.plot(panel.std, panel.predicted_std, ".", color=OURS, ms=2, alpha=0.6)
    axis.axline((0.0, 0.0), slope=1.0, color=DATA, lw=0.7, ls="--")


def _near_zero(axis: Any, panel: SpreadPanel, most: int) -> None:
    reach = 0.12 * np.abs(panel.mean).max()
    if panel.predicted_std is not None and np.median(panel.predicted_std) > reach:
        return  # the bars would fill the whole of it
    inner = axis.inset_axes((0.56, 0.08, 0.4, 0.4))
    _parity(inner, panel.thin(np.abs(panel.mean) < reach), most // 3)
    inner.set(xlim=(-reach, reach), ylim=(-reach, reach))
    inner.tick_params(labelsize=6)
    inner.locator_params(nbins=3)
    axis.indicate_inset_zoom(inner, edgecolor=DATA, lw=0.6)


PREDICTION = "prediction"


class SpreadPath(NamedTuple):
    """One loading: mean and standard deviation of the data over time, (time, out), and of the predictions."""

    title: str
    times: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    predicted: np.ndarray
    predicted_std: np.ndarray | None


def spread_paths(panels: Sequence[SpreadPath], names: Sequence[str], *, time_label: str, output_label: str) -> Any:
    """Plot mean and spread over time, one colour per component; predictions are dashed with a grey spread.

    Below, where predictions have a spread: the two standard deviations alone.
    """
    has_spread = panels[0].predicted_std is not None
    figure, axes = new_figure(len(panels), 1 + has_spread, width=4.2, height=3.0 if has_spread else 3.6, sharex="col")
    if has_spread:
        _spreads_over_time(axes[1], panels, len(names))
        axes[1, 0].set_ylabel(f"std of {output_label}")
    for axis in axes[-1]:
        axis.set_xlabel(time_label)
    for axis, panel in zip(axes[0], panels, strict=True):
        for k, (name, colour) in enumerate(zip(names, COMPONENTS, strict=False)):
            if panel.predicted_std is not None:
                grey = {"color": DATA, "alpha": 0.18, "lw": 0}
                _shade(axis, panel.times, panel.predicted[:, k], panel.predicted_std[:, k], grey)
            _shade(axis, panel.times, panel.mean[:, k], panel.std[:, k], {"color": colour, "alpha": 0.4, "lw": 0})
            axis.plot(panel.times, panel.mean[:, k], color=colour, lw=1.2, label=f"{name}, data")
            axis.plot(panel.times, panel.predicted[:, k], color=DATA, lw=1.0, ls="--", label=None if k else PREDICTION)
        axis.set_title(panel.title, fontsize=10)
    axes[0, 0].set_ylabel(output_label)
    entries = dict(zip(*reversed(axes[0, 0].get_legend_handles_labels()), strict=True))
    entries[PREDICTION] = entries.pop(PREDICTION)  # after the components
    options = {"frameon": False, "fontsize": 8, "ncols": len(entries), "loc": "outside lower center"}
    figure.legend(list(entries.values()), list(entries), **options)
    return figure


def _spreads_over_time(axes: Any, panels: Sequence[SpreadPath], num: int) -> None:
    for axis, panel in zip(axes, panels, strict=True):
        assert panel.predicted_std is not None
        for k, colour in zip(range(num), COMPONENTS, strict=False):
            axis.plot(panel.times, panel.std[:, k], color=colour, lw=1.2)
            axis.plot(panel.times, panel.predicted_std[:, k], color=colour, lw=1.2, ls="--")
        axis.set_ylim(bottom=0)


def _shade(axis: Any, times: np.ndarray, mean: np.ndarray, std: np.ndarray, options: Mapping[str, Any]) -> None:
    axis.fill_between(times, mean - std, mean + std, **options)


def group_dependence(matrices: Mapping[str, tuple[np.ndarray, float]]) -> Any:
    """Plot distance correlations in each group of weights, and histograms with the level of independent weights."""
    figure, axes = new_figure(len(matrices) + 1, 1)
    image, last = None, axes[0, -1]
    for axis, (name, (matrix, independence)), colour in zip(axes[0], matrices.items(), COMPONENTS, strict=False):
        image = axis.imshow(matrix, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
        axis.set(xlabel="weight", ylabel="weight")
        axis.locator_params(integer=True)
        axis.set_title(name, fontsize=10)
        pairs = matrix[np.triu_indices(len(matrix), k=1)]
        last.hist(pairs, np.linspace(0, 1, 41), density=True, color=colour, alpha=0.5, label=name)
        last.axvline(independence, color=colour, ls="--", lw=1.0)
    figure.colorbar(image, ax=list(axes[0, :-1]), label="distance correlation")
    last.set(xlabel="distance correlation", ylabel="density", xlim=(0, 1))
    last.set_title("dashed: independent weights", fontsize=9)
    last.legend(frameon=False, fontsize=8)
    return figure
