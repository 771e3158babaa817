"""Which samples of an epoch each rank trains, however many ranks there are, and which were."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import numpy as np

from hvdtune.core.rank import runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import UsageError


class SampleLedger:
    """Divides what is left of an epoch among the ranks; a part of a State.

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
        audit: a file in which rank 0 notes at each commit which samples all ranks have trained
            since the one before; see `read_audit`.
    """

    def __init__(
        self,
        dataset: Sized,
        shuffle: bool = True,
        seed: int = 0,
        *,
        pad: bool = True,
        audit: str | Path | None = None,
    ) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.pad = pad
        self.audit = audit
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = self.num_samples = self.total_size = self.rank = 0
        self._order: tuple[object, np.ndarray[Any, Any]] = (None, np.arange(0))
        self._remaining = np.arange(0)
        self._trained = 0  # of this rank's own samples, since `reset`
        self._handed_out: list[tuple[int, list[int]]] = []  # since the last commit, by epoch
        self._noted: dict[str, Any] = {}  # of the last commit
        self._is_new = False  # this generation, since that
        self._unwritten = ""  # of the audit file
        self._has_warned = False
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
        before, trained = self.processed_num, self._trained
        self._trained += batch_size
        self.processed_num += batch_size * self.num_replicas
        is_last = self._trained >= self.num_samples
        if is_last:  # the other ranks' last batch may be larger
            self.processed_num = len(self.dataset)
        self.processed_num = min(self.processed_num, len(self.dataset))
        if self.audit is not None:
            end = None if is_last else self._trained * self.num_replicas
            handed_out = self._padded()[trained * self.num_replicas : end]
            self._handed_out.append((self.epoch, handed_out.tolist()))
        if PROCESS.worker is not None:
            PROCESS.worker.note_samples(self.processed_num - before)

    def note_commit(self, commits: int) -> None:
        """What was recorded until here is committed; called by the State.

        Warns when the audit file cannot be written. The next commit then writes the missing lines.
        """
        before, is_new, self._is_new = self._noted, self._is_new, False
        self._noted = {"commit": commits, "ranks": self.num_replicas, "epochs": self._handed_out}
        self._handed_out = []
        if self.audit is None or self.rank != 0:
            return
        # Who was rank 0 before may have been lost before it could note its last commit.
        rows = [before, self._noted] if is_new and before else [self._noted]
        # What a process that was killed has begun ends where the next line begins.
        self._unwritten += "".join(f"\n{json.dumps(row)}\n" for row in rows)
        try:
            with Path(self.audit).open("a", encoding="utf-8") as file:
                file.write(self._unwritten)
        except OSError as error:
            if not self._has_warned:
                warnings.warn(
                    f"cannot write the audit file {self.audit}: {error.strerror}. Training "
                    "continues, and each commit retries the write",
                    RuntimeWarning,
                    stacklevel=4,  # of who calls commit()
                )
            self._has_warned = True
        else:
            self._unwritten, self._has_warned = "", False

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and how many samples of it all ranks have trained."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes to where `state_dict` was, with the ranks that there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self._handed_out = []
        self.reset()

    def reset(self) -> None:
        """Divides what is left of the epoch among the ranks that there are now."""
        ranks = runtime.size(), runtime.rank()
        self._is_new |= ranks != (self.num_replicas, self.rank)
        self.num_replicas, self.rank = ranks
        self._remaining = self._order_of_epoch()[self.processed_num :]
        left = len(self._remaining)
        self._trained = 0
        if self.pad:
            self.num_samples = -(-left // self.num_replicas)
        else:
            self.num_samples = len(range(self.rank, left, self.num_replicas))
        self.total_size = self.num_samples * self.num_replicas if self.pad else left

    @property
    def remaining_indices(self) -> list[int]:
        """What was left of the epoch when it was divided last, in its order."""
        return self._remaining.tolist()

    def __iter__(self) -> Iterator[int]:
        """This rank's share of what is left."""
        return iter(self._padded()[self.rank :: self.num_replicas].tolist())

    def __len__(self) -> int:
        return self.num_samples

    def _padded(self) -> np.ndarray[Any, Any]:
        """What is left for all ranks, in turn."""
        # One sample may be left for many ranks.
        return np.resize(self._remaining, self.total_size)

    def _order_of_epoch(self) -> np.ndarray[Any, Any]:
        """The whole epoch's order. It is kept: a reset asks for it several times."""
        made_of = (self.seed, self.epoch, self.shuffle, len(self.dataset))
        if self._order[0] != made_of:
            order = np.arange(len(self.dataset))
            if self.shuffle:
                name = hashlib.sha256(f"{self.seed} {self.epoch}".encode()).digest()
                # Its numbers are the same in every version of NumPy, which a Generator's are not.
                np.random.RandomState(np.frombuffer(name, "<u4")).shuffle(order)
            self._order = made_of, order
        return self._order[1]


def read_audit(path: str | Path) -> dict[int, list[int]]:
    """The samples that were trained in each epoch of the committed course of a training, as often
    as they were, in their order.

    A commit that is noted again, or an earlier one, takes back those from it on: they were lost
    with the rank that had noted them.

    Args:
        path: what an ElasticSampler had as `audit`.

    Raises UsageError for a file of something else.
    """
    rows: dict[int, list[tuple[int, list[int]]]] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:  # of a process that was killed while it wrote
            continue
        if not (isinstance(row, dict) and {"commit", "epochs"} <= row.keys()):
            raise UsageError(f"{path} is not an audit file of an ElasticSampler: {line[:80]}")
        rows = {commit: told for commit, told in rows.items() if commit < row["commit"]}
        rows[row["commit"]] = row["epochs"]
    found: dict[int, list[int]] = {}
    for told in rows.values():
        for epoch, samples in told:
            found.setdefault(epoch, []).extend(samples)
    return found
