"""A Dask cluster of this machine, and how tests wait for processes and find them."""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

HERE = str(Path(__file__).parent)


@contextmanager
def cluster(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, HERE]))
    options = {"host": "127.0.0.1", "dashboard_address": None, "local_directory": str(tmp_path / "dask")}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **options) as found:
        yield found


def wait_for(condition: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def parent_of(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[1])


def children_of(number: int) -> list[int]:
    """The processes that any thread of a process has begun."""
    lists = [path.read_text().split() for path in Path(f"/proc/{number}/task").glob("*/children")]
    return [int(word) for words in lists for word in words]
