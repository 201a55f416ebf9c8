"""Tasks side by side: in processes of this machine, or by the workers of a Dask scheduler.

A task is a function by its name with arguments that are text or numbers. It writes what it makes to files, under a
temporary name that is then changed (`storage.writing`), skips what is there already, and returns paths: then a worker
that is killed costs no more than the task it was in.
"""

import contextlib
import importlib
import json
import os
import queue
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from langenode.config import ConfigError
from langenode.runs.processes import THREADS, num_cores, terminated_is_interrupted
from langenode.runs.worker_process import called
from langenode.storage import interrupts

Argument = str | int | float | bool | None
OnEnd = Callable[[str, Any], None]

# How often a task is begun again after its worker was killed under it: a task that kills workers must end, too.
MOST_RETRIES = 2
SECONDS_TO_CONNECT = 20.0
SECONDS_TO_STOP = 5.0


class TaskError(Exception):
    """What a task failed of; `traceback` is the worker's own, empty where the worker was killed."""

    def __init__(self, message: str, traceback: str = ""):
        super().__init__(message)
        self.traceback = traceback


def run_tasks(
    function: Callable[..., Any],
    arguments: Mapping[str, Sequence[Argument]],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    on_end: OnEnd,
) -> None:
    """Call a function with each of the named arguments; `on_end(name, result)` hears of each, in the calling thread.

    `function` is one that a module has at its top; its results are text, numbers or lists of them. Where a task fails,
    `result` is a `TaskError`, and the others go on. Without a `scheduler` tasks run in `workers` processes of this
    machine (as many as cores by default), started anew and not forked, which JAX would not survive; else by the workers
    of the Dask scheduler at that address, however many it has. An interrupt, or an error in `on_end`, ends them all.
    """
    name = _name_of(function)
    if not arguments:
        return
    if scheduler is not None:
        _run_by_dask(name, arguments, scheduler, on_end)
    else:
        _run_here(name, arguments, min(workers or num_cores(), len(arguments)), on_end)


def _name_of(function: Callable[..., Any]) -> str:
    """`module:function`, by which another process finds it."""
    module, name = getattr(function, "__module__", "__main__"), getattr(function, "__qualname__", "?")
    found = None if module == "__main__" else getattr(importlib.import_module(module), name, None)
    if found is not function:
        raise ValueError(
            f"a task must be a function at the top of a module that can be imported; got {module}.{name}; move it there"
        )
    return f"{module}:{name}"


def _result_of(answer: Mapping[str, Any]) -> Any:
    return TaskError(answer["error"], answer["traceback"]) if "error" in answer else answer["result"]


# On this machine


def _run_here(name: str, arguments: Mapping[str, Sequence[Argument]], workers: int, on_end: OnEnd) -> None:
    crew = _Crew(workers)
    with terminated_is_interrupted(), ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(crew.run, name, given): task for task, given in arguments.items()}
        try:
            for future in as_completed(futures):
                on_end(futures[future], _result_of(future.result()))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            crew.stop()


