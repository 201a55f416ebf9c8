"""Signals that end a command: they interrupt no change of files half way, and none is lost.

What a signal raises can be swallowed: Python ignores exceptions inside a garbage-collection callback, and JAX has one.
So the signal is also remembered, and `check` raises it again between two pieces of work. `deferred` keeps it back while
a file changes hands. Only the command installs handlers (`caught`); in a program that uses the library nothing changes.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
# A compiled program or a compilation cannot be interrupted; after so many seconds the process ends without it.
SECONDS_TO_END = 8.0


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command; `number` is the signal's."""

    def __init__(self, number: int):
        super().__init__(f"signal {number}")
        self.number = number


class _State:
    """What is known of signals; there is one, since signals belong to a process."""

    def __init__(self):
        self.received: int | None = None
        self.depth = 0
        self.is_ending = False
        self.cleanups: list[Callable[[], None]] = []
        self.on_sudden_end: Callable[[int], None] | None = None


_STATE = _State()


def received() -> int | None:
    """The number of the signal that asked the command to end, if one did."""
    return _STATE.received


def check() -> None:
    """Raise where a signal has asked the command to end: its exception may have been swallowed elsewhere."""
    if _STATE.received is not None and not _STATE.is_ending and not _STATE.depth:
        raise Interrupted(_STATE.received)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Keep signals back; what arrives meanwhile is raised at the end."""
    _STATE.depth += 1
    try:
        yield
    finally:
        _STATE.depth -= 1
    check()


def at_sudden_end(cleanup: Callable[[], None]) -> None:
    """Register what must be tidied up where the process ends without unwinding its stack."""
    _STATE.cleanups.append(cleanup)


def tidy_up() -> None:
    """Do what was registered; each part is tried."""
    for cleanup in _STATE.cleanups:
        with contextlib.suppress(Exception):
            cleanup()


def begin_to_end() -> None:
    """From here on signals change nothing: the command is on its way out."""
    _STATE.is_ending = True


def is_ending() -> bool:
    """Whether the command is on its way out."""
    return _STATE.is_ending


@contextlib.contextmanager
def caught(on_sudden_end: Callable[[int], None], *, for_good: bool = False) -> Iterator[None]:
    """Handle signals while a command runs, in the main thread of a process.

    A signal raises `Interrupted`. Where that does not end the command in time (a long compilation), or a second signal
    comes, `on_sudden_end` is called with the first signal's number, in another thread, and must end the process; while
    a module is loaded it is called at once. At the end the handlers are what they were before, or, `for_good`, signals
    are ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _STATE.received, _STATE.depth, _STATE.is_ending, _STATE.on_sudden_end = None, 0, False, on_sudden_end
    # A signal that the parent told us to ignore (nohup, a shell's background job) stays ignored.
    before = {number: signal.getsignal(number) for number in SIGNALS}
    handled = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    watcher, hook = _Watcher(on_sudden_end), sys.unraisablehook
    sys.unraisablehook = _silent_about_signals(hook)
    try:
        for number in handled:
            signal.signal(number, _handle)
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_IGN if for_good else before[number])
        sys.unraisablehook = hook
        watcher.stop()


def _silent_about_signals(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """What Python says of exceptions that it ignores, but for those of signals: they are raised again by `check`."""
    return lambda ignored: None if issubclass(ignored.exc_type, Interrupted) else hook(ignored)


def _handle(number: int, frame: FrameType | None) -> None:
    is_first = _STATE.received is None
    if is_first:
        _STATE.received = number
    if is_first and not _STATE.depth and not _STATE.is_ending:
        if _is_import(frame) and _STATE.on_sudden_end is not None:
            _STATE.on_sudden_end(number)
        raise Interrupted(number)


def _is_import(frame: FrameType | None) -> bool:
    """Whether a module is being loaded: compiled modules print what is raised meanwhile, with its traceback."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class _Watcher:
    """A thread that hears of signals even while the main thread is inside a compiled program."""

    def __init__(self, on_sudden_end: Callable[[int], None]):
        self._on_sudden_end = on_sudden_end
        self._hears, self._tells = os.pipe()
        os.set_blocking(self._tells, False)
        self._before = signal.set_wakeup_fd(self._tells, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, daemon=True, name="langenode-signals")
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        signal.set_wakeup_fd(self._before)
        with contextlib.suppress(OSError):
            os.write(self._tells, b"\0")
        self._thread.join()
        os.close(self._hears)
        os.close(self._tells)

    def _watch(self) -> None:
        first = self._next_signal(None)
        if first and self._next_signal(SECONDS_TO_END) != 0:
            self._on_sudden_end(first)

    def _next_signal(self, seconds: float | None) -> int | None:
        """The number of the next signal of ours; 0 where the watch is over, None where time is up."""
        while select.select([self._hears], [], [], seconds)[0]:
            number = os.read(self._hears, 1)[0]
            if number == 0 or number in SIGNALS:
                return number
        return None
