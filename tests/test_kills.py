"""Processes ended at moments spread over all stages: the same command afterwards gives the same bytes.

Moments are in seconds of computing, not of the clock, so that they hit the same stages on a busy machine.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from commands import OWN, frame, shared_programs

NUM_KILLS, NUM_SIGNALS = 30, 20
TICKS = os.sysconf("SC_CLK_TCK")
# The command with a checkpoint after every block of updates.
COMMAND = """
from langenode import cli

refuse = cli._refuse_unwritable

def prepared(words):
    from langenode.fitting import checkpoints

    checkpoints.SECONDS = 0.0
    refuse(words)

cli._refuse_unwritable = prepared
cli.command()
"""
WORDS = ("fit", "readings.csv", "--out", "run", *OWN, "--set", "training.num_updates=60", "--set", "training.block=4")
SAYS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class Place:
    """A folder with the user's table, in which the command is run."""

    def __init__(self, path: Path, environment: dict[str, str]):
        self.path, self.run, self.environment = path, path / "run", environment
        path.mkdir()
        frame().to_csv(path / "readings.csv", index=False)

    def start(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", COMMAND, *WORDS]
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        # Of a shell's background job signals are ignored, and so would ours be.
        return subprocess.Popen(words, cwd=self.path, env=self.environment, preexec_fn=_hears_signals, **options)  # type: ignore[call-overload]

    def finish(self) -> None:
        with self.start() as process:
            _, err = process.communicate()
        assert process.returncode == 0, err

    def left_behind(self) -> list[str]:
        return [str(path) for path in self.path.rglob("*") if path.name == ".lock" or path.name.endswith(".tmp")]

    def results(self) -> dict[str, bytes]:
        """Everything that is not a time: the report and the provenance are made of these and of times."""
        found = {str(path.relative_to(self.run)): path for path in self.run.rglob("*") if path.is_file()}
        contents = {name: path.read_bytes() for name, path in found.items()}
        metrics = json.loads(contents.pop("metrics.json"))
        metrics.pop("seconds")
        del contents["provenance.json"], contents["report.html"]
        return contents | {"metrics": json.dumps(metrics).encode()}


def _hears_signals() -> None:
    for number in SAYS:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)


def seconds_of(process: subprocess.Popen[str]) -> float | None:
    """How long a process has computed; None where it has ended."""
    try:
        words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else (int(words[11]) + int(words[12])) / TICKS


def has_handler(process: subprocess.Popen[str], number: int) -> bool:
    """Whether a process has said what it does at a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def wait_for(process: subprocess.Popen[str], seconds: float) -> None:
    while (spent := seconds_of(process)) is not None and spent < seconds:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody interrupts, the seconds it computes, and what compiles its programs once."""
    home = tmp_path_factory.mktemp("whole")
    # In a folder of its own: a killed process may leave half a program behind.
    environment = {**shared_programs(), "JAX_COMPILATION_CACHE_DIR": str(home / "compiled")}
    Place(home / "first", environment).finish()
    place = Place(home / "whole", environment)
    spent = 0.0
    with place.start() as process:
        while (now := seconds_of(process)) is not None:
            spent = now
            time.sleep(0.01)
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert place.results() == Place.results(_at(home / "first"))
    return place, spent, environment, home


def _at(path: Path) -> Place:
    place = Place.__new__(Place)
    place.path, place.run = path, path / "run"
    return place


def moments(num: int, longest: float) -> list[float]:
    """Spread over the whole time, one at random in each of equal parts."""
    rng = np.random.default_rng(num)
    return [float(x) for x in (np.arange(num) + rng.random(num)) / num * longest]


@pytest.mark.slow
def test_thirty_kills_leave_nothing_that_the_same_command_does_not_mend(whole):
    reference, longest, environment, home = whole
    wanted, num_killed = reference.results(), 0
    for number, moment in enumerate(moments(NUM_KILLS, longest)):
        place = Place(home / f"kill-{number}", environment)
        with place.start() as process:
            wait_for(process, moment)
            process.kill()
            process.communicate()
        num_killed += process.returncode == -signal.SIGKILL
        place.finish()
        assert place.left_behind() == [], moment
        assert place.results() == wanted, moment
    assert num_killed > NUM_KILLS / 2  # some may have finished before


@pytest.mark.slow
def test_twenty_signals_end_in_one_line_and_the_same_command_goes_on(whole):
    reference, longest, environment, home = whole
    wanted, num_ended = reference.results(), 0
    for index, moment in enumerate(moments(NUM_SIGNALS, longest)):
        number = list(SAYS)[index % 2]
        place = Place(home / f"signal-{index}", environment)
        with place.start() as process:
            while seconds_of(process) is not None and not has_handler(process, signal.SIGTERM):
                time.sleep(0.002)
            wait_for(process, moment)
            process.send_signal(number)
            _, err = process.communicate()
        assert "Traceback" not in err, (moment, err)
        if process.returncode != 0:  # else it was done already
            num_ended += 1
            assert process.returncode == 128 + number, (moment, err)
            assert err.splitlines()[-1] == f"langenode: {SAYS[number]}; the same command resumes where it was", moment
        assert place.left_behind() == [], moment
        place.finish()
        assert place.left_behind() == [] and place.results() == wanted, moment
    assert num_ended > NUM_SIGNALS / 2
