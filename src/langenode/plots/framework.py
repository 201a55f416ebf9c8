"""A schematic of the framework: a sampler gives weights to a model of the data."""

from typing import Any

import numpy as np

from langenode.plots.general import DATA, EXTRA, OTHER, OURS, new_figure

Place = tuple[float | int, float | int]
NUM_PATHS, NUM_STEPS = 12, 160
HEIGHT = 1.7  # of a box


def framework() -> Any:
    """Draw the whole, the model of the data, and the sampler of its weights."""
    figure, axes = new_figure(3, 1, width=4.7, height=3.9)
    titles = ("(a) sampler and model, trained together", "(b) model of the data", "(c) sampler of the weights")
    for axis, draw, title in zip(axes[0], (_whole, _model, _sampler), titles, strict=True):
        axis.set(xlim=(0, 10), ylim=(0, 9))
        axis.set_axis_off()
        axis.set_title(title, fontsize=11)
        draw(axis)
    return figure


def _box(axis: Any, centre: Place, width: float | int, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (centre[0] - width / 2, centre[1] - HEIGHT / 2)
    style = {"boxstyle": "round,pad=0,rounding_size=0.2", "fc": "white", "ec": colour, "lw": 1.4}
    axis.add_patch(FancyBboxPatch(corner, width, HEIGHT, **style))
    axis.text(*centre, text, ha="center", va="center", fontsize=9)


def _arrow(axis: Any, start: Place, end: Place, **options: Any) -> None:
    style = {"arrowstyle": "-|>", "color": DATA, "lw": 1.2, "shrinkA": 0, "shrinkB": 0, **options}
    axis.annotate("", end, start, arrowprops=style)


def _say(axis: Any, place: Place, text: str, **options: Any) -> None:
    axis.text(*place, text, fontsize=9, **{"ha": "left", "va": "center", **options})


def _whole(axis: Any) -> None:
    equation = r"$dw = \mathrm{NN}_f(w;\theta)\,d\tau + \gamma\sqrt{2}\,dB$"
    _box(axis, (4.8, 7.8), 5.4, f"sampler\n{equation}", OURS)
    _box(axis, (4.8, 4.5), 5.4, "model $Y_w$:\nhidden state, observation", EXTRA)
    _box(axis, (4.8, 1.2), 5.4, "loss: expected log-likelihood\nand KL of the paths", OTHER)
    _arrow(axis, (4.8, 6.95), (4.8, 5.35))
    _say(axis, (5.0, 6.15), "samples $w^{(s)}$")
    _arrow(axis, (4.8, 3.65), (4.8, 2.05))
    _say(axis, (5.0, 2.85), "outputs $y(t)$")
    for height, text in ((4.5, "inputs\n$x(t)$"), (1.2, "data")):
        _arrow(axis, (0.3, height), (2.1, height))
        _say(axis, (0.3, height + 0.2), text, va="bottom")
    axis.plot([7.5, 9.0, 9.0], [1.2, 1.2, 7.8], color=OTHER, ls="--", lw=1.2)
    _arrow(axis, (9.0, 7.8), (7.5, 7.8), color=OTHER, ls="--")
    _arrow(axis, (9.0, 4.5), (7.5, 4.5), color=OTHER, ls="--")
    _say(axis, (8.25, 7.95), r"$\theta$", color=OTHER, ha="center", va="bottom")
    _say(axis, (8.25, 4.65), "$w^{(d)}$", color=OTHER, ha="center", va="bottom")
    _say(axis, (9.35, 4.5), "gradient", color=OTHER, rotation=90, ha="center")


def _model(axis: Any) -> None:
    _box(axis, (5.0, 7.8), 4.6, "weights\n$w = (w^{(s)}, w^{(d)})$", OURS)
    _box(axis, (2.7, 4.5), 3.9, "flow\n" + r"$\dot h = \mathrm{NN}_R(h, x; w)$", EXTRA)
    _box(axis, (7.7, 4.5), 3.9, "observation\n" + r"$y = \mathrm{NN}_Z(h, x; w)$", EXTRA)
    _arrow(axis, (4.0, 6.95), (3.0, 5.35))
    _arrow(axis, (6.0, 6.95), (7.3, 5.35))
    _arrow(axis, (4.65, 4.5), (5.75, 4.5))
    _say(axis, (5.2, 4.6), "$h(t)$", ha="center", va="bottom")
    _arrow(axis, (2.7, 1.9), (2.7, 3.65))
    _arrow(axis, (3.3, 1.9), (7.0, 3.65))
    _say(axis, (2.9, 1.7), "inputs $x(t)$", ha="center", va="top")
    _arrow(axis, (8.0, 3.65), (8.0, 1.9))
    _say(axis, (8.0, 1.7), "outputs $y(t)$", ha="center", va="top")
    _say(axis, (2.5, 2.75), "integrated\nby Heun steps", ha="right")


def _sampler(axis: Any) -> None:
    """Paths of an Ornstein-Uhlenbeck process, as the reference is, from one start."""
    step = r"$w_{k+1} = w_k + \mathrm{NN}_f(w_k;\theta)\,\Delta\tau + \gamma\sqrt{2\Delta\tau}\,\xi_k$"
    _box(axis, (5.0, 7.8), 8.6, step, OURS)
    inner = axis.inset_axes((0.09, 0.13, 0.82, 0.44))
    rng, length = np.random.default_rng(3), 3.0 / NUM_STEPS
    paths = np.full((NUM_STEPS + 1, NUM_PATHS), 1.6)
    for k in range(NUM_STEPS):
        paths[k + 1] = paths[k] - length * paths[k] + np.sqrt(2.0 * length) * 0.45 * rng.normal(size=NUM_PATHS)
    inner.plot(np.linspace(0.0, 1.0, NUM_STEPS + 1), paths, color=OURS, lw=0.6, alpha=0.6)
    inner.plot(np.ones(NUM_PATHS), paths[-1], ".", color=OTHER, ms=6, clip_on=False)
    inner.plot(0.0, 1.6, "D", color=EXTRA, ms=7, clip_on=False)
    inner.set(xlim=(0, 1), xticks=[0, 1], yticks=[])
    inner.set_xticklabels(["0", r"$\tau_f$"])
    inner.set_xlabel("pseudo-time", fontsize=9, labelpad=-8)
    inner.set_ylabel("a weight", fontsize=9)
    _say(axis, (0.9, 5.9), "start $w_0$ at the\nmaximum likelihood", color=EXTRA)
    _say(axis, (9.1, 5.9), "samples $w_K$", color=OTHER, ha="right")
