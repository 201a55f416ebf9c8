"""Runs by the workers of a Dask scheduler: the command beside its worker, killed workers, interrupts, refusals."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tasks
from clusters import HERE, cluster, parent_of, wait_for
from commands import OU, done, langenode, plain_environment
from langenode.runs import grid, remote_commands, workers
from langenode.runs.processes import Ended
from langenode.runs.remote_commands import run_command, run_commands_remotely
from langenode.runs.workers import TaskError, run_tasks
from langenode.storage.folder import RunFolder

# One command, without Dask


def test_a_command_writes_its_log_and_gives_its_code(tmp_path):
    script = "import os, sys; print('said'); print('logged', file=sys.stderr); sys.exit(int(os.environ['NPROC']) + 2)"
    words = ("", "-c", script)
    code, out, seconds = run_command(HERE, str(tmp_path / "run"), str(tmp_path / "a.log"), *words)
    assert (code, out) == (3, "said\n") and seconds > 0.0 and (tmp_path / "a.log").read_text() == "logged\n"
    killed = run_command(HERE, "", str(tmp_path / "b.log"), "", "-c", "import os; os.kill(os.getpid(), 9)")
    assert killed[0] == -signal.SIGKILL
    assert run_command(HERE, "", str(tmp_path / "c.log"), "", "-c", "print(1)")[:2] == [0, ""]


def test_a_command_that_nobody_asks_for_is_ended(tmp_path, monkeypatch):
    begun = tmp_path / "w.pid"
    monkeypatch.setattr(remote_commands, "is_wanted", lambda: not (begun.exists() and begun.read_text()))
    words = ("", "-c", f"import tasks; tasks.wait({str(tmp_path)!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", HERE)
    code, _, seconds = run_command(HERE, "", str(tmp_path / "a.log"), *words)
    assert code == -signal.SIGTERM and seconds < 50.0 and not tasks.is_alive(int(begun.read_text()))


def test_a_command_ends_with_a_worker_that_is_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    words, log = ("", "-c", f"import tasks; tasks.wait({str(tmp_path)!r}, 'w')"), str(tmp_path / "l")
    call = f"from langenode.runs.remote_commands import run_command; run_command(*{[HERE, '', log, *words]})"
    worker = subprocess.Popen([sys.executable, "-c", call])
    begun = tmp_path / "w.pid"
    wait_for(lambda: begun.exists() and begun.read_text())
    worker.kill()
    worker.wait()
    wait_for(lambda: not tasks.is_alive(int(begun.read_text())))


def test_a_command_waits_for_the_one_before_it_to_leave_the_folder(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text("")
    with RunFolder(folder).locked():
        leave = threading.Event()
        words = (HERE, str(folder), str(tmp_path / "l"), "", "-c", f"open({str(tmp_path / 'x')!r}, 'w')")
        runner = threading.Thread(target=run_command, args=words)
        runner.start()
        leave.wait(3 * remote_commands.LOOK)
        assert not (tmp_path / "x").exists()
    runner.join(60)
    assert (tmp_path / "x").exists()


def test_files_that_a_worker_cannot_see_are_named(tmp_path):
    for here, log in ((tmp_path / "none", tmp_path / "l"), (tmp_path, tmp_path / "none" / "l")):
        with pytest.raises(FileNotFoundError, match="a file system that all machines share"):
            run_command(str(here), "", str(log), "true")


# What a grid asks for, without Dask


def test_a_sweep_gives_its_commands_to_the_scheduler(tmp_path, monkeypatch):
    asked: dict[str, Any] = {}

    def remotely(commands: Any, folders: Any, logs: Path, *, scheduler: str, on_end: Any) -> None:
        asked.update(commands=commands, folders=folders, scheduler=scheduler)
        for name in commands:
            (logs / f"{name}.log").write_text("ValueError: it is broken\n")
            on_end(name, Ended(1, "", logs / f"{name}.log", 0.1))

    monkeypatch.setattr(grid, "run_commands_remotely", remotely)
    monkeypatch.setattr(workers, "check_scheduler", lambda address: None)
    found = langenode("sweep", "ou", "--seeds", "1,2", "--scheduler", "tcp://h:1", "--out", tmp_path / "s")
    assert found.code == 3 and asked["scheduler"] == "tcp://h:1"
    assert asked["folders"] == {f"seed-{k}": tmp_path / "s" / f"seed-{k}" for k in (1, 2)}
    assert asked["commands"]["seed-1"][1:5] == ["-m", "langenode", "run", "ou"]


def test_tasks_become_commands_and_their_ends(tmp_path, monkeypatch):
    given: dict[str, Any] = {}

    def run(function: Any, arguments: Any, *, scheduler: str, on_end: Any) -> None:
        assert function is run_command and scheduler == "tcp://h:1"
        given.update(arguments)
        on_end("a", [0, "", 1.5])
        on_end("b", TaskError("KilledWorker: too often", "where"))

    monkeypatch.setattr(remote_commands, "run_tasks", run)
    ends: dict[str, Ended] = {}
    commands = {"a": [sys.executable, "-m", "langenode"], "b": ["true"]}
    folders = {name: tmp_path / name for name in commands}
    run_commands_remotely(commands, folders, tmp_path, scheduler="tcp://h:1", on_end=ends.__setitem__)
    assert given["a"] == (str(Path.cwd()), str(tmp_path / "a"), str(tmp_path / "a.log"), "", "-m", "langenode")
    assert ends["a"] == Ended(0, "", tmp_path / "a.log", 1.5) and ends["b"].code == 1
    assert grid._what_failed(ends["b"]).startswith("exit code 1: KilledWorker: too often; see ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep", "ou", "--seeds", "1,2"], "a Dask scheduler must answer at its address"),
        (["sweep", "ou", "--seeds", "1,2", "--jobs", "2"], "drop it, or start as many workers"),
        (["compare", "--experiment", "ou", "--methods", "map"], "a Dask scheduler must answer at its address"),
        (["reproduce", "ou", "--quick"], "a Dask scheduler must answer at its address"),
        (["compare", "a", "b"], "neither --experiment nor --data was named"),
    ],
)
def test_without_a_scheduler_nothing_is_touched(tmp_path, monkeypatch, words, says):
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "SECONDS_TO_CONNECT", 0.2)
    found = langenode(*words, "--scheduler", "tcp://127.0.0.1:1", "--out", tmp_path / "s")
    assert found.code == 2 and says in found.err and found.err.count(";") >= 2, found.err
    assert not (tmp_path / "s").exists()


# With Dask


@pytest.mark.slow
def test_a_killed_worker_of_a_cluster_repeats_its_task_only(tmp_path, monkeypatch):
    with cluster(tmp_path, monkeypatch) as found:
        results: dict[str, Any] = {}
        given = {name: (str(tmp_path), name) for name in "abcdef"}
        run_tasks(tasks.die_once, given, scheduler=found.scheduler_address, on_end=results.__setitem__)
        assert results == {name: str(tmp_path / name) for name in given}
        again = {name: (tmp_path / name).read_text() for name in given}
        assert again.pop("b") == "xx" and set(again.values()) == {"x"}
        results.clear()
        given = {str(k): (str(tmp_path), k) for k in (1, 3)}
        run_tasks(tasks.fail_or_not, given, scheduler=found.scheduler_address, on_end=results.__setitem__)
        assert str(results["1"]) == "ValueError: one is refused" and results["3"] == str(tmp_path / "3")


@pytest.mark.slow
def test_a_sweep_on_a_cluster_outlives_a_worker_and_is_that_of_one_machine(tmp_path, monkeypatch):
    """One of two workers is killed in the midst of its run; all points are made, and are those of a local sweep."""
    words = ["sweep", "ou", "--seeds", "1,2,3", *OU]
    with cluster(tmp_path, monkeypatch) as found:
        killed: list[str] = []

        def kill() -> None:
            folder = tmp_path / "s"
            wait_for(lambda: any(folder.glob("seed-*/.lock")), 120.0)
            time.sleep(1.0)
            lock = next(folder.glob("seed-*/.lock"))
            killed.append(lock.parent.name)
            tether = parent_of(int(lock.read_text()))
            os.kill(parent_of(tether), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        done(*words, "--scheduler", found.scheduler_address, "--out", tmp_path / "s")
        killer.join()
        assert len(killed) == 1
        said = done(*words, "--scheduler", found.scheduler_address, "--out", tmp_path / "s").err
        assert "3 of them complete already" in said
    done(*words, "--jobs", "1", "--out", tmp_path / "t")
    for seed in (1, 2, 3):
        one, other = (json.loads((tmp_path / f / f"seed-{seed}" / "metrics.json").read_text()) for f in "st")
        assert one["crps"] == other["crps"] and one["data_id"] == other["data_id"]


@pytest.mark.slow
def test_an_interrupt_ends_the_runs_of_a_cluster(tmp_path, monkeypatch):
    with cluster(tmp_path, monkeypatch) as found:
        words = ["sweep", "ou", "--seeds", "1,2", "--scheduler", found.scheduler_address, "--out", str(tmp_path / "s")]
        command = subprocess.Popen([sys.executable, "-m", "langenode", *words], env=plain_environment())
        locks = lambda: list((tmp_path / "s").glob("seed-*/.lock"))  # noqa: E731
        wait_for(lambda: len(locks()) == 2, 120.0)
        wait_for(lambda: all(path.read_text() for path in locks()))
        numbers = [int(path.read_text()) for path in locks()]
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130
        wait_for(lambda: not any(map(tasks.is_alive, numbers)))
