"""Figures of fits in which units differ."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from langenode.plots.general import DATA, OTHER, OURS, new_figure, short

# Of N(0, 1), the 5 and 95 % quantiles.
NORMAL_TAIL = 1.645
MOST_POINTS = 2000
MOST_EFFECTS = 6


class CheckPanel(NamedTuple):
    """One output: readings, and in intervals of time observed and simulated percentiles, (percentile, interval)."""

    label: str
    reading_times: np.ndarray
    readings: np.ndarray
    times: np.ndarray
    observed: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray


def predictive_check(panels: Sequence[CheckPanel], *, time_label: str) -> Any:
    """Plot percentiles of the readings with bands of the simulated ones, one panel per output."""
    columns = min(len(panels), 3)
    figure, axes = new_figure(columns, -(-len(panels) // columns), width=5.6 if columns == 1 else 4.2, height=3.8)
    names = ("5 %", "50 %", "95 %")
    for axis, panel in zip(axes.flat, panels, strict=False):
        axis.plot(panel.reading_times, panel.readings, ".", color=DATA, ms=3, alpha=0.3, label="readings")
        for k, (name, style) in enumerate(zip(names, ("--", "-", "--"), strict=True)):
            colour = OTHER if k == 1 else OURS
            band = f"simulated {name}" if k == 1 else "simulated 5 and 95 %" if k == 0 else None
            axis.fill_between(panel.times, panel.low[k], panel.high[k], color=colour, alpha=0.25, lw=0, label=band)
            line = f"observed {name}" if k == 1 else "observed 5 and 95 %" if k == 0 else None
            axis.plot(panel.times, panel.observed[k], color=colour, ls=style, marker="o", ms=3, lw=1.3, label=line)
        axis.set(xlabel=time_label, ylabel=short(panel.label))
    _hide(axes.flat[len(panels) :])
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=3, loc="outside lower center")
    return figure


class IndividualPanel(NamedTuple):
    """One trajectory: the typical unit and the unit's own prediction with its band over time, and its readings."""

    title: str
    times: np.ndarray
    typical: np.ndarray
    own: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reading_times: np.ndarray
    readings: np.ndarray


