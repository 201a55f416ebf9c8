"""Commands side by side, each in a process of its own with its share of the cores; they end with us."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from langenode.storage import interrupts

# How libraries are told their share; XLA reads the first.
THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
SECONDS_TO_STOP = 5.0
_ALIVE: set[subprocess.Popen[bytes]] = set()


class Ended(NamedTuple):
    """What a command left: its exit code (minus the signal that ended it), its standard output, and its log file."""

    code: int
    out: str
    log: Path
    seconds: float


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_commands(
    commands: Mapping[str, Sequence[str]], logs: Path, *, jobs: int, on_end: Callable[[str, Ended], None]
) -> None:
    """Run named commands, `jobs` at a time; each writes its standard error to a file of its name in `logs`.

    The processes are started anew, not forked, which JAX would not survive. An interrupt of ours ends them all.
    """
    share = str(max(1, num_cores() // jobs))
    children = _Children(dict.fromkeys(THREADS, share) | dict(os.environ))
    with terminated_is_interrupted(), ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(children.run, words, logs / f"{name}.log"): name for name, words in commands.items()}
        try:
            for future in as_completed(futures):
                on_end(futures[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


class _Children:
    """Running processes; after `stop` no new one begins."""

    def __init__(self, environment: Mapping[str, str]):
        self._environment = environment
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def run(self, words: Sequence[str], log: Path) -> Ended:
        begin = time.monotonic()
        with log.open("wb") as errors:
            with self._lock:
                if self._is_stopped:
                    return Ended(-signal.SIGTERM, "", log, 0.0)
                process: subprocess.Popen[bytes] = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=self._environment
                )
                self._running.add(process)
                _ALIVE.add(process)
            out, _ = process.communicate()
        with self._lock:
            self._running.discard(process)
            _ALIVE.discard(process)
        return Ended(process.returncode, out.decode("utf-8", errors="replace"), log, time.monotonic() - begin)

    def stop(self) -> None:
        """End all. A terminal's interrupt has reached them as well, and they are given a moment to obey it."""
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        # Only a terminal's interrupt has reached them.
        seconds = SECONDS_TO_STOP if interrupts.received() in (None, signal.SIGINT) else 0.0
        end = time.monotonic() + seconds
        for process in running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()


def _end_all() -> None:
    """For our own sudden end; each process ends in its own good order."""
    for process in list(_ALIVE):
        process.terminate()


interrupts.at_sudden_end(_end_all)


@contextlib.contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """A batch system's SIGTERM ends the processes, too, as an interrupt does; the command has a handler of its own."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
