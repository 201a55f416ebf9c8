"""The run folder: its file names, what in it is the run's own, and its lock."""

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from langenode.storage import lock
from langenode.storage.records import (
    Metrics,
    is_provenance,
    read_checked,
    read_json,
    read_provenance,
    read_record,
    value_or_none,
)
from langenode.storage.writing import (
    RunFolderError,
    as_json,
    plain,
    sweep,
    write_bytes,
    write_json,
    write_text,
    write_together,
)

COMPANION = re.compile(r"companion-[\w.-]+\.langenode")
FOLD = re.compile(r"fold-\d+(-mle|-all)?\.langenode")
PICTURE = re.compile(r"[\w.-]+\.png")
# How often the folder may vanish while its lock is taken: another process removes an empty one that it had made.
MOST_TRIES = 100


class RunFolder:
    """The files of one run, by name. Every attribute that is a path, but `path`, is the run's own."""

    def __init__(self, path: Path):
        self.path = Path(path)
        # In the order in which they are made: the later ones are removed first.
        self.provenance = self.path / "provenance.json"
        self.config = self.path / "config.toml"
        self.data = self.path / "data.nc"
        self.validation = self.path / "validation.nc"
        self.test = self.path / "test.nc"
        self.mle = self.path / "mle.langenode"
        self.checkpoint = self.path / "checkpoint.langenode"
        self.fit = self.path / "fit.langenode"
        self.history = self.path / "history.csv"
        self.convergence = self.path / "convergence.csv"
        self.bands = self.path / "bands.csv"
        self.predictions = self.path / "predictions.nc"
        self.figures = self.path / "figures"
        self.metrics = self.path / "metrics.json"
        self.report = self.path / "report.html"
        self.lock = self.path / ".lock"

    def companion(self, name: str) -> Path:
        """Return the file of another fit, for comparison."""
        return self.path / f"companion-{name}.langenode"

    def fold_points(self, number: int) -> Path:
        """Return the file of the maximum-likelihood models of a fold, which is numbered from 0."""
        return self.path / f"fold-{number + 1}-mle.langenode"

    def fold_fit(self, number: int, name: str = "") -> Path:
        """Return the file of the fit of a fold, which is numbered from 0; `name` says which weights vary, if asked."""
        return self.path / f"fold-{number + 1}{name and f'-{name}'}.langenode"

    @property
    def figure_index(self) -> Path:
        """The list of the run's figures, with the words beside them."""
        return self.figures / "index.json"

    # What is the run's own

    @property
    def is_run(self) -> bool:
        """Whether a run was started here: a provenance.json of ours says so. A config.toml alone may be the user's."""
        return is_provenance(self.provenance)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in the folder but its lock."""
        return not self.path.is_dir() or all(path == self.lock for path in self.path.iterdir())

    def own_files(self) -> list[Path]:
        """Return the files that the run has written, in the order in which they are made; no other file is ours."""
        entries = sorted(self.path.iterdir()) if self.path.is_dir() else []
        # Files whose names are numbered or chosen, by the file before which they are made.
        several = {
            name: [path for path in entries if pattern.fullmatch(path.name)]
            for name, pattern in (("mle", FOLD), ("fit", COMPANION))
        }
        files: list[Path] = []
        for name, path in vars(self).items():
            if name == "figures":
                files += [self.figure_index, *(self.figures / file for file in self.figure_files())]
            elif isinstance(path, Path) and name not in ("path", "lock"):
                files += [*several.get(name, []), path]
        return [path for path in files if _is_entry(path)]

    def figure_files(self) -> list[str]:
        """Return the names of the pictures that the index lists; names of files elsewhere are left out."""
        index = value_or_none(self.figure_index)
        entries = [entry for entry in index if isinstance(entry, Mapping)] if isinstance(index, list) else []
        names = [entry.get("file") for entry in entries]
        return sorted({name for name in names if isinstance(name, str) and PICTURE.fullmatch(name)})

    def _is_own_name(self, name: str) -> bool:
        names = {path.name for path in vars(self).values() if isinstance(path, Path) and path != self.path}
        return name in names or any(pattern.fullmatch(name) for pattern in (COMPANION, FOLD))

    def is_free(self) -> bool:
        """Whether a run can begin here: nothing is there but what a killed process left of its first steps."""
        if not self.path.is_dir():
            return not _is_entry(self.path)
        names = {entry.name for entry in self.path.iterdir()} - {self.lock.name}
        return not names or (names == {self.provenance.name} and self.is_run)

    def clear(self) -> None:
        """Remove the run, the latest results first, and leave everything else where it is."""
        files = self.own_files()
        folders = [path for path in files if path.is_dir() and not path.is_symlink()]
        if folders:
            raise RunFolderError(
                f"--force replaces only files of a run; {folders[0]} is a folder; move it, or choose another --out"
            )
        for path in reversed(files):
            path.unlink(missing_ok=True)
        if self.figures.is_dir():
            sweep(self.figures, _is_own_figure)
            with contextlib.suppress(OSError):  # it has files of others
                self.figures.rmdir()

    def remove(self) -> None:
        """Remove the run, and its folder if nothing else is in it."""
        with self.locked():
            self.clear()
        with contextlib.suppress(OSError):
            self.path.rmdir()

    # Its beginning

    def check_can_begin(self, *, force: bool) -> None:
        """Refuse a folder that is not empty; with `force`, refuse one that holds something else than a run."""
        if _is_entry(self.path) and not self.path.is_dir():
            raise RunFolderError(f"a run needs a folder; {self.path} is a file; choose another --out")
        if self.is_free():
            return
        if not force:
            raise RunFolderError(f"a new run needs an empty folder; {self.path} is not; use --force or another --out")
        if not self.is_run:
            why = "its provenance.json is not a run's" if _is_entry(self.provenance) else "no provenance.json"
            raise RunFolderError(f"--force replaces only a run; {self.path} holds none ({why}); choose another --out")

    def begin(self, config: str, provenance: Mapping[str, Any], *, force: bool) -> None:
        """Begin a run in an empty folder or, with `force`, in place of another run.

        The other run is removed once the new one's configuration is on disk. A folder with a configuration is a run,
        so that comes last.
        """
        self.check_can_begin(force=force)
        contents = {self.provenance: as_json(dict(provenance)), self.config: config.encode("utf-8")}
        write_together(contents, before_moving=self.clear)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock; refuse a second process on the same folder. What killed processes left is removed.

        A folder that was created for the lock and is still empty at the end is removed.
        """
        with _removed_if_new_and_empty(self.path), contextlib.ExitStack() as stack:
            self._take_lock(stack)
            for folder in (self.path, self.figures):
                sweep(folder, self._is_own_name if folder == self.path else _is_own_figure)
            yield

    def _take_lock(self, stack: contextlib.ExitStack) -> None:
        try:
            for _ in range(MOST_TRIES):
                with contextlib.suppress(FileNotFoundError):
                    _make_folder(self.path)
                    stack.enter_context(lock.locked(self.lock))
                    return
            raise FileNotFoundError(2, "it is removed again and again")
        except lock.InUseError as error:
            raise RunFolderError(f"a run folder is for one process at a time; {self.path} {error}") from None
        except OSError as error:
            what = error.strerror or str(error)
            raise RunFolderError(
                f"the run folder must be writable; {self.path}: {what}; choose another --out"
            ) from None


