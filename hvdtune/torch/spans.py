"""Spans of torch's input and checkpoints in the timeline."""

from __future__ import annotations

import torch
from torch.utils.data import dataloader

from hvdtune.core.rank import spans


def watch() -> None:
    """Watches both from `init` on."""
    # The base of all iterators of a DataLoader; torch has no hook for what comes out of one.
    loader = dataloader._BaseDataLoaderIter
    spans.watch(lambda: spans.watch_calls(loader, "__next__", spans.INPUT))
    spans.watch(lambda: spans.watch_calls(torch, "save", spans.CHECKPOINT))
