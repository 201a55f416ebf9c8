"""Compiled programs kept on disk between commands, so that a second fit of the same kind compiles nothing.

JAX's persistent cache in `$XDG_CACHE_HOME/langenode/compiled` (`~/.cache` where that is not set). Only the command uses
it: the library never changes JAX's settings. `LANGENODE_CACHE=off` turns it off and `LANGENODE_CACHE=FOLDER` moves it.
Results are the same with programs read from disk, so a folder that cannot be used is no error: then there is no cache.
"""

import contextlib
import hashlib
import os
import platform
import stat
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "LANGENODE_CACHE"
SETTING = "jax_compilation_cache_dir"
LARGEST_CACHE = 2**30  # bytes; a run of a demonstration leaves some tens of millions


def keep() -> None:
    """Let JAX keep its programs, unless it was told where to keep them already."""
    import jax

    if getattr(jax.config, SETTING) is not None:
        return
    folder = usable_folder(os.environ)
    if folder is None:
        return
    jax.config.update(SETTING, str(folder))
    # Small programs are many, and compiling them takes as long in all as the large ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # A disk that fills up, or a program that another command is just writing: it is compiled instead.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry", UserWarning)


def usable_folder(environment: Mapping[str, str]) -> Path | None:
    """The folder for programs of this processor, made if need be and cleared to its largest size; None without one."""
    try:
        root = asked_folder(environment)
        if root is None:
            return None
        folder = root / _processor()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours_alone(folder):
            return None
        with tempfile.TemporaryFile(dir=folder):
            pass
        clear_oldest(root, LARGEST_CACHE)
    except (OSError, RuntimeError, ValueError):  # no permission, no home, or no path at all
        return None
    return folder


def asked_folder(environment: Mapping[str, str]) -> Path | None:
    """Where the user wants compiled programs to be kept; None where not at all."""
    asked = environment.get(VARIABLE, "").strip()
    if asked.lower() == "off":
        return None
    if asked:
        return Path(asked).expanduser().absolute()
    base = Path(environment.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # as its specification demands
        base = Path.home() / ".cache"
    return base / "langenode" / "compiled"


def clear_oldest(root: Path, largest: int) -> None:
    """Remove the programs that were not used for longest until the rest has at most `largest` bytes."""
    found = []
    for path in root.glob("*/*-cache"):
        with contextlib.suppress(OSError):  # another command removes the same
            status = path.stat()
            found.append((max(status.st_atime, status.st_mtime), status.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= largest:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _processor() -> str:
    """A name for this kind of processor: programs use its instructions, and several machines may share a home."""
    facts = [platform.system(), platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        facts += sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]


def _is_ours_alone(folder: Path) -> bool:
    """Whether nobody else may write there: whoever does could make us run code of theirs."""
    if not hasattr(os, "getuid"):
        return True
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
