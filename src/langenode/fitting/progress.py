"""Progress of long work: a live display in a terminal or a notebook, lines in a log.

Whatever takes longer than a few seconds says how far it is, and how much time is left where that can be known: by the
steps done, without the compilation before them. Work that has no steps says how long it has been going on.
"""

import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TextIO

from langenode.fitting import compiling
from langenode.inference.training import Progress
from langenode.storage import interrupts

Stream = io.TextIOBase | TextIO
# Seconds between two lines of one task in a log.
BETWEEN_LINES = 3.0
# After this long without a line, one says what is being done; longer work is quieter, up to the last.
SHORTEST_SILENCE, LONGEST_SILENCE = 15.0, 60.0
# Compilation below this is not worth a word.
LEAST_COMPILATION = 1.0


class Task:
    """One piece of work: its begin, its compilation, and how far it is."""

    def __init__(self, reporter: "Reporter", title: str, *, first: int = 0, row: Any = None):
        self.title, self.row, self.note = title, row, ""
        self.done, self.total = first, None
        self._reporter, self._part, self._first = reporter, "", first
        self._begin = self._last = self._now()
        self._part_begin, self._last_line = self._begin, self._begin.time

    @property
    def name(self) -> str:
        """The title, with the part that is being done."""
        return f"{self.title}, {self._part}" if self._part else self.title

    @property
    def seconds(self) -> float:
        """How long it has been at work."""
        return self._reporter.clock() - self._begin.time

    @property
    def compilation(self) -> float:
        """How much of that was compilation."""
        return self._reporter.compiled() - self._begin.compiled

    def at(self, done: int, total: int | None = None, part: str = "") -> None:
        """Show that `done` of `total` steps of a part are done."""
        self.move(done, total, part)
        is_due = self._last.time - self._last_line >= BETWEEN_LINES
        self._reporter.show(self, f"{self.name}: {self.note}" if is_due else None)
        self._last_line = self._last.time if is_due else self._last_line

    def move(self, done: int, total: int | None, part: str = "", figures: str = "") -> None:
        """Take note of where the work is. A signal that was lost elsewhere ends it here."""
        interrupts.check()
        if part != self._part:
            self._part, self._first, self._part_begin = part, 0, self._last
        self.done, self.total, self._last = done, total, self._now()
        counted = f"{done}/{total}" if total is not None else f"{done}"
        self.note = ", ".join(words for words in (counted, figures, self._left()) if words)

    def _left(self) -> str:
        """The time left by the steps of this part so far, without compilation."""
        if self.total is None or not self._first < self.done < self.total:
            return ""
        seconds = (self._last.time - self._part_begin.time) - (self._last.compiled - self._part_begin.compiled)
        return f"about {duration(max(seconds, 0.0) / (self.done - self._first) * (self.total - self.done))} left"

    def _now(self) -> "_Instant":
        return _Instant(self._reporter.clock(), self._reporter.compiled())


class _Instant(NamedTuple):
    """A time, and the seconds of compilation until then."""

    time: float
    compiled: float


