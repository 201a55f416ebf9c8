"""How long JAX has been compiling in this process, so that no estimate of the time left counts it."""

import time
from typing import Any

# Tracing, lowering and compiling; an inner function is traced within the trace of the outer one.
_EVENTS = "/jax/core/compile/"


class Spans:
    """The total length of spans of time, those within others counted once; spans are added in the order they end."""

    def __init__(self):
        self.seconds = 0.0
        self._spans: list[tuple[float, float]] = []

    def add(self, begin: float, end: float) -> None:
        """Add a span that ends after all before."""
        while self._spans and self._spans[-1][0] >= begin:
            first, last = self._spans.pop()
            self.seconds -= last - first
        if self._spans:
            begin = max(begin, self._spans[-1][1])
        self._spans.append((begin, end))
        self.seconds += end - begin


_spans: Spans | None = None


def seconds() -> float:
    """Return the seconds of compilation since the first call."""
    global _spans
    if _spans is None:
        from jax import monitoring

        _spans = Spans()
        monitoring.register_event_duration_secs_listener(_listen)
    return _spans.seconds


def _listen(event: str, duration_secs: float, **kwargs: Any) -> None:
    del kwargs
    if _spans is not None and event.startswith(_EVENTS):
        now = time.perf_counter()
        _spans.add(now - duration_secs, now)
