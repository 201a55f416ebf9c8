"""A schematic of the framework: a sampler gives weights to a model of the data."""

from typing import Any

import numpy as np

from langenode.plots.general import DATA, EXTRA, OTHER, OURS, new_figure

Place = tuple[float | int, float | int]
BOX = {"boxstyle": "round,pad=0.35", "fc": "white", "lw": 1.2}
NUM_PATHS, NUM_STEPS = 12, 160


def framework() -> Any:
    """Draw the whole, the model of the data, and the sampler of its weights."""
    figure, axes = new_figure(3, 1, width=4.6, height=4.2)
    for axis, draw, title in zip(
        axes[0],
        (_whole, _model, _sampler),
        ("(a) sampler and model, trained together", "(b) model of the data", "(c) sampler of the weights"),
        strict=True,
    ):
        axis.set(xlim=(0, 10), ylim=(0, 9))
        axis.set_axis_off()
        axis.set_title(title, fontsize=10)
        draw(axis)
    return figure


def _box(axis: Any, place: Place, text: str, colour: str) -> None:
    axis.text(*place, text, ha="center", va="center", fontsize=8.5, bbox={**BOX, "ec": colour}, zorder=3)


def _arrow(axis: Any, start: Place, end: Place, text: str = "", **options: Any) -> None:
    style = {"arrowstyle": "-|>", "color": DATA, "lw": 1.1, "shrinkA": 0, "shrinkB": 0, **options}
    axis.annotate("", end, start, arrowprops=style, zorder=2)
    if text:
        middle = (np.array(start) + np.array(end)) / 2
        axis.text(middle[0] + 0.15, middle[1] + 0.1, text, fontsize=8, ha="left", va="bottom")


def _whole(axis: Any) -> None:
    _box(axis, (5, 7.9), "sampler\n" + r"$dw = \mathrm{NN}_f(w;\theta)\,d\tau + \gamma\sqrt{2}\,dB$", OURS)
    _box(axis, (5, 4.9), "model " + r"$Y_w$" + "\nhidden state, observation", EXTRA)
    _box(axis, (5, 1.2), "loss: expected log-likelihood\n" + r"minus KL$(q\,\|\,p)$ of paths", OTHER)
    _arrow(axis, (5, 7.0), (5, 5.75), r"samples $w^{(s)}$")
    _arrow(axis, (5, 4.1), (5, 2.1), r"outputs $y(t)$")
    _arrow(axis, (0.2, 4.9), (2.35, 4.9), r"")
    axis.text(0.2, 5.15, "inputs\n" + r"$x(t)$", fontsize=8, va="bottom")
    _arrow(axis, (0.2, 1.2), (1.6, 1.2))
    axis.text(0.2, 1.45, "data", fontsize=8, va="bottom")
    curve = {"connectionstyle": "arc3,rad=0.38", "ls": "--", "color": OTHER}
    _arrow(axis, (8.45, 1.4), (8.75, 7.7), **curve)
    _arrow(axis, (8.2, 1.9), (7.65, 4.6), **{**curve, "connectionstyle": "arc3,rad=0.15"})
    axis.text(
        9.95, 4.6, r"gradient: $\theta$, $w^{(d)}$", fontsize=8, rotation=90, color=OTHER, ha="center", va="center"
    )


def _model(axis: Any) -> None:
    _box(axis, (5, 7.9), r"weights $w = (w^{(s)}, w^{(d)})$", OURS)
    _box(axis, (3.0, 4.9), "flow\n" + r"$\dot h = \mathrm{NN}_R(h, x; w)$", EXTRA)
    _box(axis, (7.6, 4.9), "observation\n" + r"$y = \mathrm{NN}_Z(h, x; w)$", EXTRA)
    _arrow(axis, (4.3, 7.35), (3.2, 5.75))
    _arrow(axis, (5.7, 7.35), (7.3, 5.75))
    _arrow(axis, (4.95, 4.9), (5.6, 4.9))
    axis.text(5.27, 5.05, r"$h(t)$", fontsize=8, ha="center", va="bottom")
    _arrow(axis, (3.0, 2.2), (3.0, 4.05))
    _arrow(axis, (4.0, 2.2), (6.9, 4.05))
    axis.text(3.2, 1.9, r"inputs $x(t)$", fontsize=8, ha="center", va="top")
    _arrow(axis, (7.9, 4.05), (7.9, 2.2))
    axis.text(7.9, 1.9, r"outputs $y(t)$", fontsize=8, ha="center", va="top")
    _arrow(axis, (1.6, 4.05), (1.6, 5.75), connectionstyle="arc3,rad=-1.6")
    axis.text(0.1, 3.35, "Heun\nsteps", fontsize=8, va="center")


def _sampler(axis: Any) -> None:
    """Paths of an Ornstein-Uhlenbeck process, as the reference is, from one start."""
    inner = axis.inset_axes((0.1, 0.2, 0.84, 0.44))
    rng, step = np.random.default_rng(3), 3.0 / NUM_STEPS
    paths = np.full((NUM_STEPS + 1, NUM_PATHS), 1.6)
    for k in range(NUM_STEPS):
        paths[k + 1] = paths[k] - step * paths[k] + np.sqrt(2.0 * step) * 0.45 * rng.normal(size=NUM_PATHS)
    tau = np.linspace(0.0, 1.0, NUM_STEPS + 1)
    inner.plot(tau, paths, color=OURS, lw=0.6, alpha=0.6)
    inner.plot(np.ones(NUM_PATHS), paths[-1], ".", color=OTHER, ms=5, clip_on=False)
    inner.plot(0.0, 1.6, "D", color=EXTRA, ms=6, clip_on=False)
    inner.set(xlim=(0, 1), xticks=[0, 1], yticks=[])
    inner.set_xticklabels(["0", r"$\tau_f$"])
    inner.set_xlabel("pseudo-time", fontsize=8, labelpad=-6)
    inner.set_ylabel("a weight", fontsize=8)
    _box(
        axis,
        (5, 7.6),
        r"$w_{k+1} = w_k + \mathrm{NN}_f(w_k;\theta)\,\Delta\tau + \gamma\sqrt{2\Delta\tau}\,\xi_k$",
        OURS,
    )
    axis.text(1.15, 6.05, r"start $w_0$ at the" + "\nmaximum likelihood", fontsize=8, color=EXTRA, va="center")
    axis.text(9.4, 6.05, r"samples $w_K$", fontsize=8, color=OTHER, ha="right", va="center")
