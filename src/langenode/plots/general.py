"""Figures shared by all demonstrations."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

# The colours of Okabe and Ito, safe for most colour blindness: data black, our method blue, the other vermilion.
DATA, OURS, OTHER, EXTRA = "#000000", "#0072B2", "#D55E00", "#009E73"


def new_figure(columns: int, rows: int, *, width: float = 4.0, height: float = 3.2, **options: Any) -> Any:
    """Return a figure and its axes, made without pyplot so that no global state or display is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def kernel_density(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Return a Gaussian kernel estimate with Silverman's width: fast and good enough for display."""
    ordered, quarter = np.sort(values), max(1, len(values) // 4)
    # The shortest quarter of the data gives the width of the narrowest mode, which the overall spread would smear.
    narrowest = np.min(ordered[quarter:] - ordered[:-quarter]) / 0.637
    spread = (
        min(values.std(), (np.quantile(values, 0.75) - np.quantile(values, 0.25)) / 1.34, narrowest) or values.std()
    )
    width = max(0.9 * spread * len(values) ** -0.2, 1e-12 + 1e-3 * np.ptp(grid))
    scaled = (grid[:, None] - values[None, :]) / width
    return np.exp(-0.5 * scaled**2).mean(1) / (width * np.sqrt(2.0 * np.pi))


def density_panels(times: np.ndarray, panels: Mapping[str, np.ndarray], *, xlabel: str, ylabel: str) -> Any:
    """Plot the density of trajectories over time with the mean, one panel per set, normalised at each time."""
    figure, axes = new_figure(len(panels), 1, sharex=True, sharey=True)
    everything = np.concatenate([values.ravel() for values in panels.values()])
    low, high = np.quantile(everything, [0.0005, 0.9995])
    grid = np.linspace(low - 0.05 * (high - low), high + 0.05 * (high - low), 240)
    image = None
    for axis, (title, values) in zip(axes[0], panels.items(), strict=True):
        image = _density_over_time(axis, times, values, grid)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(xlabel)
    axes[0, 0].set_ylabel(ylabel)
    axes[0, 0].legend(frameon=False)
    figure.colorbar(image, ax=list(axes[0]), label="density / its maximum at that time", pad=0.01)
    return figure


def trajectory_panels(times: np.ndarray, panels: Mapping[str, np.ndarray], *, xlabel: str, ylabel: str) -> Any:
    """Plot sixty trajectories of every set above and the density of all of them below, on common axes."""
    figure, axes = new_figure(len(panels), 2, height=2.6, sharex=True, sharey=True)
    # The range of the data (the first set) and a third more: a fit far outside would otherwise hide all others.
    low, high = np.quantile(next(iter(panels.values())), [0.0005, 0.9995])
    grid = np.linspace(low - 0.3 * (high - low), high + 0.3 * (high - low), 240)
    image = None
    for (above, below), (title, values) in zip(axes.T, panels.items(), strict=True):
        above.plot(times, values[:60].T, color=DATA if title.startswith("data") else OURS, lw=0.5, alpha=0.5)
        above.set_title(title, fontsize=10)
        image = _density_over_time(below, times, values, grid)
        below.set_xlabel(xlabel)
    for axis in axes[:, 0]:
        axis.set_ylabel(ylabel)
    axes[1, 0].legend(frameon=False)
    axes[0, 0].set_ylim(grid[0], grid[-1])
    figure.colorbar(image, ax=list(axes[1]), label="density / its maximum", pad=0.01)
    return figure


def _density_over_time(axis: Any, times: np.ndarray, values: np.ndarray, grid: np.ndarray) -> Any:
    density = np.stack([kernel_density(values[:, k], grid) for k in range(len(times))], axis=1)
    density /= np.maximum(density.max(0), 1e-300)
    image = axis.pcolormesh(times, grid, density, cmap="Blues", vmin=0, vmax=1, shading="nearest", rasterized=True)
    axis.plot(times, values.mean(0), color=OTHER, lw=1.4, label="mean")
    return image


def end_density(counts: np.ndarray, probabilities: np.ndarray, panels: Mapping[str, np.ndarray], *, xlabel: str) -> Any:
    """Plot the exact law of counts with a histogram of each set of samples, one panel per set."""
    figure, axes = new_figure(len(panels), 1, sharex=True, sharey=True)
    inside = counts[np.flatnonzero(probabilities > 1e-6 * probabilities.max())[[0, -1]]]
    edges = np.linspace(inside[0], inside[1], 61)
    for axis, (title, values) in zip(axes[0], panels.items(), strict=True):
        colour = DATA if title.startswith("data") else OURS
        axis.hist(values, edges, density=True, color=colour, alpha=0.4, label="samples")
        axis.plot(counts, probabilities, color=OTHER, lw=1.4, label="exact law")
        axis.set_title(title, fontsize=10)
        axis.set(xlabel=xlabel, xlim=(edges[0], edges[-1]))
    axes[0, 0].set(ylabel="density", ylim=(0.0, 1.5 * probabilities.max()))
    axes[0, 0].legend(frameon=False)
    return figure


def distance_curves(times: np.ndarray, curves: Mapping[str, np.ndarray], *, xlabel: str, ylabel: str) -> Any:
    """Plot a distance over time, one curve per set; the data first, in black."""
    figure, axes = new_figure(1, 1, width=5.0)
    for (name, curve), colour in zip(curves.items(), (DATA, OURS, OTHER, EXTRA), strict=False):
        axes[0, 0].plot(times, curve, color=colour, label=name)
    axes[0, 0].set(xlabel=xlabel, ylabel=ylabel)
    axes[0, 0].set_ylim(bottom=0)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def dependence(matrix: np.ndarray, independence: float) -> Any:
    """Plot a matrix of distance correlations, and the histogram of its pairs with the level of independent weights."""
    figure, axes = new_figure(2, 1)
    image = axes[0, 0].imshow(matrix, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
    axes[0, 0].set(xlabel="weight", ylabel="weight")
    figure.colorbar(image, ax=axes[0, 0], label="distance correlation")
    pairs = matrix[np.triu_indices(len(matrix), k=1)]
    axes[0, 1].hist(pairs, np.linspace(0, 1, 51), density=True, color=OURS, alpha=0.6, label="pairs of weights")
    axes[0, 1].axvline(independence, color=DATA, ls="--", label="independent weights, median")
    axes[0, 1].set(xlabel="distance correlation", ylabel="density", xlim=(0, 1))
    axes[0, 1].legend(frameon=False, fontsize=8)
    return figure


def w1_convergence(times: np.ndarray, convergence: Mapping[str, np.ndarray], *, floor: float) -> Any:
    """Plot W1 over time for a sequence of updates, and its mean against the update."""
    figure, axes = new_figure(2, 1)
    import matplotlib as mpl

    updates, curves = convergence["update"], convergence["w1"]
    colours = mpl.colormaps["viridis_r"](np.linspace(0.1, 1.0, len(updates)))
    for update, curve, colour in zip(updates, curves, colours, strict=True):
        axes[0, 0].semilogy(times[1:], curve[1:], color=colour, label=f"{int(update)}")
    axes[0, 0].set(xlabel="t", ylabel="W1 to the data")
    axes[0, 0].legend(title="update", frameon=False, fontsize=7, ncols=2)
    axes[0, 1].loglog(updates, curves.mean(1), color=OURS, marker="o", label="mean over time")
    for axis in axes[0]:
        axis.axhline(floor, color=DATA, ls=":", label="floor")
    axes[0, 1].set(xlabel="update", ylabel="mean W1")
    chosen = updates[np.unique(np.linspace(0, len(updates) - 1, min(len(updates), 5)).round().astype(int))]
    axes[0, 1].xaxis.minorticks_off()
    axes[0, 1].set_xticks(chosen, [f"{int(update)}" for update in chosen])
    axes[0, 1].legend(frameon=False)
    return figure


def weight_paths(grid: np.ndarray, paths: np.ndarray, names: Sequence[str], point: np.ndarray) -> Any:
    """Plot weight trajectories in pseudo-time, one panel per weight; `paths` is (run, knot, weight)."""
    columns = 2 if len(names) == 4 else min(len(names), 3)
    figure, axes = new_figure(columns, -(-len(names) // columns), width=3.8, height=2.6, sharex=True)
    for i, (axis, name) in enumerate(zip(axes.flat, names, strict=False)):
        axis.plot(grid, paths[..., i].T, color=OURS, alpha=0.3, lw=0.6)
        end = np.full(len(paths), grid[-1])
        axis.plot(grid, paths[..., i].mean(0), color=DATA, lw=1.4, label="mean")
        axis.plot(end, paths[:, -1, i], ".", color=OTHER, ms=4, clip_on=False, label="samples")
        axis.plot(grid[0], point[i], "D", color=EXTRA, ms=6, clip_on=False, zorder=3, label="maximum likelihood")
        axis.set_xlim(grid[0], grid[-1])
        axis.set_title(short(name, 48), fontsize=8)
        axis.tick_params(labelbottom=i + columns >= len(names))  # also above an empty panel
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    figure.supxlabel("pseudo-time", fontsize=10)
    figure.supylabel("weight", fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=3, loc="outside upper center")
    return figure


def loss_history(history: Mapping[str, np.ndarray]) -> Any:
    """Plot loss and KL over the updates, with their running means."""
    figure, axes = new_figure(2, 1)
    updates = np.arange(1, len(history["loss"]) + 1)
    width = max(1, len(updates) // 25)
    for axis, name, colour in ((axes[0, 0], "loss", OURS), (axes[0, 1], "kl", OTHER)):
        axis.plot(updates, history[name], color=colour, lw=0.5, alpha=0.35, label="every update")
        smooth = np.convolve(history[name], np.ones(width) / width, mode="valid")
        axis.plot(updates[width - 1 :], smooth, color=colour, lw=1.6, label=f"mean of {width}")
    finite = history["loss"][np.isfinite(history["loss"])]
    if len(finite) > 20:  # the first updates would compress the rest of the curve
        low, high = finite.min(), np.quantile(finite, 0.97)
        axes[0, 0].set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    for axis, name in zip(axes[0], ("loss", "path KL (nats)"), strict=True):
        axis.set(xlabel="update", ylabel=name)
        axis.legend(frameon=False)
    return figure


class BandPanel(NamedTuple):
    """One condition: samples of the model and of observations, (sample, time, out), and data (member, time, out)."""

    title: str
    times: np.ndarray
    model: np.ndarray
    observable: np.ndarray
    data: np.ndarray


def prediction_bands(panels: Sequence[BandPanel], *, time_label: str, output_labels: Sequence[str]) -> Any:
    """Plot 90 % bands of the model (dark) and of observations (light) with the data; row: output, column: panel."""
    figure, axes = new_figure(len(panels), len(output_labels), width=3.8, height=2.6, sharex="col", sharey="row")
    for k, label in enumerate(output_labels):
        for axis, panel in zip(axes[k], panels, strict=True):
            _band(axis, panel.times, panel.observable[..., k], 0.22, "90 % band of observations")
            _band(axis, panel.times, panel.model[..., k], 0.5, "90 % band of the model")
            axis.plot(panel.times, panel.model[..., k].mean(0), color=OURS, lw=1.2, label="mean")
            seen = [member for member in panel.data[:20, :, k] if np.isfinite(member).any()]
            for number, member in enumerate(seen):
                axis.plot(panel.times, member, ".", color=DATA, ms=4, label="data" if number == 0 else None)
        axes[k, 0].set_ylabel(short(label))
    for axis, panel in zip(axes[0], panels, strict=True):
        axis.set_title(short(panel.title), fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel(time_label)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=4, loc="outside lower center")
    return figure


def _band(axis: Any, times: np.ndarray, samples: np.ndarray, alpha: float, label: str) -> None:
    low, high = np.quantile(samples, [0.05, 0.95], axis=0, method="weibull")
    axis.fill_between(times, low, high, color=OURS, alpha=alpha, lw=0, label=label)


def short(text: str, longest: int = 40) -> str:
    """Shorten and escape a user's name: Matplotlib reads a dollar sign as the start of a formula."""
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return text.replace("$", r"\$")


class ParityPanel(NamedTuple):
    """Observed values of one output with the predicted 5, 50 and 95 % quantiles."""

    label: str
    observed: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray


def parity(panels: Sequence[ParityPanel], *, most: int = 2000) -> Any:
    """Plot predicted against observed, one panel per output, at most `most` points each."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(columns, rows, width=3.6, height=3.4)
    for axis, panel in zip(axes.flat, panels, strict=False):
        pick = slice(None, None, max(1, len(panel.observed) // most))
        below, above = panel.median - panel.low, panel.high - panel.median
        bars = np.stack([below[pick], above[pick]])
        options = {"fmt": ".", "ms": 3, "lw": 0.5, "alpha": 0.5, "color": OURS}
        axis.errorbar(panel.observed[pick], panel.median[pick], yerr=bars, label="median and 90 % band", **options)
        ends = [panel.observed.min(), panel.observed.max()] if len(panel.observed) else [0.0, 1.0]
        axis.plot(ends, ends, color=DATA, lw=0.8, ls="--", label="equal")
        axis.set(xlabel=f"observed {short(panel.label)}", ylabel="predicted")
    axes[0, 0].legend(frameon=False, fontsize=8)
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    return figure


def calibration(levels: np.ndarray, inside: np.ndarray) -> Any:
    """Plot observed against nominal coverage, both in percent."""
    figure, axes = new_figure(1, 1, width=3.8, height=3.6)
    axis = axes[0, 0]
    axis.plot([0, 100], [0, 100], color=DATA, lw=0.8, ls="--", label="calibrated")
    axis.plot(levels, inside, color=OURS, marker="o", ms=3.5, label="held-out data")
    axis.set(
        xlabel="nominal coverage [%]", ylabel="observed coverage [%]", xlim=(0, 100), ylim=(0, 100), aspect="equal"
    )
    axis.legend(frameon=False, loc="upper left")
    return figure


def sweep_lines(
    values: Sequence[Any], lines: Mapping[str, np.ndarray], *, xlabel: str, ylabel: str, legend: str = ""
) -> Any:
    """Plot a number against a setting, one line per label: medians over the seeds, every seed, and the range.

    Lines are (value, seed), NaN where a value is missing. Values that are not all numbers are placed in the given
    order.
    """
    figure, axes = new_figure(1, 1, width=6.4, height=4.2)
    axis = axes[0, 0]
    places = _places(axis, values)
    for (label, found), colour, marker in zip(lines.items(), _colours(len(lines)), cycle("os^Dv<>P"), strict=False):
        order = np.argsort(places, kind="stable")
        x, y = places[order], found[order]
        levels = [np.nanquantile(row, [0.0, 0.5, 1.0]) if np.isfinite(row).any() else np.full(3, np.nan) for row in y]
        low, middle, high = np.transpose(levels)
        axis.plot(x, middle, color=colour, marker=marker, ms=5, lw=1.6, label=short(label))
        if found.shape[1] > 1:
            axis.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
            axis.plot(np.repeat(x, y.shape[1]), y.ravel(), ls="", marker=marker, ms=3, color=colour, alpha=0.6)
    if any(found.shape[1] > 1 for found in lines.values()):
        axis.set_title("lines: medians over seeds; bands: minimum to maximum", fontsize=9)
    axis.set(xlabel=short(xlabel), ylabel=short(ylabel, 60))
    if legend:
        axis.legend(title=short(legend), frameon=False, fontsize=8, title_fontsize=8)
    return figure


def _places(axis: Any, values: Sequence[Any]) -> np.ndarray:
    """Return the positions of values on the x axis; set its scale (logarithmic beyond an 8-fold range) and ticks."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        names = [value if isinstance(value, str) else str(value) for value in values]
        axis.set_xticks(range(len(names)), [short(name, 16) for name in names])
        return np.arange(len(names), dtype=float)
    places = np.asarray(values, float)
    if places.min() > 0 and places.max() > 8 * places.min():
        axis.set_xscale("log")
        axis.minorticks_off()
    if len(places) <= 10:
        axis.set_xticks(places, [f"{place:g}" for place in places])
    return places


def _colours(num: int) -> list[Any]:
    """Return the colours of Okabe and Ito for a few lines, an ordered colour map for many."""
    import matplotlib as mpl

    few = [OURS, OTHER, EXTRA, "#CC79A7", "#E69F00", "#56B4E9", DATA]
    return few if num <= len(few) else list(mpl.colormaps["viridis"](np.linspace(0.0, 0.92, num)))
