"""Tasks in processes of this machine: results, errors, killed workers, interrupts; and what Dask must be told."""

import builtins
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tasks
from langenode.config import ConfigError
from langenode.runs import worker_process, workers
from langenode.runs.workers import TaskError, run_tasks


def results(function: Any, given: dict[str, tuple], **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    run_tasks(function, given, on_end=found.__setitem__, **options)
    return found


def test_each_task_is_done_once_by_one_of_the_processes(tmp_path):
    given = {name: (str(tmp_path), name) for name in "abcdef"}
    found = results(tasks.process, given, workers=2)
    assert set(found) == set(given) and len(set(found.values())) <= 2
    assert all((tmp_path / name).read_text() == "x" for name in given)
    assert not any(tasks.is_alive(number) for number in found.values())


def test_a_failed_task_is_an_answer_and_the_others_go_on(tmp_path):
    found = results(tasks.fail_or_not, {str(k): (str(tmp_path), k) for k in range(4)}, workers=1)
    assert found["0"] == str(tmp_path / "0") and found["3"] == str(tmp_path / "3")
    assert isinstance(found["1"], TaskError) and str(found["1"]) == "ValueError: one is refused"
    assert "in fail_or_not" in found["1"].traceback
    assert isinstance(found["2"], TaskError) and "must return text, numbers or lists" in str(found["2"])


def test_a_killed_worker_repeats_the_task_it_was_in(tmp_path):
    given = {name: (str(tmp_path), name) for name in "abcd"}
    found = results(tasks.die_once, given, workers=1)
    assert found == {name: str(tmp_path / name) for name in given}
    assert [(tmp_path / name).read_text() for name in "abcd"] == ["x", "xx", "x", "x"]


def test_a_task_that_ends_its_workers_is_given_up(tmp_path):
    found = results(tasks.die, {"a": (str(tmp_path), "a")}, workers=1)
    assert "3 were ended in this one, the last with exit code 7" in str(found["a"])
    assert (tmp_path / "a").read_text() == "xxx"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes(tmp_path, number):
    def interrupt():
        while len(list(tmp_path.glob("*.pid"))) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), number)  # which reaches the main thread

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            results(tasks.wait, {name: (str(tmp_path), name) for name in "abc"}, workers=2)
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    begun = [int(path.read_text()) for path in tmp_path.glob("*.pid")]
    assert len(begun) == 2 and not any(map(tasks.is_alive, begun))


def test_an_error_in_the_caller_ends_all(tmp_path):
    def fail(name: str, result: Any) -> None:
        raise RuntimeError(name)

    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="a"):
        run_tasks(tasks.wait, {"a": (str(tmp_path), "a", 0.0), "b": (str(tmp_path), "b")}, workers=2, on_end=fail)
    assert time.monotonic() - begin < 50.0


def test_a_process_ends_with_whoever_started_it(tmp_path):
    """The reading end is told that nobody will ask again, in the midst of a task."""
    ended: list[int] = []
    asking = _Lines()
    with (tmp_path / "answers").open("w") as answers:
        server = threading.Thread(
            target=worker_process.serve, args=(asking, answers), kwargs={"end": ended.append}, daemon=True
        )
        server.start()
        asking.say(json.dumps(["tasks:wait", [str(tmp_path), "a", 0.3]]))
        while not (tmp_path / "a").exists():
            assert server.is_alive()
            time.sleep(0.01)
        asking.close()
        server.join(30)
    assert ended == [1] and not server.is_alive()


class _Lines:
    """Lines that are read as they are said."""

    def __init__(self):
        self._lines: Any = queue.SimpleQueue()

    def say(self, line: str) -> None:
        self._lines.put(line)

    def close(self) -> None:
        self._lines.put("")

    def __iter__(self) -> Any:
        return iter(self._lines.get, "")


def test_nothing_to_do_starts_nothing(monkeypatch):
    monkeypatch.setattr(workers, "_run_here", None)
    assert results(tasks.process, {}) == {}


def test_a_task_must_be_found_by_its_name():
    for function in (lambda: None, _Lines().say, test_nothing_to_do_starts_nothing.__class__):
        with pytest.raises(ValueError, match="at the top of a module"):
            results(function, {"a": ()})


def test_without_dask_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] in ("dask", "distributed"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'langenode\[cluster\]'"):
        results(tasks.process, {"a": ("", "")}, scheduler="tcp://127.0.0.1:1")


def test_functions_are_found_where_the_caller_finds_them():
    assert Path(tasks.__file__).parent in map(Path, sys.path)
    assert worker_process.called("tasks:is_alive", [2**30]) == {"result": False}
    assert worker_process.called("tasks:nothing", [])["error"].startswith("AttributeError")
