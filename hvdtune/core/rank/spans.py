"""Spans of a script between collectives, for the timeline.

The runtime records only when a script waits for it. A script names other work by `span`; Python
reports garbage collections. Frameworks add watchers, which are active from `init` to `shutdown`.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from hvdtune.core import _native
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process import Undo as Undo

SHORTEST_NS: Final = 100_000  # a shorter span hardly explains a slow step
INPUT: Final = "input"
GARBAGE: Final = "gc"
CHECKPOINT: Final = "checkpoint"


@contextmanager
def span(name: str) -> Iterator[None]:
    """Names the block in the timeline; costs a microsecond, less if nothing is recorded.

    `hvdtune timeline why` counts "input", "checkpoint" and "gc" apart from computing; every other
    name is shown as it is. Spans of one name should not lie within each other.

    Args:
        name: of the block's work, from a small set of texts.

    Example:
        >>> with span("input"):
        ...     batch = [1, 2, 3]
    """
    begin_ns = time.monotonic_ns()
    try:
        yield
    finally:
        note(name, begin_ns)


def note(name: str, begin_ns: int) -> None:
    """Records a span that began at `begin_ns` of `time.monotonic_ns` and ends now."""
    runtime = PROCESS.runtime
    if runtime is not None:
        runtime.mark_span(name, begin_ns, time.monotonic_ns())


def watch(watcher: Callable[[], Undo]) -> None:
    """Calls `watcher` in every `init` and, in a job, at once; calls its result in `shutdown`."""
    PROCESS.watch(watcher)


def watch_calls(owner: Any, attribute: str, name: str) -> Undo:
    """Records each call of a function or method of `owner` as a span, unless it is short."""
    before = getattr(owner, attribute)

    @functools.wraps(before)
    def call(*arguments: Any, **options: Any) -> Any:
        begin_ns = time.monotonic_ns()
        result = before(*arguments, **options)
        if time.monotonic_ns() - begin_ns >= SHORTEST_NS:
            note(name, begin_ns)
        return result

    setattr(owner, attribute, call)
    return lambda: setattr(owner, attribute, before)


def watch_garbage() -> Undo:
    """Records each collection of garbage as a span, unless it is short."""
    callback = _native.collection_watcher(PROCESS.native(), GARBAGE, SHORTEST_NS)
    gc.callbacks.append(callback)
    return lambda: gc.callbacks.remove(callback)
