"""What torch's input and checkpoints take, for the timeline."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import dataloader

from hvdtune.core import spans
from hvdtune.core.spans import span

__all__ = ["span"]


def _timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        begin_ns = time.monotonic_ns()
        result = function(*arguments, **options)
        if time.monotonic_ns() - begin_ns >= spans.SHORTEST_NS:
            spans.note(name, begin_ns)
        return result

    return call


def _watch(owner: Any, attribute: str, name: str) -> spans.Undo:
    before = getattr(owner, attribute)
    setattr(owner, attribute, _timed(name, before))
    return lambda: setattr(owner, attribute, before)


# The base of all iterators of a DataLoader; torch has no hook for what comes out of one.
spans.watch(lambda: _watch(dataloader._BaseDataLoaderIter, "__next__", spans.INPUT))
spans.watch(lambda: _watch(torch, "save", spans.CHECKPOINT))
