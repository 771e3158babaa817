"""The process sets that `init` is given: all ranks register them, or there is no job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from hvdtune.core.rank import handles
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet, add_process_set
from hvdtune.errors import MismatchError, UsageError
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core import _native

_WHAT: Final = "hvd.init(process_sets=...)"


def listed(process_sets: Sequence[ProcessSet] | str | None) -> list[ProcessSet]:
    """The sets that are to be registered. Raises UsageError for what is no list of them."""
    if process_sets is None or process_sets == "dynamic":
        return []
    kinds = None if isinstance(process_sets, str) else [*process_sets]
    if kinds is None or not all(isinstance(each, ProcessSet) for each in kinds):
        raise UsageError(f"process_sets={process_sets!r} is not a list of hvd.ProcessSet")
    return kinds


def check(process_sets: Sequence[ProcessSet], size: int) -> None:
    """Raises UsageError for sets that a job of `size` ranks cannot have."""
    seen: list[list[int]] = [list(range(size))]
    for process_set in process_sets:
        ranks = process_set.ranks or []
        for rank in ranks:
            if not 0 <= rank < size:
                job = f"a job of {counted(size, 'rank')}"
                raise UsageError(f"{_WHAT}: rank {rank} of {ranks} does not exist in {job}")
        if ranks in seen:
            why = "are all ranks: use hvd.global_process_set" if ranks == seen[0] else "come twice"
            raise UsageError(f"{_WHAT}: the ranks {ranks} {why}")
        seen.append(ranks)


def register(process_sets: Sequence[ProcessSet]) -> None:
    """Registers the sets, when all ranks have said that they are given the same.

    Raises:
        UsageError: this rank was given a set that cannot be.
        MismatchError: other ranks were given other sets.
    """
    own = [process_set.ranks or [] for process_set in process_sets]
    said = _said_by_all(own)
    check(process_sets, len(said))
    for rank, other in enumerate(said):
        if other != own:
            raise MismatchError(
                f"{_WHAT} differs between ranks: rank {PROCESS.told('rank')} was given {own}, "
                f"rank {rank} {other}; every rank gives the same, in the same order",
                rank,
            )
    for process_set in process_sets:
        add_process_set(process_set)


def _said_by_all(own: list[list[int]]) -> list[list[list[int]]]:
    from hvdtune.core import _native

    line = np.frombuffer(json.dumps(own).encode() + b"\n", np.uint8)
    request = _native.Request(
        op="allgather", name="init.process_sets", tensors=[("uint8", [len(line)])]
    )

    def finish(operation: _native.Operation) -> bytes:
        lines = np.empty(operation.result_bytes(0), np.uint8)
        operation.copy_result(0, lines.ctypes.data, lines.nbytes)
        return lines.tobytes()

    handle = handles.start(request, [line.ctypes.data], [0], [line], finish)
    return [json.loads(text) for text in handles.complete(handle).splitlines()]
