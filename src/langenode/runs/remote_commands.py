"""Named commands by the workers of a Dask scheduler, each a process beside its worker that ends with it.

All machines must see the same files at the same places. A worker gives a command one core for each of its threads,
unless the environment of the worker says otherwise (`NPROC`, `OMP_NUM_THREADS`).
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from langenode.runs import tether
from langenode.runs.processes import THREADS, Ended
from langenode.runs.workers import TaskError, is_wanted, run_tasks
from langenode.storage.folder import RunFolder, RunFolderError

# How often a worker looks whether its command has ended or is still wanted, in seconds.
LOOK = 0.25
# A command that is begun again waits for the one before it, whose worker was killed, to leave the folder.
SECONDS_TO_LEAVE = 30.0
LONGEST_OUTPUT = 10_000


def run_commands_remotely(
    commands: Mapping[str, Sequence[str]],
    folders: Mapping[str, Path],
    logs: Path,
    *,
    scheduler: str,
    on_end: Callable[[str, Ended], None],
) -> None:
    """Run named commands by workers; each writes into a folder, and its standard error to a file of its name in `logs`.

    A killed worker repeats the command it was in, which resumes from what it has written. An interrupt ends all.
    """
    here = str(Path.cwd())
    # A worker's Python may lie elsewhere; an empty word stands for it.
    words = {name: ["" if word == sys.executable else word for word in command] for name, command in commands.items()}
    log = {name: (logs / f"{name}.log").resolve() for name in commands}
    tasks = {name: (here, str(folders[name].resolve()), str(log[name]), *words[name]) for name in commands}

    def on_task_end(name: str, result: TaskError | list) -> None:
        if isinstance(result, TaskError):
            on_end(name, Ended(1, "", _noted(log[name], result), 0.0))
        else:
            code, out, seconds = result
            on_end(name, Ended(code, out, log[name], seconds))

    run_tasks(run_command, tasks, scheduler=scheduler, on_end=on_task_end)


def _noted(log: Path, error: TaskError) -> Path:
    """Add what befell a task to the log of its command; return the log."""
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{error.traceback}\n{error}\n")
    return log


def run_command(here: str, folder: str, log: str, *words: str) -> list:
    """Run a command in the directory `here` and return its exit code, the end of what it printed, and its seconds."""
    if not Path(here).is_dir() or not Path(log).parent.is_dir():
        raise FileNotFoundError(
            f"workers must see the files of whoever asks; {log} cannot be made on {os.uname().nodename}; use a folder "
            "on a file system that all machines share"
        )
    _wait_until_free(Path(folder))
    begin = time.monotonic()
    share = os.environ.get("OMP_NUM_THREADS", "1")  # Dask says 1: one core for each thread of a worker
    listened, held = os.pipe()
    try:
        with Path(log).open("wb") as errors:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", tether.__file__, *(word or sys.executable for word in words)],
                cwd=here,
                env=dict.fromkeys(THREADS, share) | dict(os.environ),
                stdin=listened,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # a terminal's interrupt ends the worker, and by that the command
            )
    finally:
        os.close(listened)
    out = _output(process, held)
    said = out.decode("utf-8", errors="replace")[-LONGEST_OUTPUT:] if process.returncode else ""
    return [process.returncode, said, time.monotonic() - begin]


def _output(process: subprocess.Popen[bytes], held: int) -> bytes:
    """What a process prints until it ends; one that nobody asks for any more is told so, by the end of its input."""
    is_held = True
    while True:
        try:
            out = process.communicate(timeout=LOOK)[0]
            break
        except subprocess.TimeoutExpired:
            if is_held and not is_wanted():
                os.close(held)
                is_held = False
    if is_held:
        os.close(held)
    return out


def _wait_until_free(folder: Path) -> None:
    """Wait until no other process holds the folder's lock; in the end the command itself says who does."""
    until = time.monotonic() + SECONDS_TO_LEAVE
    while folder.is_dir() and time.monotonic() < until and is_wanted():
        try:
            with RunFolder(folder).locked():
                return
        except RunFolderError:
            time.sleep(LOOK)
