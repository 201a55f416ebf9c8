"""The command: it parses, prints and exits.

Belongs here: verbs, options, tables on the screen, exit codes. Does not belong here: science, or anything that a Python
user would miss.
"""

import errno
import json
import sys
import warnings
from typing import Any

import typer

from langenode.cli.exit_codes import EXIT_BUG, EXIT_FIT, EXIT_INPUT, EXIT_INTERRUPTED
from langenode.cli.verbs import app

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


def main() -> None:
    """Entry point: one line for people, and an exit code for scripts (0 done, 1 our bug, 2 input, 3 the fit failed)."""
    warnings.showwarning = _show_warning
    try:
        code = app(sys.argv[1:] or ["--help"], prog_name="langenode", standalone_mode=False)
        if code == EXIT_INTERRUPTED:  # typer has turned the signal into an exit code of its own
            raise KeyboardInterrupt
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        print("langenode: interrupted; the same command resumes where it was", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        code = _exit_code(error)
        if code is None or {"-v", "--verbose"} & set(sys.argv):
            import traceback

            traceback.print_exc()
        if code is None:
            print("langenode: this is a bug of ours; please report the lines above", file=sys.stderr)
            sys.exit(EXIT_BUG)
        message = _one_line(error)
        print(f"langenode: {message}", file=sys.stderr)
        if "--json" in sys.argv:
            print(json.dumps({"error": message, "exit_code": code}))
        sys.exit(code)


def _one_line(error: Any) -> str:
    if _is_usage(error):
        command = "langenode" if error.ctx is None else error.ctx.command_path
        return " ".join(f"{error.format_message().rstrip('.')}; see {command} --help".split())
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        where = f" to {error.filename}" if error.filename else ""
        return f"results must be written{where}; {DISK_ERRORS[error.errno]}"
    return " ".join(str(error).split())


def _is_usage(error: Any) -> bool:
    """Whether the words of the command line were wrong (typer brings its own copy of click's class)."""
    return hasattr(error, "format_message") and hasattr(error, "ctx")


def _exit_code(error: Exception) -> int | None:
    if _is_usage(error):
        return EXIT_INPUT
    from langenode.config import ConfigError
    from langenode.data import DataError
    from langenode.inference.errors import FitError
    from langenode.storage.container import FitFileError
    from langenode.storage.folder import RunFolderError

    if isinstance(error, FitError):
        return EXIT_FIT
    is_input = isinstance(error, ConfigError | DataError | FitFileError | RunFolderError)
    is_disk = isinstance(error, OSError) and error.errno in DISK_ERRORS
    return EXIT_INPUT if is_input or is_disk else None


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    print(f"langenode: warning: {message}", file=sys.stderr)


__all__ = ["app", "main"]
