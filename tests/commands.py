"""The command in this process, small settings for it, and what it leaves behind."""

import contextlib
import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np
import pandas as pd

from langenode.cli import main
from langenode.runs.processes import Ended


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


def langenode(*words: str | Path, cwd: Path | None = None) -> Done:
    """The command in this process: the same road as in a shell, without its four seconds of imports."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(Path.cwd() if cwd is None else cwd))
        stack.enter_context(mock.patch.object(sys, "argv", ["langenode", *map(str, words)]))
        stack.enter_context(mock.patch.object(warnings, "showwarning", warnings.showwarning))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Done(code, out.getvalue(), err.getvalue())


def done(*words: str | Path, cwd: Path | None = None) -> Done:
    """A command that must succeed."""
    found = langenode(*words, cwd=cwd)
    assert found.code == 0, found.err
    return found


def in_this_process(commands: dict[str, list[str]], logs: Path, *, jobs: int, on_end: Any) -> None:
    """Take the place of `grid.run_commands`: runs of a sweep or a comparison, one after another, in this process.

    A process of its own would have no figures of other tests open, and its warnings would be no errors.
    """
    from matplotlib import pyplot

    for name, words in commands.items():
        assert words[1:3] == ["-m", "langenode"]
        pyplot.close("all")
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            found = langenode(*words[3:])
        (logs / f"{name}.log").write_text(found.err)
        on_end(name, Ended(found.code, found.out, logs / f"{name}.log", 0.0))


def options(text: str) -> list[str]:
    """Settings as `--set` options."""
    return [word for setting in text.split() for word in ("--set", setting)]


OU = options(
    "method=gaussian-full target=posterior data.num_validation=4 data.num_test=8 data.num_times=8 "
    "training.num_updates=40 training.num_samples=8 training.block=10 mle.num_adam=20 mle.num_lbfgs=0 "
    "predict.num_samples=32 predict.num_weights=64 predict.num_w1_draws=3"
)
OWN = options(
    "data.folds=none method=gaussian-diagonal noise.calibrate=false training.num_updates=20 training.num_samples=8 "
    "mle.num_adam=20 mle.num_lbfgs=0 model.kind=state model.layers=[4] model.largest_step=1.0 predict.num_samples=32 "
    "predict.num_weights=64"
)
CACHE_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)


def shared_programs() -> dict[str, str]:
    """The environment of processes that take the programs which this one has compiled, and leave theirs to it."""
    settings = {name.upper(): str(getattr(jax.config, name)) for name in CACHE_SETTINGS}
    return {**os.environ, **settings, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def plain_environment() -> dict[str, str]:
    """The environment without the suite's compiler flags, for processes whose programs are those of a user."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def frame(num: int = 6, steps: int = 6, scale: float = 1.0, seed: int = 0) -> pd.DataFrame:
    """A driven relaxation: a trajectory has its own force and start."""
    rng = np.random.default_rng(seed)
    force = np.sin(0.7 * np.arange(steps) + np.arange(num)[:, None])
    x = np.empty((num, steps))
    x[:, 0] = 1.0 + 0.3 * rng.normal(size=num)
    for j in range(1, steps):
        x[:, j] = 0.75 * x[:, j - 1] + 0.25 * force[:, j - 1] + 0.02 * rng.normal(size=num)
    columns = {"id": np.repeat(np.arange(num), steps), "t": np.tile(0.25 * np.arange(steps), num)}
    return pd.DataFrame({**columns, "force": force.ravel(), "x": scale * x.ravel()})


def contents(folder: Path) -> dict[str, tuple[int, bytes] | None]:
    """Every entry below a folder, files with their time of change and their bytes."""
    paths = sorted(folder.rglob("*"))
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) if p.is_file() else None for p in paths}


def metrics_of(folder: Path) -> dict[str, Any]:
    """The metrics of a run, apart from its seconds."""
    found = json.loads((folder / "metrics.json").read_text())
    return {key: value for key, value in found.items() if key != "seconds"}
