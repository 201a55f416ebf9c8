"""A lock on a folder, held by the operating system: it ends with its process, however that ends.

The file is locked (flock), not merely there: the number inside is for people. A process that has the lock looks whether
the file it locked is still the one in the folder, since the holder before may have removed it meanwhile. On a file
system without locks the file's presence is the lock; then nobody can tell a dead process's lock from another's, so it
is never taken over.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from langenode.storage import interrupts

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None

# File systems without locks answer with one of these.
WITHOUT_LOCKS = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL}
# How often a lock may change hands while it is being taken.
MOST_TRIES = 1000


class InUseError(Exception):
    """Another process holds the lock; the text is what may be said of it and what to do."""


class _Held(NamedTuple):
    path: Path
    number: int  # of the open file


_HELD: dict[int, _Held] = {}


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock; raise `InUseError` where another process, or another part of this one, does."""
    held = None
    try:
        with interrupts.deferred():
            held = _take(path)
        yield
    finally:
        if held is not None:
            with interrupts.deferred():
                _release(held)


def release_all() -> None:
    """Release every lock of this process; for its sudden end."""
    for held in list(_HELD.values()):
        _release(held)


def _take(path: Path) -> _Held:
    for _ in range(MOST_TRIES):
        opened = _opened(path)
        if opened is None:
            continue
        number, is_new = opened
        try:
            if _lock(path, number, is_new=is_new) and _is_there(path, number):
                held = _HELD[number] = _Held(path, number)
                _say_who(number)
                return held
        except BaseException:
            os.close(number)
            raise
        os.close(number)
    raise InUseError("is in use; wait, or choose another --out")


def _opened(path: Path) -> tuple[int, bool] | None:
    """The open file and whether it is new; None where it was removed in this moment."""
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644), True
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags), False
    return None


def _lock(path: Path, number: int, *, is_new: bool) -> bool:
    try:
        if fcntl is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUseError(f"is in use{_who(number)}; wait, or choose another --out") from None
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
        if not is_new:
            raise InUseError(
                f"is in use{_who(number)}, or was when a process was killed; wait, or delete {path} if none is at work"
            ) from None
    return True


def _is_there(path: Path, number: int) -> bool:
    """Whether the open file is the one at the path."""
    try:
        return os.path.samestat(os.fstat(number), path.lstat())
    except FileNotFoundError:
        return False


def _say_who(number: int) -> None:
    with contextlib.suppress(OSError):  # a full disk: the lock holds without its number
        os.ftruncate(number, 0)
        os.lseek(number, 0, os.SEEK_SET)
        os.write(number, str(os.getpid()).encode())


def _who(number: int) -> str:
    with contextlib.suppress(OSError):
        os.lseek(number, 0, os.SEEK_SET)
        text = os.read(number, 20)
        if text.isdigit():
            return f" by process {text.decode()}"
    return ""


def _release(held: _Held) -> None:
    """Remove the file while it is still locked: whoever waits for it will see that it is gone."""
    if _HELD.pop(held.number, None) is None:
        return
    with contextlib.suppress(OSError):
        if _is_there(held.path, held.number):
            held.path.unlink()
    with contextlib.suppress(OSError):
        os.close(held.number)


interrupts.at_sudden_end(release_all)
