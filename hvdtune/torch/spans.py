"""What torch's input and checkpoints take, for the timeline."""

from __future__ import annotations

import torch
from torch.utils.data import dataloader

from hvdtune.core.rank import spans
from hvdtune.core.rank.spans import span

__all__ = ["span"]

# The base of all iterators of a DataLoader; torch has no hook for what comes out of one.
spans.watch(lambda: spans.watch_calls(dataloader._BaseDataLoaderIter, "__next__", spans.INPUT))
spans.watch(lambda: spans.watch_calls(torch, "save", spans.CHECKPOINT))
