"""A process that calls functions for the one that started it: `python -m langenode.runs.worker_process`.

A request is a line of JSON on standard input, the function's name and its arguments; the answer is a line of JSON. The
process ends when its input does, also in the midst of a task, so that it never outlives the one it works for.
"""

import importlib
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from langenode.storage import interrupts


def called(name: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Call `module:function` and return its result, or what it raised in words and with its traceback.

    A task's error is a result like any other: it must reach whoever asked, whatever its class.
    """
    try:
        module, _, function = name.partition(":")
        return {"result": getattr(importlib.import_module(module), function)(*arguments)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


def serve(requests: Iterable[str], answers: TextIO, *, end: Callable[[int], Any] = os._exit) -> None:
    """Answer requests until there are no more; `end` ends the process where that happens during a task."""
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    busy = threading.Event()

    def listen() -> None:
        for line in requests:
            busy.set()
            waiting.put(line)
        if busy.is_set():
            interrupts.tidy_up()
            end(1)
        waiting.put(None)

    threading.Thread(target=listen, daemon=True, name="langenode-requests").start()
    while (line := waiting.get()) is not None:
        name, arguments = json.loads(line)
        answer = _as_json(called(name, arguments))
        busy.clear()
        print(answer, file=answers, flush=True)


def _as_json(answer: dict[str, Any]) -> str:
    try:
        return json.dumps(answer, allow_nan=True)
    except (TypeError, ValueError) as error:
        message = (
            f"a task must return text, numbers or lists of them, e.g. a path; {error}; write large results to files"
        )
        return json.dumps({"error": message, "traceback": ""})


def main() -> None:
    """Serve the process that started this one; what functions print goes to standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's interrupt reaches us, too; whoever started us decides
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
