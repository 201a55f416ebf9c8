"""Progress: what is said in a log and when, the time left without compilation, and the display in a terminal."""

import contextlib
import io
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from langenode.fitting import compiling, progress
from langenode.fitting.progress import Reporter, duration
from langenode.inference.training import Progress
from langenode.scores import thresholds


class Clock:
    """Seconds that pass when they are told to, in all and of compilation."""

    def __init__(self):
        self.time, self.compiled = 100.0, 7.0

    def work(self, seconds: float, *, compiling: float = 0.0) -> None:
        self.time += seconds + compiling
        self.compiled += compiling


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    stream = io.StringIO()
    return Reporter(stream, clock=lambda: clock.time, compiled=lambda: clock.compiled), stream


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def at(step: int, num: int = 500, *, skipped: int = 0) -> Progress:
    return Progress(step, num, loss=1.5, kl=0.25, skipped=skipped, validation=float("nan"), seconds=1e9)


# The time left


def test_the_first_time_left_of_training_does_not_count_compilation(log, clock):
    reporter, stream = log
    with reporter.training("langevin, posterior"):
        clock.work(2.0, compiling=200.0)
        reporter.update(at(50))
        clock.work(2.0)
        reporter.update(at(100, skipped=3))
        clock.work(16.0)
        reporter.update(at(500))
    assert lines(stream) == [
        "langevin, posterior: training",
        "update 50/500: loss 1.5, KL 0.25, about 18 s left, after 3 min of compilation",
        "update 100/500: loss 1.5, KL 0.25, 3 updates skipped, about 16 s left",
        "update 500/500: loss 1.5, KL 0.25",
    ]


def test_training_that_is_resumed_counts_its_own_updates(log, clock):
    reporter, stream = log
    with reporter.training("langevin, posterior", first=400):
        clock.work(10.0)
        reporter.update(at(450))
    assert lines(stream)[-1] == "update 450/500: loss 1.5, KL 0.25, about 10 s left"


def test_parts_of_a_task_have_their_own_pace(log, clock):
    reporter, stream = log
    with reporter.task("maximum likelihood, hidden") as task:
        clock.work(1.0, compiling=30.0)
        task.at(50, 500, "Adam")
        clock.work(9.0)
        task.at(500, 500, "Adam")
        clock.work(4.0, compiling=20.0)
        task.at(20, 200, "L-BFGS")
    assert lines(stream) == [
        "maximum likelihood, hidden, Adam: 50/500, about 9 s left",
        "maximum likelihood, hidden, Adam: 500/500",
        "maximum likelihood, hidden, L-BFGS: 20/200, about 36 s left",
    ]


def test_short_work_says_nothing_and_lines_are_seconds_apart(log, clock):
    reporter, stream = log
    with reporter.task("calibration") as task:
        for step in range(1, 41):
            clock.work(0.25)
            task.at(step, 40)
    assert len(lines(stream)) == 3 and lines(stream)[0] == "calibration: 12/40, about 7 s left"
    with reporter.task("plain predictors") as task:
        task.at(0, None, "gp")
    assert len(lines(stream)) == 3


def test_a_stage_says_its_compilation_apart(log, clock):
    reporter, stream = log
    for compiled in (0.5, 4.0):
        with reporter.stage("evaluate"):
            clock.work(2.0, compiling=compiled)
    assert lines(stream) == ["evaluate: 2.5 s", "evaluate: 6.0 s, 4.0 s of it compilation"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99.0, "99 s"), (100.0, "2 min"), (1946.0, "32 min"), (9000.0, "2.5 h")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


# Silence


def test_work_without_steps_is_not_silent_for_minutes(log, clock):
    reporter, stream = log
    with reporter.stage("fit"), reporter.task("guided"):
        said = [clock.time]
        for _ in range(1200):
            clock.work(1.0)
            before = len(lines(stream))
            reporter.beat()
            said += [clock.time] * (len(lines(stream)) > before)
    assert said[1] - said[0] == progress.SHORTEST_SILENCE
    assert max(np.diff(said)) == progress.LONGEST_SILENCE
    assert lines(stream)[0] == "at work on fit, guided: 15 s so far"