def _make_folder(path: Path) -> None:
    """Create a folder where there is none; FileNotFoundError where another process removed it in this moment."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:  # said of a folder, too, that was there and is gone when `mkdir` looks what it is
        if _is_entry(path) and not path.is_dir():
            raise
        raise FileNotFoundError(2, "it was removed") from None


def _is_own_figure(name: str) -> bool:
    return PICTURE.fullmatch(name) is not None or name == "index.json"


def _is_entry(path: Path) -> bool:
    """Whether a name is taken, also by a link to nothing."""
    return path.exists() or path.is_symlink()


@contextlib.contextmanager
def _removed_if_new_and_empty(path: Path) -> Iterator[None]:
    is_new = not path.exists()
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # not empty, or never created
                path.rmdir()


def read_config(folder: RunFolder) -> dict[str, Any]:
    """Read the resolved configuration; a folder is a run if it has one."""
    if not folder.path.is_dir():
        raise RunFolderError(f"a run is a folder; found none at {folder.path}; check the name")
    if not folder.config.is_file():
        raise RunFolderError(f"a run folder holds a config.toml; {folder.path} has none; name the folder of a run")
    try:
        return tomllib.loads(folder.config.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise RunFolderError(f"a configuration must be TOML; {folder.config} is not ({error}); correct it") from None


def read_metrics(folder: RunFolder) -> dict[str, Any]:
    """Read the numbers of an evaluated run."""
    remedy = f"run: langenode evaluate {folder.path}"
    if not folder.metrics.is_file():
        raise RunFolderError(f"a run must be evaluated first; {folder.path} has no metrics.json; {remedy}")
    return read_checked(folder.metrics, Metrics, remedy=f"{remedy} --force")


__all__ = [
    "RunFolder",
    "RunFolderError",
    "plain",
    "read_config",
    "read_json",
    "read_metrics",
    "read_provenance",
    "read_record",
    "write_bytes",
    "write_json",
    "write_text",
    "write_together",
]
