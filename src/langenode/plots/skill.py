"""A fit beside plain predictors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from langenode.plots.general import DATA, OTHER, OURS, new_figure


def beside_plain(
    labels: Sequence[str],
    crps: np.ndarray,
    crps_error: np.ndarray,
    coverage: np.ndarray,
    limits: tuple[float, float] | None,
) -> Any:
    """Plot CRPS with its standard error, and coverage in percent with the range of a right band; the fit comes first.

    NaN stands for a predictor that is not available.
    """
    figure, axes = new_figure(2, 1, width=4.2, height=0.6 + 0.45 * len(labels), sharey=True)
    left, right = axes[0]
    rows = np.arange(len(labels))[::-1]
    colours = [OURS] + [OTHER] * (len(labels) - 1)
    for row, colour, score, error, inside in zip(rows, colours, crps, crps_error, coverage, strict=True):
        width = np.nan_to_num(error)
        left.errorbar(score, row, xerr=width, fmt="o", color=colour, ms=6, capsize=3)
        right.plot(inside, row, "o", color=colour, ms=6)
    if limits is not None:
        right.axvspan(*limits, color=DATA, alpha=0.08, lw=0, label="a right band, by chance")
    right.axvline(90, color=DATA, lw=0.8, ls="--", label="nominal")
    left.set(xlabel="CRPS / spread of the data (lower is better)", yticks=rows, yticklabels=labels)
    left.set_xlim(left=0)
    left.set_ylim(-0.6, len(labels) + 0.3)  # with room for the legend
    right.set(xlabel="inside the 90 % band [%]", xlim=(min(50, 5 * np.floor(np.nanmin(coverage) / 5) - 5), 101))
    right.legend(frameon=False, fontsize=8, loc="upper left")
    for axis in (left, right):
        axis.grid(axis="x", lw=0.4, alpha=0.5)
    return figure
