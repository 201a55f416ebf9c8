"""Compiled programs kept between commands: what is read is what would be compiled, and no folder is no error."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import pytest

from commands import OU, metrics_of
from langenode.cli import programs

ENVIRONMENT = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_PLATFORMS": "cpu"}


def run(out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A small run in a process of its own, with this environment and no other cache than the command's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    words = [sys.executable, "-m", "langenode", "run", "ou", *OU, "--out", str(out)]
    settings = {**inherited, **ENVIRONMENT, **environment}
    return subprocess.run(words, capture_output=True, text=True, env=settings, check=True)


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*/*-cache")}


@pytest.mark.slow
def test_results_are_the_same_with_and_without_and_a_second_run_compiles_nothing(tmp_path):
    cache, file = tmp_path / "cache", tmp_path / "file"
    file.write_text("")
    without = run(tmp_path / "without", LANGENODE_CACHE=str(file))  # where no folder can be made
    assert "warning" not in without.stderr
    run(tmp_path / "first", LANGENODE_CACHE=str(cache))
    kept = entries(cache)
    assert len(kept) > 10
    run(tmp_path / "second", LANGENODE_CACHE=str(cache))
    assert entries(cache) == kept
    for path in cache.glob("*/*-cache"):  # as a process leaves it that is killed while it writes
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    damaged = run(tmp_path / "damaged", LANGENODE_CACHE=str(cache))
    assert "warning" not in damaged.stderr
    for name in ("first", "second", "damaged"):
        assert metrics_of(tmp_path / name) == metrics_of(tmp_path / "without")
        for table in ("history.csv", "bands.csv"):
            assert (tmp_path / name / table).read_bytes() == (tmp_path / "without" / table).read_bytes()


def test_where_programs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / ".cache/langenode/compiled"
    assert programs.asked_folder({}) == default
    assert programs.asked_folder({"XDG_CACHE_HOME": ""}) == default
    assert programs.asked_folder({"XDG_CACHE_HOME": "relative"}) == default
    assert programs.asked_folder({"XDG_CACHE_HOME": "/var/x"}) == Path("/var/x/langenode/compiled")
    assert programs.asked_folder({"XDG_CACHE_HOME": "/var/x", "LANGENODE_CACHE": "/mine"}) == Path("/mine")
    assert programs.asked_folder({"LANGENODE_CACHE": "Off"}) is None
    folder = programs.usable_folder({})
    assert folder is not None
    assert folder.parent == default
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_unusable_folder_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert programs.usable_folder({"LANGENODE_CACHE": str(tmp_path / "file")}) is None
    assert programs.usable_folder({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None
    assert programs.usable_folder({"LANGENODE_CACHE": "/proc/nowhere"}) is None

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert programs.usable_folder({}) is None


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path):
    """Programs are code: whoever can put one there can make us run it."""
    folder = programs.usable_folder({"LANGENODE_CACHE": str(tmp_path)})
    assert folder is not None
    folder.chmod(0o777)
    assert programs.usable_folder({"LANGENODE_CACHE": str(tmp_path)}) is None


def test_the_programs_not_used_for_longest_are_cleared(tmp_path):
    folder = tmp_path / "processor"
    folder.mkdir()
    for age, name in enumerate(("new", "middle", "old")):
        path = folder / f"{name}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age, 1e9 - age))
    (folder / "something else").write_bytes(bytes(1000))
    programs.clear_oldest(tmp_path, 300)
    assert entries(tmp_path) == {"new-cache", "middle-cache", "old-cache"}
    programs.clear_oldest(tmp_path, 250)
    assert entries(tmp_path) == {"new-cache", "middle-cache"}
    programs.clear_oldest(tmp_path, 0)
    assert entries(tmp_path) == set()
    assert (folder / "something else").exists()


@pytest.fixture
def jax_without_cache():
    names = (programs.SETTING, "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(programs.SETTING, None)
    with warnings.catch_warnings():
        yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_cache_of_the_users_own_is_left_alone(tmp_path, monkeypatch, jax_without_cache):
    monkeypatch.setenv("LANGENODE_CACHE", str(tmp_path / "ours"))
    jax.config.update(programs.SETTING, str(tmp_path / "theirs"))
    programs.keep()
    assert getattr(jax.config, programs.SETTING) == str(tmp_path / "theirs")
    jax.config.update(programs.SETTING, None)
    programs.keep()
    assert Path(getattr(jax.config, programs.SETTING)).parent == tmp_path / "ours"
