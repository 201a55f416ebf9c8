"""Progress of long work: a bar on a terminal, plain lines in a log file."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from langenode.inference.algorithm1 import Progress


class Reporter:
    """Says what is being done. On a terminal the training line is a live bar; elsewhere a line every tenth."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False, verbose: bool = False):
        self.stream = sys.stderr if stream is None else stream
        self.quiet = quiet
        self.verbose = verbose
        self._bar: Any = None
        self._task: Any = None
        self._tenth = -1

    def say(self, text: str) -> None:
        """One line."""
        if not self.quiet:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, float]]:
        """Time a stage; the yielded mapping has its seconds afterwards."""
        timing: dict[str, float] = {}
        if self.verbose:
            self.say(f"{name} ...")
        begin = time.perf_counter()
        yield timing
        timing["seconds"] = time.perf_counter() - begin
        self.say(f"{name}: {timing['seconds']:.1f} s")

    @contextmanager
    def training(self, title: str) -> Iterator[None]:
        """Show the progress of one fit, given to `update`."""
        if self.quiet or not self.stream.isatty():
            self._tenth = -1
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        figures = TextColumn("loss {task.fields[loss]:.4g}  KL {task.fields[kl]:.4g}")
        with Progress(*columns, figures, TimeRemainingColumn(), console=Console(file=self.stream)) as self._bar:
            self._task = self._bar.add_task(title, total=None, loss=float("nan"), kl=float("nan"))
            yield
        self._bar = None

    def update(self, progress: Progress) -> None:
        """Show where training is."""
        if self._bar is not None:
            self._bar.update(
                self._task, completed=progress.step, total=progress.num_updates, loss=progress.loss, kl=progress.kl
            )
            return
        tenth = 10 * progress.step // progress.num_updates
        if tenth > self._tenth or self.verbose:
            self._tenth = tenth
            left = progress.seconds / progress.step * (progress.num_updates - progress.step)
            skipped = f", {progress.skipped} updates skipped" if progress.skipped else ""
            self.say(
                f"update {progress.step}/{progress.num_updates}: loss {progress.loss:.4g}, KL {progress.kl:.4g}, "
                f"about {left:.0f} s left{skipped}"
            )