def test_a_beat_says_the_compilation_and_the_last_step_and_only_after_silence(log, clock):
    reporter, stream = log
    with reporter.task("smc") as task:
        clock.work(1.0, compiling=13.0)
        task.at(3, None, "power 0.2 of 1")
        reporter.beat()
        clock.work(20.0)
        reporter.beat()
    assert lines(stream) == [
        "smc, power 0.2 of 1: 3",
        "at work on smc, power 0.2 of 1: 34 s so far, 13 s of it compilation, at 3",
    ]


def test_the_heart_beats_while_work_is_done_and_ends_with_it(monkeypatch):
    beaten, stream = threading.Event(), io.StringIO()
    reporter = Reporter(stream)
    monkeypatch.setattr(reporter, "beat", beaten.set)
    with reporter.task("work"):
        assert beaten.wait(60.0)
        with reporter.task("inner"):
            pass
        assert any(thread.name == "progress" for thread in threading.enumerate())
    assert not any(thread.name == "progress" for thread in threading.enumerate())
    with contextlib.suppress(KeyError), reporter.task("work"):
        raise KeyError
    assert not any(thread.name == "progress" for thread in threading.enumerate())


def test_nobody_who_reads_is_no_bug():
    closed = io.StringIO()
    closed.close()
    quiet = Reporter(closed, quiet=True)
    with quiet.stage("fit"), quiet.training("a"):
        quiet.update(at(10))
    assert not Reporter(closed).is_live
    heart = progress._Heart(lambda: print("word", file=closed), seconds=0.001)
    heart._thread.join(60.0)
    assert not heart._thread.is_alive()
    heart.stop()


# A terminal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_live_display_of_stage_and_step(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    reporter = Reporter(stream, clock=lambda: clock.time, compiled=lambda: clock.compiled)
    with reporter.stage("fit"):
        with reporter.task("maximum likelihood, state") as task:
            clock.work(5.0, compiling=60.0)
            task.at(100, 200, "Adam")
            reporter._display.refresh()
        reporter.say("maximum likelihood: state, validation error [0.1]")
        with reporter.training("langevin, posterior"):
            clock.work(1.0)
            reporter.update(at(50))
            reporter._display.refresh()
    shown = stream.getvalue()
    assert "maximum likelihood, state, Adam" in shown and "100/200, about 5 s left" in shown
    assert "50/500, loss 1.5, KL 0.25, about 9 s left" in shown
    assert "maximum likelihood: state, validation error [0.1]\n" in shown
    assert (
        shown.rstrip().endswith("fit: 66.0 s, 60.0 s of it compilation") and "\x1b[?25h" in shown
    )  # the cursor is back


# What is counted


def test_spans_within_others_are_counted_once():
    spans = compiling.Spans()
    for begin, end in ((1.0, 2.0), (2.5, 3.0), (0.5, 4.0), (3.5, 5.0), (6.0, 7.0)):
        spans.add(begin, end)
    assert spans.seconds == pytest.approx(5.5, rel=1e-12)


def test_compilation_is_counted_and_running_is_not():
    compiling.seconds()
    inner = jax.jit(lambda x: jnp.sin(x) @ x)
    program = jax.jit(lambda x: inner(x) + jnp.linalg.inv(inner(x + 1.0)))
    matrix = np.eye(3)
    before = compiling.seconds()
    program(matrix).block_until_ready()
    first = compiling.seconds()
    program(matrix).block_until_ready()
    assert first > before and compiling.seconds() == first


def test_thresholds_show_their_simulations():
    rng = np.random.default_rng(0)
    pool, mask = rng.normal(size=(12, 1, 3, 1)), np.ones((4, 1, 3, 1), bool)
    steps = []
    thresholds.w1_null(pool, mask, is_crossed=False, rng=rng, on_step=lambda *words: steps.append(words))
    assert steps[-1] == (thresholds.NUM_NULL, thresholds.NUM_NULL, "W1 of a perfect model")
    steps.clear()
    thresholds.w1_null_of(pool, rng.normal(size=(5, 4, 1, 3, 1)), mask, lambda *words: steps.append(words))
    assert [step[:2] for step in steps] == [(n, 5) for n in range(1, 6)]