class Reporter:
    """Says what is being done.

    In a terminal, and in a notebook, it is a live display (rich); elsewhere it is lines: one per block of updates, and
    one every few seconds of other work. `clock` and `compiled` are seconds, in all and of compilation.
    """

    def __init__(
        self,
        stream: Stream | None = None,
        *,
        quiet: bool = False,
        verbose: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        compiled: Callable[[], float] = compiling.seconds,
    ):
        self.stream = sys.stderr if stream is None else stream
        self.quiet, self.verbose = quiet, verbose
        self.clock, self.compiled = clock, compiled
        self._tasks: list[Task] = []
        self._display: Any = None
        self._heart: _Heart | None = None
        self._said = 0.0
        self._training: Task | None = None

    @property
    def is_live(self) -> bool:
        """Whether a display can be drawn over and over."""
        return not self.quiet and (_is_terminal(self.stream) or _is_notebook())

    def say(self, text: str) -> None:
        """One line. A signal that was lost elsewhere ends the work here."""
        interrupts.check()
        self._print(text)

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        self._said = self.clock()
        if self._display is not None:
            self._display.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self.stream, flush=True)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Say how long a stage took, and how much of it was compilation."""
        if self.verbose:
            self.say(f"{name} ...")
        with self.task(name) as task:
            yield
        apart = task.compilation
        compiled = f", {apart:.1f} s of it compilation" if apart > LEAST_COMPILATION else ""
        self.say(f"{name}: {task.seconds:.1f} s{compiled}")

    @contextmanager
    def task(self, title: str, *, first: int = 0) -> Iterator[Task]:
        """Show a piece of work while it is done; `first` of its steps were done before."""
        if self.quiet:
            yield Task(self, title, first=first)
            return
        self._open()
        row = None if self._display is None else self._display.add_task(title, total=None, note="")
        task = Task(self, title, first=first, row=row)
        self._tasks.append(task)
        try:
            yield task
        finally:
            self._tasks.remove(task)
            if self._display is not None:
                self._display.remove_task(row)
            self._close()

    def show(self, task: Task, line: str | None) -> None:
        """Show where a task is; the line is for a log."""
        if self._display is not None:
            place = {"total": task.total, "completed": task.done}
            self._display.update(task.row, description=task.name, note=task.note, **place)
        elif line is not None:
            self._print(line)

    # Training, which has a line per block in any case

    @contextmanager
    def training(self, title: str, *, first: int = 0) -> Iterator[None]:
        """Show the progress of one fit, given to `update`; `first` updates were done before."""
        if not self.is_live and not self.quiet:
            self.say(f"{title}: training")
        with self.task(title, first=first) as task:
            self._training = task
            yield
        self._training = None

    def update(self, progress: Progress) -> None:
        """Show where training is."""
        task = self._training
        if task is None or self.quiet:
            interrupts.check()
            return
        is_first = not task.note
        figures = f"loss {progress.loss:.4g}, KL {progress.kl:.4g}"
        figures += f", {progress.skipped} updates skipped" if progress.skipped else ""
        task.move(progress.step, progress.num_updates, figures=figures)
        apart = task.compilation
        before = f", after {duration(apart)} of compilation" if is_first and apart > LEAST_COMPILATION else ""
        self.show(task, f"update {task.note.replace(', ', ': ', 1)}{before}")

    # The display, and the heart that beats where there is none

    def _open(self) -> None:
        if self._tasks:
            return
        self._said = self.clock()
        if not self.is_live:
            self._heart = _Heart(self.beat)
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        stream: Any = self.stream
        console = Console() if _is_notebook() else Console(file=stream)
        words = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
        columns = (SpinnerColumn(), words[0], BarColumn(bar_width=20), TimeElapsedColumn(), words[1])
        self._display = Progress(*columns, console=console, transient=True)
        self._display.start()

    def _close(self) -> None:
        if self._tasks:
            return
        if self._display is not None:
            self._display.stop()
            self._display = None
        if self._heart is not None:
            self._heart.stop()
            self._heart = None

    def beat(self) -> None:
        """Say what is being done where nothing has been said for long."""
        tasks = list(self._tasks)
        if not tasks:
            return
        seconds = tasks[-1].seconds
        if self.clock() - self._said >= min(max(SHORTEST_SILENCE, seconds / 4.0), LONGEST_SILENCE):
            names = ", ".join(dict.fromkeys(task.name for task in tasks))
            apart = tasks[-1].compilation
            compiled = f", {duration(apart)} of it compilation" if apart > LEAST_COMPILATION else ""
            last = f", at {tasks[-1].note}" if tasks[-1].note else ""
            self._print(f"at work on {names}: {duration(seconds)} so far{compiled}{last}")


class _Heart:
    """A thread that calls a function every second until it is stopped."""

    def __init__(self, beat: Callable[[], None], seconds: float = 1.0):
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(beat, seconds), daemon=True, name="progress")
        self._thread.start()

    def _run(self, beat: Callable[[], None], seconds: float) -> None:
        with suppress(OSError, ValueError):  # nobody reads any more
            while not self._stopped.wait(seconds):
                beat()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()


def duration(seconds: float) -> str:
    """Return seconds, minutes or hours in few letters."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 5970.0 else f"{seconds / 3600.0:.1f} h"


def _is_terminal(stream: Stream) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


def _is_notebook() -> bool:
    """Whether output goes to a notebook, where rich draws by itself."""
    shell = sys.modules.get("IPython")
    instance = None if shell is None else shell.get_ipython()
    return instance is not None and type(instance).__name__ == "ZMQInteractiveShell"


QUIET = Reporter(quiet=True)
