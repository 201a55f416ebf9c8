"""Two vector fields over two weights: the exact score of a distribution, and a learned one."""

from typing import Any, NamedTuple

import numpy as np

from langenode.plots.general import DATA, OURS, new_figure


class ScoreField(NamedTuple):
    """Points (point, 2), and the exact and the learned score there."""

    points: np.ndarray
    exact: np.ndarray
    learned: np.ndarray


def score_fields(field: ScoreField, sample: ScoreField, name: str) -> Any:
    """Plot both fields as arrows to the same scale, and their components at a sample against each other."""
    figure, axes = new_figure(4, 1, width=3.3, height=3.4)
    # The median arrow of the exact field is as long as a tenth of the frame.
    scale = 10.0 * np.median(np.linalg.norm(field.exact, axis=1))
    fields = ((field.exact, DATA, "exact score"), (field.learned, OURS, name))
    for axis, (vectors, colour, label) in zip(axes[0], fields, strict=False):
        axis.quiver(*field.points.T, *vectors.T, color=colour, scale=scale, scale_units="width", width=0.006)
        axis.set(xlabel="W", ylabel="b")
        axis.set_title(label, fontsize=9)
        axis.margins(0.15)
    for i, weight in enumerate("Wb"):
        axis = axes[0, 2 + i]
        ends = np.array([sample.exact[:, i].min(), sample.exact[:, i].max()])
        axis.plot(sample.exact[:, i], sample.learned[:, i], ".", color=OURS, ms=3, alpha=0.6)
        axis.plot(ends, ends, color=DATA, lw=0.8, ls="--", label="equal")
        axis.set_ylim(*(ends + np.array([-0.5, 0.5]) * np.ptp(ends)))
        axis.set(xlabel="exact", ylabel="learned")
        axis.set_title(f"component of {weight}", fontsize=9)
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    return figure
