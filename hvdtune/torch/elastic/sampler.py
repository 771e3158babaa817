"""A sampler that hands out the rest of an epoch to however many ranks there are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch

from hvdtune.core.rank import runtime
from hvdtune.core.rank.process import PROCESS


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides what is left of an epoch among the ranks; a part of a TorchState.

    The order of an epoch follows from `seed` and the epoch alone. Step k of n ranks takes the next
    n batches of it, so that a count says what has been trained: call `record_batch` after each
    step, and after a change of ranks the loop goes on behind that.

    Args:
        dataset: of which only the length is used.
        shuffle: whether each epoch has an order of its own; else it is that of the dataset.
        seed: the same on all ranks.
        pad: where ranks cannot have equally many samples, some of the last step's are handed out
            twice, at most one to each rank, as Horovod does. With False every sample is handed out
            exactly once; ranks then may have one sample, so one batch, less: call `hvd.join()`
            behind the loop, or choose the batch size so that they do not.
    """

    def __init__(
        self, dataset: Sized, shuffle: bool = True, seed: int = 0, *, pad: bool = True
    ) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.pad = pad
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = self.num_samples = self.total_size = self.rank = 0
        self.remaining_indices: list[int] = []
        self._trained = 0  # of this rank's own samples, since `reset`
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: nothing of it has been trained. Call it at an epoch's end, not at its
        start, where it would forget what a change of ranks has left."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Notes that all ranks have trained a batch.

        Args:
            batch_idx: its number since the loop began; the count does not need it.
            batch_size: samples in this rank's batch.
        """
        del batch_idx
        before = self.processed_num
        self._trained += batch_size
        self.processed_num += batch_size * self.num_replicas
        if self._trained >= self.num_samples:  # the other ranks' last batch may be larger
            self.processed_num = len(self.dataset)
        self.processed_num = min(self.processed_num, len(self.dataset))
        if PROCESS.worker is not None:
            PROCESS.worker.note_samples(self.processed_num - before)

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and how many samples of it all ranks have trained."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes to where `state_dict` was, with the ranks that there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Divides what is left of the epoch among the ranks that there are now."""
        self.num_replicas, self.rank = runtime.size(), runtime.rank()
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(f"{self.seed} {self.epoch}").shuffle(order)
        self.remaining_indices = order[self.processed_num :]
        left = len(self.remaining_indices)
        self._trained = 0
        if self.pad:
            self.num_samples = -(-left // self.num_replicas)
        else:
            self.num_samples = len(range(self.rank, left, self.num_replicas))
        self.total_size = self.num_samples * self.num_replicas if self.pad else left

    def __iter__(self) -> Iterator[int]:
        """This rank's share of what is left."""
        rest = self.remaining_indices
        # One sample may be left for many ranks.
        padded = (rest * self.num_replicas)[: self.total_size] if rest else rest
        return iter(padded[self.rank :: self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
