"""Figures that compare methods."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np

from langenode.plots.general import DATA, OTHER, OURS, new_figure

COLUMNS = 5
# A band wider than this multiple of the reference's is clipped, so that it does not compress the others.
MOST_BANDS = 3.0


def method_bands(
    times: np.ndarray,
    panels: Mapping[str, np.ndarray],
    observed: np.ndarray,
    reference: np.ndarray,
    *,
    name: str,
    ylabel: str,
) -> Any:
    """Plot readings with the reference mean, then for each set of samples, `(sample, time)`, its 90 % band and mean.

    Bands are narrow compared with the signal, so the reference mean is subtracted in all but the first panel.
    """
    columns = min(COLUMNS, len(panels) + 1)
    rows = -(-(len(panels) + 1) // columns)
    figure, axes = new_figure(columns, rows, width=2.2, height=1.8, sharex=True)
    centre = reference.mean(0)
    ends = np.quantile(reference, [0.05, 0.95], axis=0, method="weibull") - centre
    bands = {title: np.quantile(x, [0.05, 0.95], axis=0, method="weibull") - centre for title, x in panels.items()}
    reach = min(1.15 * max(np.abs(band).max() for band in bands.values()), MOST_BANDS * np.abs(ends).max())
    first, *others = axes.flat
    first.plot(times, observed, ".", color=DATA, ms=2.5, alpha=0.5, lw=0, label="held-out readings")
    first.plot(times, centre, color=OTHER, lw=1.0)
    first.set_title("a held-out trajectory", fontsize=8)
    first.set_ylabel(_plain(ylabel), fontsize=8)
    for axis, (title, samples) in zip(others, panels.items(), strict=False):
        axis.fill_between(times, *bands[title], color=OURS, alpha=0.4, lw=0, label="90 % band of the model")
        axis.plot(times, samples.mean(0) - centre, color=OURS, lw=1.2, label="mean")
        axis.plot(times, ends.T, color=OTHER, lw=0.9, label=[f"90 % band of {_plain(name)}", None])
        axis.axhline(0.0, color=OTHER, lw=0.5)
        axis.set_title(_plain(title), fontsize=8)
        axis.set_ylim(-reach or None, reach or None)
    _trim(axes, len(panels) + 1, f"{_plain(ylabel)} minus mean")
    figure.supxlabel("t", fontsize=8)
    handles = [*zip(*first.get_legend_handles_labels(), strict=True)]
    handles += [*zip(*others[0].get_legend_handles_labels(), strict=True)]
    figure.legend(*zip(*handles, strict=True), frameon=False, fontsize=8, ncols=4, loc="outside upper center")
    return figure


def _plain(text: str) -> str:
    """Escape dollar signs, which Matplotlib reads as the start of a formula."""
    return text.replace("$", r"\$")


def _trim(axes: Any, num: int, ylabel: str) -> None:
    """Label only the outer panels (the last of a column may be in any row); hide empty ones."""
    columns = axes.shape[1]
    for index, axis in enumerate(axes.flat):
        axis.set_visible(index < num)
        axis.tick_params(labelsize=7)
        is_last = index + columns >= num
        axis.tick_params(labelbottom=is_last)
        if index == 0:
            continue
        if index % columns == 0 or index == 1:  # the first panel has an axis of its own
            axis.set_ylabel(ylabel, fontsize=8)
        else:
            axis.tick_params(labelleft=False)


def accuracy_against_time(found: Mapping[str, np.ndarray], *, ylabel: str) -> Any:
    """Plot points `(seed, [seconds, accuracy])` of each method on logarithmic axes, joined and labelled."""
    import matplotlib as mpl

    figure, axes = new_figure(1, 1, width=7.2, height=4.6)
    axis = axes[0, 0]
    everything = np.concatenate(list(found.values()))
    is_log = everything[:, 1].min() > 0.0
    axis.set(xscale="log", yscale="log" if is_log else "linear", xlabel="seconds of the fit", ylabel=ylabel)
    colours = mpl.colormaps["viridis"](np.linspace(0.0, 0.85, len(found)))
    for (_, values), colour, marker in zip(found.items(), colours, cycle("os^Dv<>P"), strict=False):
        order = np.argsort(values[:, 1])
        axis.plot(*values[order].T, lw=0.7, alpha=0.5, color=colour)
        axis.plot(values[:, 0], values[:, 1], ls="", marker=marker, ms=5.5, color=colour, mec="white", mew=0.5)
    axis.margins(0.12)
    axis.grid(True, which="major", lw=0.4, alpha=0.5)
    _plain_ticks(axis)
    middle = {name: values[np.argsort(values[:, 1])[(len(values) - 1) // 2]] for name, values in found.items()}
    _label(figure, axis, middle, everything, colours)
    return figure


def _plain_ticks(axis: Any) -> None:
    """Label ticks 1, 2, 5, 10, ... instead of powers, where the axis spans a few decades."""
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
    """Put names near their points, each at the nearest place that is free of names and points."""
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
    """Return the nearest offset at which a box meets no other and stays inside the frame."""
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
    return bool(one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3])
