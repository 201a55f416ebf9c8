"""One run by several processes: who they are, what is refused, what they share, and what a lost one does."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import OU, langenode, shared_programs
from langenode.config import ConfigError
from langenode.inference.errors import FitError
from langenode.runs import parallel
from langenode.runs.parallel import Place, Team, first_host, place_of
from langenode.storage.folder import RunFolder

SLURM = {"SLURM_JOB_NODELIST": "gpu-[003-006,9],x1", "SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_JOB_ID": "123456"}
PLACE = ["--coordinator", "h:1", "--num-processes", "2", "--process-id", "0"]


def test_the_place_is_that_of_the_options_or_of_slurm():
    assert place_of("h:8476", 2, 1, SLURM) == Place("h", 8476, 2, 1)
    assert place_of("[fe80::1]:80", 2, 0, {}) == Place("fe80::1", 80, 2, 0)
    assert place_of(None, None, None, SLURM) == Place("gpu-003", 20_000 + 123456 % 20_000, 4, 2)
    step = {**SLURM, "SLURM_STEP_NODELIST": "x1", "SLURM_STEP_NUM_TASKS": "2"}
    assert place_of(None, None, None, step) == Place("x1", 0, 2, 2)._replace(port=20_000 + 123456 % 20_000)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1", "n1"), ("n1,n2", "n1"), ("a[1-3]", "a1"), ("a[07,9]-x,b", "a07-x"), ("r[1-2]n[3-4]", "r1n3")],
)
def test_the_first_of_slurms_nodes(nodes, first):
    assert first_host(nodes) == first


@pytest.mark.parametrize(
    ("options", "environ", "says"),
    [
        (("h:1", None, None), {}, "--num-processes and --process-id missing"),
        (("h", 2, 0), {}, "must be HOST:PORT"),
        (("h:x", 2, 0), {}, "must be HOST:PORT"),
        (("h:1", 1, 0), {}, "at least 2"),
        (("h:1", 2, 2), {}, "numbered from 0"),
        ((None, None, None), {}, "found neither options nor a task of SLURM"),
        ((None, None, None), {**SLURM, "SLURM_NTASKS": "1"}, "SLURM has started 1"),
    ],
)
def test_a_place_that_is_none(options, environ, says):
    with pytest.raises(ConfigError, match=says) as found:
        coordinator, num, number = options
        place_of(coordinator, num, number, environ)
    assert str(found.value).count(";") >= 2


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--coordinator", "h:1"], "--coordinator go with --distributed"),
        (["--distributed", "--coordinator", "h:1"], "missing"),
        (
            [
                "--distributed",
                *["--coordinator", "h:1", "--num-processes", "2", "--process-id", "0", "--method", "nuts"],
            ],
            "nuts",
        ),
    ],
)
def test_what_is_wrong_is_seen_before_any_work(tmp_path, words, says):
    found = langenode("run", "ou", "--target", "posterior", *words, "--out", tmp_path / "r")
    assert found.code == 2 and says in found.err and found.err.count(";") >= 2, found.err
    assert not (tmp_path / "r").exists()


# How they meet


def meeting(monkeypatch: Any) -> Place:
    monkeypatch.setattr(parallel, "_initialize", lambda place, port: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        return Place("127.0.0.1", server.getsockname()[1], 2, 0)


def test_the_others_get_the_files_and_hear_of_the_end(tmp_path, monkeypatch):
    place, lost, got = meeting(monkeypatch), [], {}
    folder = RunFolder(tmp_path)
    folder.config.write_text("seed = 1\n")
    folder.figures.mkdir()
    folder.checkpoint.write_bytes(bytes(range(256)) * 400)

    def other() -> None:
        with parallel.team(place._replace(rank=1), lost.append) as team, team.folder(tmp_path) as mine:
            team.share(mine)
            assert not team.is_first and mine != tmp_path
            got.update({path.name: path.read_bytes() for path in mine.iterdir()})
            for link in team.links:
                link.say_end()

    thread = threading.Thread(target=other)
    thread.start()
    with parallel.team(place, lost.append) as team, team.folder(tmp_path) as mine:
        assert team.is_first and mine == tmp_path
        team.share(mine)
        thread.join(30)
        for link in team.links:
            link.say_end()
    assert lost == [] and got == {"config.toml": b"seed = 1\n", "checkpoint.langenode": bytes(range(256)) * 400}


@pytest.mark.parametrize("error", [ValueError("it is\nbroken"), None])
def test_the_end_of_one_is_told_to_the_other(tmp_path, monkeypatch, error):
    place, lost = meeting(monkeypatch), []

    def other() -> None:
        with parallel.team(place._replace(rank=1), lost.append) as team:
            if error is not None:
                raise error
            team.links[0].close()  # as the operating system does for a process that is killed

    def run_other() -> None:
        with contextlib.suppress(ValueError):
            other()

    thread = threading.Thread(target=run_other)
    thread.start()
    with parallel.team(place, lost.append) as team:
        thread.join(30)
        until = time.monotonic() + 30
        while not lost:
            assert time.monotonic() < until
            time.sleep(0.01)
        team.links[0]._is_over = True
    assert len(lost) == 1 and lost[0].endswith("; the same command resumes from the last checkpoint")
    assert ("process 1 ended with ValueError: it is broken" if error else "process 1 was lost") in lost[0]


def test_processes_that_do_not_fit_are_refused(monkeypatch):
    place = meeting(monkeypatch)
    monkeypatch.setattr(parallel, "SECONDS_TO_JOIN", 1.5)
    said: list[str] = []

    def other(index: int, num: int) -> None:
        with pytest.raises(FitError) as found, parallel.team(place._replace(rank=index, num=num), said.append):
            pass
        said.append(str(found.value))

    threads = [threading.Thread(target=other, args=args) for args in ((5, 2), (1, 3))]
    for thread in threads:
        thread.start()
    with pytest.raises(FitError, match="1 of 2 did not"), parallel.team(place, said.append):
        pass
    for thread in threads:
        thread.join(30)
    assert len(said) == 2 and all("check --num-processes" in text for text in said)


def test_one_process_alone_needs_nothing(tmp_path):
    with parallel.team(None, print) as team, team.folder(tmp_path) as mine:
        assert team.is_first and mine == tmp_path and Team().links == []


# The whole command

PAIR = """
import sys
from langenode.fitting import checkpoints
checkpoints.SECONDS = 0.0
from langenode.cli import command
command()
"""
SLOWLY = ["--set", "training.num_updates=300", "--set", "training.block=5"]


def start(folder: Path, port: int, index: int, errors: Path) -> subprocess.Popen[bytes]:
    place = ["--distributed", "--coordinator", f"127.0.0.1:{port}", "--num-processes", "2", "--process-id", str(index)]
    words = ["run", "ou", *OU, *SLOWLY, *place, "--out", str(folder)]
    environment = {**shared_programs(), "PYTHONPATH": os.pathsep.join(sys.path)}
    with errors.open("wb") as file:
        return subprocess.Popen([sys.executable, "-c", PAIR, *words], env=environment, stderr=file, stdout=file)


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def losses(folder: Path) -> np.ndarray:
    return np.genfromtxt(folder / "history.csv", delimiter=",", names=True)["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [1, 0])
def test_a_killed_process_ends_the_run_which_then_resumes(tmp_path, victim):
    """The other says who was lost and ends at once; begun again, the run comes to what one process alone makes."""
    logs = [tmp_path / "0.log", tmp_path / "1.log"]
    at = port()
    both = [start(tmp_path / "r", at, index, logs[index]) for index in range(2)]
    try:
        until = time.monotonic() + 300
        while not (tmp_path / "r" / "checkpoint.langenode").exists():
            assert time.monotonic() < until and both[0].poll() is None, logs[0].read_text()
            time.sleep(0.02)
        both[victim].send_signal(signal.SIGKILL)
        begin = time.monotonic()
        assert both[1 - victim].wait(60) == 3
        assert time.monotonic() - begin < 10.0
    finally:
        for process in both:
            process.kill()
    last = logs[1 - victim].read_text().splitlines()[-1]
    assert last.startswith("langenode: all processes of a run") and f"process {victim} was lost" in last
    assert (tmp_path / "r" / "checkpoint.langenode").exists()
    at = port()
    both = [start(tmp_path / "r", at, index, logs[index]) for index in range(2)]
    assert [process.wait(300) for process in both] == [0, 0], logs[0].read_text()
    assert re.search(r"resuming at update [1-9]", logs[0].read_text())
    found = langenode("run", "ou", *OU, *SLOWLY, "--out", tmp_path / "alone")
    assert found.code == 0
    np.testing.assert_allclose(losses(tmp_path / "r"), losses(tmp_path / "alone"), rtol=1e-3)
    config, other = ((tmp_path / name / "config.toml").read_text() for name in ("r", "alone"))
    assert config == other and json.loads((tmp_path / "r" / "metrics.json").read_text())["crps"] > 0.0
