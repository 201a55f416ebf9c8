"""The run folder: its file names, atomic writes, and a lock.

Every file is written under a temporary name in the same folder and then moved into place, so that a reader never sees a
partial file.
"""

import contextlib
import json
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SECONDS_TO_WRITE_A_LOCK = 5.0


class RunFolderError(ValueError):
    """What must hold of a run folder, what was found, and what to do."""


class RunFolder:
    """The files of one run, by name."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.provenance = self.path / "provenance.json"
        self.data = self.path / "data.nc"
        self.validation = self.path / "validation.nc"
        self.test = self.path / "test.nc"
        self.mle = self.path / "mle.langenode"
        self.checkpoint = self.path / "checkpoint.langenode"
        self.fit = self.path / "fit.langenode"
        self.history = self.path / "history.csv"
        self.convergence = self.path / "convergence.csv"
        self.predictions = self.path / "predictions.nc"
        self.metrics = self.path / "metrics.json"
        self.figures = self.path / "figures"
        self.report = self.path / "report.html"
        self.lock = self.path / ".lock"

    def companion(self, name: str) -> Path:
        """Return the file of another fit, for comparison."""
        return self.path / f"companion-{name}.langenode"

    def create(self, *, force: bool) -> None:
        """Make the folder; refuse one that already holds a run, or, with `force`, remove that run first."""
        if self.path.exists() and not self.path.is_dir():
            raise RunFolderError(f"a run needs a folder; {self.path} is a file; choose another --out")
        occupied = self.path.exists() and any(entry.name != self.lock.name for entry in self.path.iterdir())
        if occupied and not force:
            raise RunFolderError(f"a new run needs an empty folder; {self.path} is not; use --force or another --out")
        if occupied and not (self.config.exists() or self.provenance.exists()):
            raise RunFolderError(
                f"--force replaces only a run; {self.path} holds none (no config.toml); choose another --out"
            )
        if occupied:
            self._remove_run()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunFolderError(
                f"the run folder must be writable; {self.path}: {error.strerror}; choose another --out"
            ) from None

    def _remove_run(self) -> None:
        for entry in self.path.iterdir():
            if entry == self.lock:
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock; refuse a second process on the same folder, and take over a dead process's lock.

        A folder that was created for the lock and is still empty at the end is removed.
        """
        with _removed_if_new_and_empty(self.path):
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                _take_lock(self.lock)
            except OSError as error:
                what = error.strerror or str(error)
                raise RunFolderError(
                    f"the run folder must be writable; {self.path}: {what}; choose another --out"
                ) from None
            try:
                yield
            finally:
                self.lock.unlink(missing_ok=True)


@contextlib.contextmanager
def _removed_if_new_and_empty(path: Path) -> Iterator[None]:
    is_new = not path.exists()
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # not empty, or never created
                path.rmdir()


def _take_lock(path: Path) -> None:
    for _ in range(2):
        try:
            with path.open("x") as file:
                file.write(str(os.getpid()))
            return
        except FileExistsError:
            if _is_running(path):
                break
            path.unlink(missing_ok=True)
        except OSError:  # disk full: an empty lock has no owner
            path.unlink(missing_ok=True)
            raise
    raise RunFolderError(
        f"a run folder is for one process at a time; {path.parent} is in use; wait, or choose another --out"
    )


def _is_running(path: Path) -> bool:
    try:
        text = path.read_text()
        if not text:  # just created and its owner not yet written, or left by a process that died at that point
            return time.time() - path.stat().st_mtime < SECONDS_TO_WRITE_A_LOCK
        os.kill(int(text), 0)
    except (ValueError, ProcessLookupError, FileNotFoundError):
        return False
    except PermissionError:
        return True
    return True


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: it appears complete or not at all."""
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files that belong together: none is moved into place before all are on disk."""
    temporaries: dict[Path, Path] = {}
    try:
        for path, content in contents.items():
            _make_folder(path.parent)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            temporaries[path] = Path(name)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            temporaries[path].chmod(0o644)
        for path, temporary in temporaries.items():
            temporary.replace(path)
    except BaseException:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
        raise


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
    write_text(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


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


def read_record(path: Path, *, remedy: str = "delete it, or make the run again") -> dict[str, Any]:
    """Read a JSON file that holds a mapping; empty if there is no file."""
    found = read_json(path, remedy=remedy)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise RunFolderError(f"{path.name} must hold a JSON object; {path} holds another value; {remedy}")
    return found


def read_json(path: Path, *, remedy: str) -> Any:
    """Read a JSON file; None if there is no file."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunFolderError(f"{path.name} must be JSON; {path} is damaged ({error}); {remedy}") from None


def read_config(folder: RunFolder) -> dict[str, Any]:
    """Read the resolved configuration; a folder is a run if it has one."""
    if not folder.path.is_dir():
        raise RunFolderError(f"a run is a folder; found none at {folder.path}; check the name")
    if not folder.config.is_file():
        raise RunFolderError(f"a run folder holds a config.toml; {folder.path} has none; name the folder of a run")
    try:
        return tomllib.loads(folder.config.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RunFolderError(f"a configuration must be TOML; {folder.config} is not ({error}); correct it") from None


def read_metrics(folder: RunFolder) -> dict[str, Any]:
    """Read the numbers of an evaluated run."""
    remedy = f"run: langenode evaluate {folder.path}"
    if not folder.metrics.is_file():
        raise RunFolderError(f"a run must be evaluated first; {folder.path} has no metrics.json; {remedy}")
    return read_record(folder.metrics, remedy=f"{remedy} --force")