def individual_fits(panels: Sequence[IndividualPanel], *, time_label: str, ylabel: str) -> Any:
    """Plot units one by one on common axes."""
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(columns, rows, width=2.6, height=2.1, sharex=True, sharey=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        axis.fill_between(panel.times, panel.low, panel.high, color=OURS, alpha=0.22, lw=0, label="90 % band, readings")
        axis.plot(panel.times, panel.own, color=OURS, lw=1.4, label="the unit's own")
        axis.plot(panel.times, panel.typical, color=OTHER, lw=1.2, ls="--", label="typical unit")
        axis.plot(panel.reading_times, panel.readings, ".", color=DATA, ms=5, label="readings")
        axis.set_title(short(panel.title, 24), fontsize=9)
    _hide(axes.flat[len(panels) :])
    for place, axis in enumerate(axes.flat[: len(panels)]):
        if place + columns >= len(panels):  # the lowest panel of its column
            axis.set_xlabel(time_label)
            axis.tick_params(labelbottom=True)
        if place % columns == 0:
            axis.set_ylabel(short(ylabel, 24))
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    return figure


class ObservedPanel(NamedTuple):
    """Readings of one output with two predictions of each."""

    label: str
    observed: np.ndarray
    typical: np.ndarray
    own: np.ndarray


def observed_predicted(panels: Sequence[ObservedPanel]) -> Any:
    """Plot observed against both predictions; one row per output."""
    figure, axes = new_figure(2, len(panels), width=3.6, height=3.4)
    for row, panel in zip(axes, panels, strict=True):
        values = np.concatenate([panel.observed, panel.typical, panel.own])
        ends = [values.min(), values.max()] if len(values) else [0.0, 1.0]
        thin = slice(None, None, max(1, len(panel.observed) // MOST_POINTS))
        kinds = (("the typical unit", panel.typical, OTHER), ("the unit itself", panel.own, OURS))
        for axis, (name, predicted, colour) in zip(row, kinds, strict=True):
            axis.plot(predicted[thin], panel.observed[thin], ".", color=colour, ms=4, alpha=0.6, label="readings")
            axis.plot(ends, ends, color=DATA, lw=0.8, ls="--", label="equal")
            axis.set(xlabel=f"predicted for {name}", ylabel=f"observed {short(panel.label, 24)}")
            axis.legend(frameon=False, fontsize=8)
    return figure


def error_panels(
    times: np.ndarray, predictions: np.ndarray, errors: np.ndarray, *, time_label: str, prediction: str
) -> Any:
    """Plot errors that should be N(0, 1) against time and prediction, and their histogram."""
    figure, axes = new_figure(3, 1, width=3.8, height=3.2)
    thin = slice(None, None, max(1, len(errors) // MOST_POINTS))
    for axis, (places, name) in zip(axes[0], ((times, time_label), (predictions, prediction)), strict=False):
        axis.plot(places[thin], errors[thin], ".", color=OURS, ms=4, alpha=0.6)
        axis.axhline(0.0, color=DATA, lw=0.8)
        for level in (-NORMAL_TAIL, NORMAL_TAIL):
            axis.axhline(level, color=DATA, lw=0.8, ls=":")
        axis.set(xlabel=short(name), ylabel="NPDE")
    axis = axes[0, 2]
    axis.hist(errors, _edges(errors), density=True, color=OURS, alpha=0.45, label="readings")
    _normal_curve(axis)
    axis.set(xlabel="NPDE", ylabel="density")
    axis.legend(frameon=False, fontsize=8)
    return figure


def effect_panels(effects: np.ndarray, names: Sequence[str], shrinkage: Sequence[float]) -> Any:
    """Plot draws of effects, (draw, effect): densities beside N(0, 1) on the diagonal, pairs below it."""
    names = list(names)[:MOST_EFFECTS]
    num, drawn = len(names), effects[:MOST_POINTS]
    figure, axes = new_figure(num, num, width=max(1.9, 3.6 / num), height=max(1.8, 3.2 / num))
    for i in range(num):
        axes[i, i].hist(effects[:, i], _edges(effects[:, i]), density=True, color=OURS, alpha=0.45, label="draws")
        _normal_curve(axes[i, i])
        told = f", shrinkage {round(100 * shrinkage[i])} %" if i < len(shrinkage) else ""
        axes[i, i].set_title(f"{short(names[i], 16)}{told}", fontsize=8)
        for k in range(num):
            axis = axes[i, k]
            axis.set_xlim(-4.0, 4.0)
            axis.tick_params(labelsize=7)
            if k > i:
                axis.set_visible(False)
            elif k < i:
                axis.plot(drawn[:, k], drawn[:, i], ".", color=OURS, ms=2, alpha=0.3, rasterized=True)
                axis.set_ylim(-4.0, 4.0)
            if i == num - 1:
                axis.set_xlabel(short(names[k], 16), fontsize=8)
        axes[i, 0].set_ylabel("density" if i == 0 else short(names[i], 16), fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return figure


def intervals(names: Sequence[str], estimates: np.ndarray, widths: np.ndarray) -> Any:
    """Plot estimates with their half-widths, each relative to the estimate, one row per parameter."""
    figure, axes = new_figure(1, 1, width=6.4, height=max(1.8, 0.32 * len(names) + 0.9))
    axis, places = axes[0, 0], np.arange(len(names))[::-1]
    scale = np.where(estimates == 0.0, 1.0, np.abs(estimates))
    axis.errorbar(100 * (estimates / scale), places, xerr=100 * widths / scale, fmt="o", ms=4, color=OURS, capsize=3)
    for place, estimate in zip(places, estimates, strict=True):
        axis.annotate(f"{estimate:.4g}", (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axis.set_yticks(places, [short(name, 32) for name in names])
    axis.axvline(0.0, color=DATA, lw=0.8)
    axis.set(xlabel="value relative to the estimate's size [%]; the estimate is on the right")
    return figure


def _edges(values: np.ndarray) -> np.ndarray:
    reach = max(4.0, float(np.abs(values).max(initial=0.0)))
    return np.linspace(-reach, reach, 33)


def _normal_curve(axis: Any) -> None:
    grid = np.linspace(-4.0, 4.0, 161)
    axis.plot(grid, np.exp(-0.5 * grid**2) / np.sqrt(2.0 * np.pi), color=DATA, lw=1.2, label="N(0, 1)")


def _hide(axes: Any) -> None:
    for axis in axes:
        axis.set_visible(False)
