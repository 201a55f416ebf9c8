"""Figures of many methods beside each other."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from langenode.plots.general import DATA, OTHER, OURS, new_figure

COLUMNS = 5


def method_bands(
    times: np.ndarray,
    panels: Mapping[str, np.ndarray],
    observed: np.ndarray,
    reference: np.ndarray | None,
    *,
    ylabel: str,
) -> Any:
    """Small panels of `(sample, time)`: the 90 % band and mean of each, readings, and the reference's as lines."""
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(columns, rows, width=2.1, height=1.75, sharex=True, sharey=True)
    ends = None if reference is None else np.quantile(reference, [0.05, 0.5, 0.95], axis=0, method="weibull")
    for axis, (title, samples) in zip(axes.flat, panels.items(), strict=False):
        low, high = np.quantile(samples, [0.05, 0.95], axis=0, method="weibull")
        axis.plot(times, observed, ".", color=DATA, ms=2.0, alpha=0.35, lw=0, label="held-out readings")
        axis.fill_between(times, low, high, color=OURS, alpha=0.45, lw=0, label="90 % of the model")
        axis.plot(times, samples.mean(0), color=OURS, lw=1.0, label="mean")
        if ends is not None:
            axis.plot(times, ends.T, color=OTHER, lw=0.7, label=["reference", None, None])
        axis.set_title(title.replace("$", r"\$"), fontsize=8)
        axis.tick_params(labelsize=7)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for column in range(columns):  # under the last panel of each column, which need not be in the last row
        last = axes[max(row for row in range(rows) if row * columns + column < len(panels)), column]
        last.set_xlabel("t", fontsize=8)
        last.tick_params(labelbottom=True)
    for axis in axes[:, 0]:
        axis.set_ylabel(ylabel.replace("$", r"\$"), fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    return figure


def accuracy_against_time(found: Mapping[str, np.ndarray], *, ylabel: str) -> Any:
    """Points `(seed, [seconds, accuracy])` of each method on logarithmic axes, labelled beside their medians."""
    import matplotlib as mpl

    figure, axes = new_figure(1, 1, width=7.2, height=4.6)
    axis = axes[0, 0]
    everything = np.concatenate(list(found.values()))
    is_log = everything[:, 1].min() > 0.0
    axis.set(xscale="log", yscale="log" if is_log else "linear", xlabel="seconds of the fit", ylabel=ylabel)
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(found)))
    for (_, values), colour, marker in zip(found.items(), colours, cycle("os^Dv<>P"), strict=False):
        axis.plot(values[:, 0], values[:, 1], ls="", marker=marker, ms=5.5, color=colour, mec="white", mew=0.5)
    axis.margins(0.12)
    axis.grid(True, which="major", lw=0.4, alpha=0.5)
    _plain_ticks(axis)
    _label(figure, axis, {name: np.median(values, axis=0) for name, values in found.items()}, everything, colours)
    return figure


def _plain_ticks(axis: Any) -> None:
    """1, 2, 5, 10, ... in place of powers, where the axis spans a few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for one in (axis.xaxis, axis.yaxis):
        if one.get_scale() == "log":
            low, high = one.get_view_interval()
            subs = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
            one.set_major_locator(LogLocator(subs=subs))
            one.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            one.set_minor_locator(NullLocator())
            one.set_minor_formatter(NullFormatter())


def _label(figure: Any, axis: Any, places: Mapping[str, np.ndarray], points: np.ndarray, colours: Any) -> None:
    """Names near their points, each at the first place around that is free of names and points."""
    figure.canvas.draw()
    frame = axis.get_window_extent()
    taken = [_around(point, 5.0, 5.0) for point in axis.transData.transform(points)]
    scale = figure.dpi / 72.0
    for (name, place), colour in zip(places.items(), colours, strict=True):
        text = axis.annotate(
            name, place, xytext=(0, 0), textcoords="offset points", fontsize=8, va="center", ha="center"
        )
        box = text.get_window_extent()
        centre = axis.transData.transform(place)
        half = np.array([box.width, box.height]) / 2.0 + 1.5
        offset = _free_place(centre, half, taken, frame, scale)
        text.set_position(tuple(offset / scale))
        taken.append(_around(centre + offset, *half))
        if np.hypot(*offset) > 2.2 * half[1] + half[0]:
            axis.annotate(
                "",
                place,
                xytext=tuple(offset / scale),
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "lw": 0.6, "color": colour, "shrinkA": 8, "shrinkB": 3},
            )


def _around(centre: np.ndarray, width: float, height: float) -> tuple[float, float, float, float]:
    return (centre[0] - width, centre[1] - height, centre[0] + width, centre[1] + height)


def _free_place(centre: np.ndarray, half: np.ndarray, taken: list, frame: Any, scale: float) -> np.ndarray:
    """The nearest offset at which a box meets no other and stays inside the frame."""
    angles = np.deg2rad([0, 180, 90, 270, 30, 330, 150, 210, 60, 300, 120, 240])
    for reach in np.arange(6.0, 150.0, 6.0) * scale:
        for angle in angles:
            direction = np.array([np.cos(angle), np.sin(angle)])
            offset = direction * (reach + np.abs(direction) * half)
            box = _around(centre + offset, *half)
            is_inside = frame.x0 < box[0] and box[2] < frame.x1 and frame.y0 < box[1] and box[3] < frame.y1
            if is_inside and not any(_meet(box, other) for other in taken):
                return offset
    return np.array([0.0, half[1] + 6.0 * scale])


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
