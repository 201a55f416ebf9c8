"""Standard output and error, which may be closed, full, or unable to show a letter."""

import contextlib
import io
import os
import sys
from typing import Any

from langenode.cli.exit_codes import EXIT_INPUT


class ClosedError(Exception):
    """Standard output is closed, where a result was to be printed."""


def prepare() -> None:
    """Make streams safe to write to: one that is closed is replaced, and letters that cannot be shown are escaped."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # a command started with >&-: no other file may get that number, and be written to by mistake
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def output() -> Any:
    """Standard output, if it is open."""
    if sys.stdout is None or sys.stdout.closed:  # a command started with >&-
        raise ClosedError
    return sys.stdout


def flush() -> None:
    """Write out what is buffered, so that an error is met while it can be told."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def say(text: str) -> None:
    """Print a line on standard error, as far as there is one."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def print_quietly(text: str) -> None:
    """Print a line on standard output, as far as there is one."""
    with contextlib.suppress(OSError, ValueError, ClosedError):
        print(text, file=output(), flush=True)


def say_closed() -> int:
    """Say that results cannot be printed; return the exit code."""
    with contextlib.suppress(OSError, ValueError):  # what is buffered would fail again at Python's end
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    say(
        "langenode: results must be printed somewhere; standard output was closed; leave it open, or read the files "
        "that were written"
    )
    return EXIT_INPUT


def say_at_once(text: str) -> None:
    """Print a line on standard error past all buffers, whose locks another thread may hold."""
    with contextlib.suppress(OSError):
        cursor = "\x1b[?25h" if os.isatty(2) else ""  # which a live bar hides
        os.write(2, f"{cursor}{text}\n".encode("utf-8", errors="backslashreplace"))
