"""Writing files whole: under a temporary name in the same folder, then moved into place.

A reader never sees a partial file. A process that is killed leaves temporaries; `sweep` removes those, known by their
pattern and by whose they are.
"""

import contextlib
import errno
import json
import os
import re
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from langenode.storage import interrupts

# What `data.save_data` uses as well.
TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{32}\.tmp", re.DOTALL)
LONGEST_NAME = 60  # of 255 bytes, in a script that takes up to four per letter
_UNFINISHED: set[Path] = set()


class RunFolderError(ValueError):
    """What must hold of a run folder, what was found, and what to do."""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: it appears complete or not at all."""
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes], *, before_moving: Callable[[], None] | None = None) -> None:
    """Write files that belong together: none is moved into place before all are on disk.

    `before_moving` is called once nothing is left to do but the moves, e.g. to make room for them.
    """
    temporaries: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            _make_folder(path.parent)
            temporaries[path] = temporary = temporary_for(path)
            _UNFINISHED.add(temporary)
            _write(temporary, content)
        with interrupts.deferred():
            if before_moving is not None:
                before_moving()
            for path, temporary in temporaries.items():
                temporary.replace(path)
    finally:
        for temporary in temporaries.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            _UNFINISHED.discard(temporary)


def temporary_for(path: Path) -> Path:
    """A name beside a file for its content while it is incomplete."""
    return path.with_name(f".{path.name[:LONGEST_NAME]}.{uuid.uuid4().hex}.tmp")


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        _sync(file.fileno())


def _sync(handle: int) -> None:
    """Put the content on disk before its name: a power failure must not leave an empty file in place of a whole one."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise


def sweep(folder: Path, is_ours: Callable[[str], bool]) -> None:
    """Remove the temporaries that killed processes left for files of ours; the caller holds the folder's lock."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in list(folder.iterdir()):
            found = TEMPORARY.fullmatch(entry.name)
            if found and is_ours(found["name"]) and entry.is_file() and not entry.is_symlink():
                entry.unlink(missing_ok=True)


def _remove_unfinished() -> None:
    for path in list(_UNFINISHED):
        path.unlink(missing_ok=True)


interrupts.at_sudden_end(_remove_unfinished)


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(
            f"results must be written to a folder; {path}: {error.strerror}; choose another --out"
        ) from None


def write_text(path: Path, content: str) -> None:
    """`write_bytes` for text."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: Path, content: Any) -> None:
    """`write_bytes` for JSON; NaN becomes null, since JSON has no NaN."""
    write_bytes(path, as_json(content))


def as_json(content: Any) -> bytes:
    """The content of a JSON file; NaN becomes null, since JSON has no NaN."""
    return (json.dumps(plain(content), indent=2, allow_nan=False) + "\n").encode()


def plain(value: Any) -> Any:
    """Convert a value to JSON types: lists for arrays and tuples, None where a number is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
