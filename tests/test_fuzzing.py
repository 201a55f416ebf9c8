"""Mutated files of every kind: none ends in an exception of others, a hang, much memory or a crash."""

import collections
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import fuzzing
from test_commands import OWN, done, frame
from test_damage import make_run

NUM_FAST, NUM_SLOW, NUM_BATCHES = 500, 10_000, 20
SECONDS, BYTES = 10.0, 2_000_000_000


def try_all(folder: Path, seeds: list[fuzzing.Seed], numbers: range, place: Path) -> collections.Counter[str]:
    """Outcomes of cases in this process; a case that computes for too long is interrupted."""

    def too_long(*_):
        raise TimeoutError("a case took too long")

    before = signal.signal(signal.SIGPROF, too_long)
    found: collections.Counter[str] = collections.Counter()
    try:
        for number in numbers:
            one = fuzzing.case(folder, seeds, number, place / str(number))
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                found[fuzzing.outcome(one)] += 1
            except Exception as error:
                raise AssertionError(f"case {one.name} ended in {type(error).__name__}: {error}") from error
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0.0)
    finally:
        signal.signal(signal.SIGPROF, before)
    return found


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Valid files of every kind, those of a run made without training."""
    home = tmp_path_factory.mktemp("seeds")
    make_run(home)
    fuzzing.make_seeds(home / "seeds", home / "run")
    return home / "seeds"


def test_valid_files_are_accepted(seeds):
    """So that refusals mean something."""
    kinds = {seed.path.suffix for seed in fuzzing.seeds_in(seeds)}
    assert kinds == set(fuzzing.CHANGES)
    for seed in fuzzing.seeds_in(seeds):
        fuzzing.READERS[seed.reader](seed.path)


def test_cases_are_the_same_for_the_same_number(seeds, tmp_path):
    every = fuzzing.seeds_in(seeds)
    contents = [
        [fuzzing.case(seeds, every, number, tmp_path / f"{turn}-{number}").path.read_bytes() for number in range(60)]
        for turn in range(2)
    ]
    assert contents[0] == contents[1] and len(set(contents[0])) > 50


def test_mutated_files(seeds, tmp_path):
    """NetCDF-4 takes a process for each, so its cases are among the slow ones."""
    every = [seed for seed in fuzzing.seeds_in(seeds) if seed.path.name != "foreign4.nc"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy and pandas have much to say about damaged files
        found = try_all(seeds, every, range(NUM_FAST), tmp_path)
    assert sum(found.values()) == NUM_FAST and set(found) == {"accepted", "refused"}
    assert found["refused"] > NUM_FAST / 2


@pytest.mark.slow
def test_ten_thousand_mutated_files(tmp_path):
    """In processes of their own, so that a hang inside C, a crash or too much memory is seen; the run is a real one."""
    frame().to_csv(tmp_path / "readings.csv", index=False)
    done("fit", "readings.csv", "--out", "run", *OWN, cwd=tmp_path)
    fuzzing.make_seeds(tmp_path / "seeds", tmp_path / "run")
    found: collections.Counter[str] = collections.Counter()
    size = NUM_SLOW // NUM_BATCHES
    for first in range(0, NUM_SLOW, size):
        words = [
            sys.executable,
            "-W",
            "ignore",
            fuzzing.__file__,
            str(tmp_path / "seeds"),
            str(first),
            str(first + size),
        ]
        ended = subprocess.run(words, capture_output=True, text=True)
        lines = ended.stdout.splitlines()
        assert ended.returncode == 0, f"{lines[-1:]} ended with {ended.returncode}: {ended.stderr[-3000:]}"
        found.update(line.split()[2] for line in lines if line.startswith("end"))
    assert sum(found.values()) == NUM_SLOW and found["refused"] > NUM_SLOW / 2
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 < BYTES
