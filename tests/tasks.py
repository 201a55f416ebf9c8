"""Tasks that tests give to workers: importable, with few imports of their own."""

import os
import signal
import time
from pathlib import Path


def note(folder: str, text: str) -> str:
    """Add a letter to the file of that name, and return its path: how often a task was begun."""
    path = Path(folder) / text
    with path.open("a") as file:
        file.write("x")
    return str(path)


def process(folder: str, text: str) -> int:
    print("this is no answer")
    note(folder, text)
    time.sleep(0.05)
    return os.getpid()


def fail_or_not(folder: str, number: int) -> str:
    if number == 1:
        raise ValueError("one is refused")
    if number == 2:
        return Path(folder)  # pyright: ignore[reportReturnType]
    return note(folder, str(number))


def die_once(folder: str, text: str) -> str:
    path = note(folder, text)
    if text == "b" and Path(path).read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)
    return path


def die(folder: str, text: str) -> str:
    note(folder, text)
    os._exit(7)


def wait(folder: str, text: str, seconds: float = 60.0) -> str:
    path = note(folder, text)
    (Path(folder) / f"{text}.pid").write_text(str(os.getpid()))
    time.sleep(seconds)
    return path


def kill_when_begun(folder: str, name: str) -> None:
    """Kill the process that waits, once it does."""
    until = time.monotonic() + 60
    path = Path(folder) / f"{name}.pid"
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(int(path.read_text()), signal.SIGKILL)


def is_alive(number: int) -> bool:
    """Whether a process runs; one that nobody has waited for is dead."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
