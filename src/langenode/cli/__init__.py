"""The command: it parses, prints and exits.

Belongs here: verbs, options, tables on the screen, exit codes. Does not belong here: science, or anything that a Python
user would miss.
"""

import contextlib
import errno
import gc
import json
import os
import signal
import sys
import warnings
from typing import Any, NoReturn

from langenode.cli import streams
from langenode.cli.exit_codes import EXIT_BUG, EXIT_FIT, EXIT_INPUT, EXIT_SIGNAL
from langenode.storage import interrupts

# What the file system may refuse, by whose doing it is not ours to guess: said in one line.
DISK_ERRORS = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "a file may not grow that large here; choose another folder",
    errno.EROFS: "the folder is read-only; choose another",
    errno.EACCES: "permission is denied; choose another folder",
    errno.EPERM: "permission is denied; choose another folder",
    errno.EISDIR: "it is a folder; choose another name",
    errno.ENOTDIR: "a part of that path is a file; choose another folder",
    errno.EEXIST: "a part of that path is a file; choose another folder",
    errno.ENAMETOOLONG: "the name is too long; choose another",
}


# After how many new objects Python looks for cycles among them. By its own choice, 700, it does so all the time while
# libraries are loaded and programs traced, which then takes a fifth longer.
NEW_OBJECTS = 50_000


def command() -> NoReturn:
    """Entry point of the process."""
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    main(is_process=True)
    sys.exit(0)


def main(*, is_process: bool = False) -> None:
    """Do what the words of the command line say: one line for people, and an exit code for scripts.

    0 done, 1 our bug, 2 input, 3 the fit failed, 130 interrupted, 143 terminated. Where the process is the command's
    own, signals change nothing in what is left of it.
    """
    warnings.showwarning = _show_warning
    # For every program that it reads from disk XLA logs two errors, of preferences that are no instructions. This is
    # read when the library is loaded.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    streams.prepare()
    with interrupts.caught(_end_at_once, for_good=is_process):
        code = _outcome()
    if code and is_process and "--distributed" in sys.argv:
        # JAX would wait at the end of Python for the other processes, which this one has just left.
        with contextlib.suppress(OSError, ValueError, streams.ClosedError):
            streams.flush()
        os._exit(code)
    if code:
        sys.exit(code)


def _outcome() -> int:
    try:
        _refuse_unwritable(sys.argv)
        # Imported here, so that a signal finds its handler while libraries are loaded.
        from langenode.cli.verbs import app

        code = app(sys.argv[1:] or ["--help"], prog_name="langenode", standalone_mode=False)
        if code == EXIT_SIGNAL + signal.SIGINT:  # typer has turned the signal into an exit code of its own
            raise KeyboardInterrupt
        interrupts.check()
        streams.flush()
        interrupts.begin_to_end()
        return 0
    except BaseException as error:
        interrupts.begin_to_end()
        return _code_after(error)


def _code_after(error: BaseException) -> int:
    """Say in one line what ended the command, and return its exit code."""
    import typer

    if isinstance(error, typer.Exit):
        return error.exit_code
    number = interrupts.received()
    if number is not None or isinstance(error, KeyboardInterrupt | typer.Abort):
        # Whatever was raised: a signal can arrive inside a library, which makes something else of it.
        number = signal.SIGINT if number is None else number
        streams.say(_said_of(number))
        return EXIT_SIGNAL + number
    # Typer makes an exit of its own of a pipe that nobody reads.
    if isinstance(error, streams.ClosedError) or BrokenPipeError in (type(error), type(error.__context__)):
        return streams.say_closed()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    code = _exit_code(error)
    if code is None or {"-v", "--verbose"} & set(sys.argv):
        import traceback

        traceback.print_exception(error)
    if code is None:
        streams.say("langenode: this is a bug of ours; please report the lines above")
        return EXIT_BUG
    message = _one_line(error)
    streams.say(f"langenode: {message}")
    if "--json" in sys.argv:
        streams.print_quietly(json.dumps({"error": message, "exit_code": code}))
    return code


def _said_of(number: int) -> str:
    words = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
    return f"langenode: {words.get(signal.Signals(number), 'ended')}; the same command resumes where it was"


def _end_at_once(number: int) -> None:
    """End the process from another thread: the main one is inside a program that cannot be interrupted."""
    interrupts.tidy_up()
    if not interrupts.is_ending():
        streams.say_at_once(_said_of(number))
    os._exit(EXIT_SIGNAL + number)


def _refuse_unwritable(words: list[str]) -> None:
    """Names go into files and messages, which are UTF-8; a file system takes any bytes."""
    from langenode.config import ConfigError

    for word in words:
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(
                f"names on the command line must be UTF-8 text; found {os.fsencode(word)!r}; rename the file"
            ) from None


def _one_line(error: Any) -> str:
    if _is_usage(error):
        command = "langenode" if error.ctx is None else error.ctx.command_path
        return " ".join(f"{error.format_message().rstrip('.')}; see {command} --help".split())
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        where = f" to {error.filename}" if error.filename else ""
        return f"results must be written{where}; {DISK_ERRORS[error.errno]}"
    if _is_memory(error):
        return (
            "a fit must fit into memory; there is too little; lower training.num_samples or predict.num_samples, raise "
            "training.num_chunks, or use fewer data"
        )
    return " ".join(str(error).split())


def _is_usage(error: Any) -> bool:
    """Whether the words of the command line were wrong (typer brings its own copy of click's class)."""
    return hasattr(error, "format_message") and hasattr(error, "ctx")


def _is_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _exit_code(error: BaseException) -> int | None:
    if _is_usage(error):
        return EXIT_INPUT
    from langenode.config import ConfigError
    from langenode.data import DataError
    from langenode.inference.errors import FitError
    from langenode.storage.container import FitFileError
    from langenode.storage.folder import RunFolderError

    if isinstance(error, FitError) or _is_memory(error):
        return EXIT_FIT
    is_input = isinstance(error, ConfigError | DataError | FitFileError | RunFolderError)
    is_disk = isinstance(error, OSError) and error.errno in DISK_ERRORS
    return EXIT_INPUT if is_input or is_disk else None


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    streams.say(f"langenode: warning: {message}")


__all__ = ["command", "main"]
