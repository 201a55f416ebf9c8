"""Where the time of an update goes, in each demonstration and in a fit of a table: sampler, model, loss, and the rest.

Every fit is begun by the command and stopped at its first block of updates, whose arguments are kept. Programs are then
timed, each in a loop as in training: a whole update; the gradient through the sampler alone; through the model, for
weights that are kept; of the loss, for samples that are kept; and an update whose gradient is given, which leaves
mini-batches, the optimiser and the running average: the rest. Shares are those of the sum of the four, which is
recorded beside the whole update. Afterwards a stacked bar of all fits is drawn.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
from own_time import driven_relaxations

from langenode._compiling import light_jit
from langenode.cli import main as langenode
from langenode.inference import training
from langenode.inference.algorithm1 import Terms, generate
from speed import common

FITS = {
    "OU": ["run", "ou"],
    "Schlögl": ["run", "schlogl"],
    "hyperelastic": ["run", "hyperelastic"],
    "viscoelastic": ["run", "viscoelastic"],
    "own table": ["fit", "TABLE"],
}
PARTS = {"sampler": "#0072B2", "model": "#E69F00", "loss": "#009E73", "rest": "#999999"}
NUM_UPDATES = 20  # of a loop
SMALL = 1e-9  # share of a gradient by which its argument moves, so that no compiler takes it out of the loop
FIGURE = Path(__file__).parents[2] / "docs" / "images" / "time-of-an-update.png"


class Caught(BaseException):
    """Ends a fit at its first block of updates; no `except Exception` on the way takes it for a failure."""


def main() -> None:
    options = common.options(__doc__)
    record, shares = common.Record(), {}
    for name in ("OU", "own table") if options.quick else FITS:
        shares[name] = of_fit(record, name, 5 if options.quick else 9)
        record.results["shares"] = shares
        record.write(options.out)
    if not options.quick:
        draw(shares, FIGURE)
        record.notes.append("drawn: docs/images/time-of-an-update.png")
        record.write(options.out)


def of_fit(record: common.Record, name: str, repeats: int) -> dict[str, float]:
    """Milliseconds per update, and the shares."""
    runs = programs(*first_block(FITS[name]))
    timings = common.interleaved(runs, repeats)
    update, total = timings["update"].least, sum(timings[part].least for part in PARTS)
    found = {part: timings[part].least / total for part in PARTS}
    found |= {"update_ms": 1e3 * update / NUM_UPDATES, "sum_over_update": total / update}
    for part, timing in timings.items():
        record.row(f"{name}: {part}", timing, "", updates=NUM_UPDATES)
    return found


def first_block(words: list[str]) -> tuple[Any, ...]:
    """The arguments of the first block of updates of a fit, which goes no further."""
    caught: list[tuple[Any, ...]] = []

    def catch(*arguments: Any) -> None:
        caught.append(arguments)
        raise Caught

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        table = Path(folder) / "table.csv"
        driven_relaxations(1).to_csv(table, index=False)
        words = [str(table) if word == "TABLE" else word for word in words]
        command = ["langenode", *words, "--out", str(Path(folder) / "run"), "--seed", "0"]
        stack.enter_context(mock.patch("sys.argv", command))
        stack.enter_context(mock.patch.object(training, "_run_block", catch))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        with contextlib.suppress(Caught, SystemExit):
            langenode()
    if not caught:
        raise RuntimeError(f"{' '.join(command)} ended before its first update")
    return caught[0]


def programs(state: Any, static: Any, data: Any, key: Any, settings: Any) -> dict[str, Callable[[], Any]]:
    """The programs, compiled as training compiles its own."""
    settings = settings._replace(num_chunks=1)
    batch = data.pick(key, settings.batch_trajectories, settings.batch_conditions)
    diffusion = training._diffusion(settings, state.step)
    keys = jax.random.split(key, settings.num_samples)

    def sampler(params: Any) -> Any:
        keys_path = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)[0]
        draws = eqx.combine(params, static).variational.draws(keys_path, diffusion=diffusion)
        return 0.5 * jnp.sum(draws.weights**2) + jnp.mean(draws.kl)

    def model(weights: Any) -> Any:
        problem = eqx.combine(state.params, static)
        run = lambda w, key: batch.run(problem.partition.combine(problem.model, w), key_start=key, key_noise=key)  # noqa: E731
        return 0.5 * jnp.sum(jax.vmap(run)(weights, keys).predictions ** 2)

    def loss(samples: Any) -> Any:
        return batch.loss(eqx.combine(state.params, static), samples).loss

    def update(state: Any) -> Any:
        return training._update(state, static, data, key, settings, restored)

    def rest(state: Any) -> Any:
        given = lambda params, *arguments, key: (Terms(*3 * (jnp.zeros(()),)), params)  # noqa: E731
        with mock.patch.object(training, "loss_and_gradient", given):
            return update(state)

    vectors, restored = training._as_vectors(state)
    samples = light_jit(lambda params: generate(eqx.combine(params, static), batch, keys, diffusion))(state.params)
    return {
        "sampler": in_a_loop(by_gradient(sampler), state.params),
        "model": in_a_loop(by_gradient(model), samples.draw.weights),
        "loss": in_a_loop(by_gradient(loss), samples),
        "rest": in_a_loop(rest, vectors),
        "update": in_a_loop(update, vectors),
    }


def by_gradient(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Move the argument of a function a little along its gradient."""

    def move(point: Any) -> Any:
        return eqx.apply_updates(point, jax.tree.map(lambda g: SMALL * g, eqx.filter_grad(function)(point)))

    return move


def in_a_loop(advance: Callable[[Any], Any], start: Any) -> Callable[[], Any]:
    """A program that advances many times; only arrays change."""
    moving, fixed = eqx.partition(start, eqx.is_array)

    def once(_: Any, moving: Any) -> Any:
        return eqx.filter(advance(eqx.combine(moving, fixed)), eqx.is_array)

    program = light_jit(lambda moving: jax.lax.fori_loop(0, NUM_UPDATES, once, moving))
    return lambda: program(moving)


def draw(shares: dict[str, dict[str, float]], path: Path) -> None:
    """A stacked bar for each fit."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    axes, left = figure.subplots(), [0.0] * len(shares)
    labels = [f"{name} ({found['update_ms']:.3g} ms)" for name, found in shares.items()]
    for part, colour in PARTS.items():
        widths = [100.0 * found[part] for found in shares.values()]
        axes.barh(labels, widths, left=left, color=colour, label=part)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_xlabel("share of an update [%]")
    axes.set_xlim(0.0, 100.0)
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
