"""Progress of long work: a live bar in a terminal or a notebook, one line per block in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from langenode.inference.training import Progress
from langenode.storage import interrupts


class Reporter:
    """Says what is being done.

    In a terminal, and in a notebook, training is a live bar (rich); elsewhere it is one line per block of updates.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False, verbose: bool = False):
        self.stream = sys.stderr if stream is None else stream
        self.quiet = quiet
        self.verbose = verbose
        self._bar: Any = None
        self._task: Any = None

    @property
    def is_live(self) -> bool:
        """Whether a bar can be drawn over and over."""
        return not self.quiet and (self.stream.isatty() or _is_notebook())

    def say(self, text: str) -> None:
        """One line. A signal that was lost elsewhere ends the work here."""
        interrupts.check()
        if not self.quiet:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Say how long a stage took."""
        if self.verbose:
            self.say(f"{name} ...")
        begin = time.perf_counter()
        yield
        self.say(f"{name}: {time.perf_counter() - begin:.1f} s")

    @contextmanager
    def training(self, title: str) -> Iterator[None]:
        """Show the progress of one fit, given to `update`."""
        if not self.is_live:
            if not self.quiet:
                self.say(f"{title}: training")
            yield
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
        figures = TextColumn("loss {task.fields[loss]:.4g}  KL {task.fields[kl]:.4g}")
        with Progress(*columns, figures, TimeRemainingColumn(), console=self._console()) as self._bar:
            self._task = self._bar.add_task(title, total=None, loss=float("nan"), kl=float("nan"))
            yield
        self._bar = None

    @contextmanager
    def waiting(self, title: str) -> Iterator[None]:
        """Show that work is being done that cannot tell how far it is."""
        with self._console().status(f"{title} ..."):
            yield

    def update(self, progress: Progress) -> None:
        """Show where training is. A signal that was lost elsewhere ends the work here."""
        interrupts.check()
        if self._bar is not None:
            self._bar.update(
                self._task, completed=progress.step, total=progress.num_updates, loss=progress.loss, kl=progress.kl
            )
            return
        left = progress.seconds / progress.step * (progress.num_updates - progress.step)
        skipped = f", {progress.skipped} updates skipped" if progress.skipped else ""
        self.say(
            f"update {progress.step}/{progress.num_updates}: loss {progress.loss:.4g}, KL {progress.kl:.4g}, "
            f"about {left:.0f} s left{skipped}"
        )

    def _console(self) -> Any:
        from rich.console import Console

        return Console() if _is_notebook() else Console(file=self.stream)


def _is_notebook() -> bool:
    """Whether output goes to a notebook, where rich draws by itself."""
    shell = sys.modules.get("IPython")
    instance = None if shell is None else shell.get_ipython()
    return instance is not None and type(instance).__name__ == "ZMQInteractiveShell"


QUIET = Reporter(quiet=True)
