"""Agreement of Markov chains, and bands beyond the data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from langenode.plots.general import DATA, OTHER, OURS, new_figure


def r_hat_over_time(profiles: Mapping[str, Mapping[str, Any]], limits: Mapping[str, float], time_label: str) -> Any:
    """Plot R-hat of single predictions against their time, one panel per place (inside, outside the data)."""
    figure, axes = new_figure(len(profiles), 1, width=4.2, height=2.8, sharey=True)
    for axis, (name, profile), colour in zip(axes[0], profiles.items(), (OURS, OTHER), strict=False):
        axis.plot(profile["time"], profile["rhat"], "o", ms=3, alpha=0.5, color=colour)
        axis.axhline(limits[name], color=DATA, lw=0.8, ls="--", label=f"trusted up to {limits[name]:g}")
        axis.set(xlabel=time_label, title=f"{name} the data")
        axis.legend(frameon=False, fontsize=8)
        axis.grid(lw=0.4, alpha=0.5)
    axes[0][0].set_ylabel("split R-hat of a prediction")
    return figure


def bands_beyond(starts: np.ndarray, quantiles: np.ndarray, seen: tuple[float, float], labels: tuple[str, str]) -> Any:
    """Plot the median and the 90 % band of the model at the last time against the start, and the range of the data.

    `quantiles` are `(3, start)`: low, middle, high.
    """
    figure, axes = new_figure(1, 1, width=5.6, height=3.2)
    axis = axes[0][0]
    axis.axvspan(*seen, color=DATA, alpha=0.08, lw=0, label="range of the training data")
    axis.fill_between(starts, quantiles[0], quantiles[2], color=OURS, alpha=0.3, lw=0, label="90 % band of the model")
    axis.plot(starts, quantiles[1], color=OURS, lw=1.5, label="median")
    axis.set(xlabel=labels[0], ylabel=labels[1])
    axis.legend(frameon=False, fontsize=8)
    axis.grid(lw=0.4, alpha=0.5)
    return figure