class _Crew:
    """Processes that call functions. They are started as they are needed, and each takes one task after another."""

    def __init__(self, workers: int):
        share = str(max(1, num_cores() // workers))
        path = os.pathsep.join(part or str(os.getcwd()) for part in sys.path)  # noqa: PTH109
        self._environment = {**dict.fromkeys(THREADS, share), **os.environ, "PYTHONPATH": path}
        self._lock = threading.Lock()
        self._all: set[subprocess.Popen[str]] = set()
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        self._is_stopped = False

    def run(self, name: str, arguments: Sequence[Argument]) -> dict[str, Any]:
        """Have a process call the function; where the process is killed, another begins the task again."""
        code: int | None = None
        for _ in range(1 + MOST_RETRIES):
            worker = self._worker()
            if worker is None:
                return {"error": "the tasks were ended", "traceback": ""}
            answer = _ask(worker, json.dumps([name, list(arguments)]))
            if answer is not None:
                self._idle.put(worker)
                return json.loads(answer)
            code = self._dismiss(worker)
        what = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        words = f"a worker must live as long as its task; {1 + MOST_RETRIES} were ended in this one, the last {what}"
        return {"error": f"{words}; look for a lack of memory", "traceback": ""}

    def _worker(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._is_stopped:
                return None
            with contextlib.suppress(queue.Empty):
                return self._idle.get_nowait()
            words = [sys.executable, "-m", "langenode.runs.worker_process"]
            pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
            worker: subprocess.Popen[str] = subprocess.Popen(words, env=self._environment, **pipes)
            self._all.add(worker)
            _ALIVE.add(worker)
            return worker

    def _dismiss(self, worker: subprocess.Popen[str]) -> int:
        """Make sure that a process is gone; return its exit code."""
        assert worker.stdin is not None and worker.stdout is not None
        with contextlib.suppress(OSError):
            worker.stdin.close()
        try:
            code = worker.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            worker.kill()
            code = worker.wait()
        worker.stdout.close()
        with self._lock:
            self._all.discard(worker)
            _ALIVE.discard(worker)
        return code

    def stop(self) -> None:
        """End all; they end by themselves when nobody can ask them any more."""
        with self._lock:
            self._is_stopped = True
            running = list(self._all)
        for worker in running:
            _close(worker)
        for worker in running:
            self._dismiss(worker)


_ALIVE: set[subprocess.Popen[str]] = set()


def _ask(worker: subprocess.Popen[str], request: str) -> str | None:
    """The worker's answer; None where it is gone."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(request + "\n")
        worker.stdin.flush()
        return worker.stdout.readline() or None
    except (OSError, ValueError):  # a broken pipe, or one that `stop` has closed
        return None


def _close(worker: subprocess.Popen[str]) -> None:
    with contextlib.suppress(OSError):
        if worker.stdin is not None:
            worker.stdin.close()


def _end_all() -> None:
    """For our own sudden end."""
    for worker in list(_ALIVE):
        worker.kill()


interrupts.at_sudden_end(_end_all)


# By a Dask scheduler


def _run_by_dask(name: str, arguments: Mapping[str, Sequence[Argument]], address: str, on_end: OnEnd) -> None:
    distributed = _distributed()
    with connected(address) as client, terminated_is_interrupted():
        mark = uuid.uuid4().hex  # an earlier request with the same names is another one
        tasks = {f"langenode-{task}-{mark}": task for task in arguments}
        # Dask begins a task again by itself where a worker is lost; the scheduler's `allowed-failures` bounds that.
        futures = [
            client.submit(called, name, list(arguments[task]), key=key, pure=False) for key, task in tasks.items()
        ]
        try:
            for future, found in distributed.as_completed(
                futures, loop=client.loop, with_results=True, raise_errors=False
            ):
                on_end(tasks[future.key], _dask_result(future, found))
                future.release()  # its result is ours now: no worker need keep or repeat it
        except BaseException:
            client.cancel(futures, force=True)
            raise


def _dask_result(future: Any, found: Any) -> Any:
    if future.status == "finished":
        return _result_of(found)
    error = found[1] if isinstance(found, tuple) else found
    if future.status == "cancelled":
        return TaskError("the scheduler must last as long as the tasks; it was lost; start it again, and the command")
    return TaskError(f"{type(error).__name__}: {error}")


def is_wanted() -> bool:
    """Whether the task that runs in this thread is still asked for: it may end where its asker has gone."""
    if "distributed" not in sys.modules:
        return True
    try:
        worker = _distributed().get_worker()
        known = worker.state.tasks.get(worker.get_current_task())
    except (ValueError, AttributeError):  # no task of Dask's, or another version of it
        return True
    return known is not None and known.state != "cancelled"


def check_scheduler(address: str) -> None:
    """Raise where no scheduler answers, before anything is changed."""
    with connected(address):
        pass


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address."""
    distributed = _distributed()
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ConfigError(
            f"a Dask scheduler must answer at its address; got {address!r} ({type(error).__name__}: {error}); start "
            "one with `dask scheduler`, or correct --scheduler"
        ) from None
    with client:
        if not client.scheduler_info()["workers"]:
            warnings.warn(f"the scheduler at {address} has no workers yet; tasks begin when some join", stacklevel=3)
        yield client


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise ConfigError(
            "a scheduler needs the dask and distributed packages; they are not installed; pip install "
            "'langenode[cluster]'"
        ) from None
    return distributed
