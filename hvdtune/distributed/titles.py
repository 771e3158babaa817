"""Titles of operations in the timeline, for the tensors that torch's wrappers send.

DistributedDataParallel sends its buckets in order, in every backward pass; its log lists the
parameters of each. When it is made it sends the parameters and buffers of its module, before a
forward pass the buffers, those of one dtype together. FSDP2 sends the parameters of one module at a
time.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import torch
from torch.nn.modules import module as modules
from torch.nn.parallel import DistributedDataParallel

# DDP rebuilds its buckets in its second iteration, or never.
_ARRANGED: Final = 3
# Functions that send tensors: their files, and the content; "" for parameters of an FSDP2 module.
_SENDERS: Final = {
    "_sync_module_states": ("distributed/utils.py", "first values of"),
    "_sync_buffers": ("parallel/distributed.py", "buffers of"),
    "unshard": ("_fsdp_param_group.py", ""),
    "post_backward": ("_fsdp_param_group.py", ""),
}
_OF_FSDP: Final = ("allgather", "reducescatter")
_MOST_FRAMES: Final = 24


@dataclass(frozen=True)
class Bucket:
    """Elements that DDP sends together, and their title."""

    title: str
    elements: int


def buckets_of(
    log: Mapping[str, Any], parameters: Sequence[tuple[str, int, int]]
) -> list[Bucket] | None:
    """Return the buckets in sending order; None while DDP may still rearrange them.

    Args:
        log: the result of a DDP's `_get_ddp_logging_data`.
        parameters: name, elements and bytes of each, in DDP's order.
    """
    if log.get("has_rebuilt_buckets"):
        contents = [_numbers(text) for text in log["rebuilt_per_bucket_param_indices"].split(",")]
    elif log.get("iteration", 0) >= _ARRANGED:
        contents = _first_contents(_numbers(log["bucket_sizes"], ","), parameters)
    else:
        return None
    return [
        Bucket(
            _title(number, [parameters[index][0] for index in indices]),
            sum(parameters[index][1] for index in indices),
        )
        for number, indices in enumerate(contents)
    ]


def _numbers(text: str, separator: str | None = None) -> list[int]:
    return [int(number) for number in text.split(separator)]


def _first_contents(
    sizes: Sequence[int], parameters: Sequence[tuple[str, int, int]]
) -> list[list[int]]:
    """DDP fills its first buckets from the last parameter to the first. [] unless all fit."""
    left = list(range(len(parameters)))
    contents = []
    for size in sizes:
        inside, room = [], size
        while left and parameters[left[-1]][2] <= room:
            inside.append(left.pop())
            room -= parameters[inside[-1]][2]
        if room or not inside:
            return []
        contents.append(inside)
    return contents


def _title(number: int, names: Sequence[str]) -> str:
    span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    return f"bucket {number}: {span}"


class _Replica:
    """A DDP of this process, its buckets once they are known, and the next one."""

    def __init__(self, ddp: DistributedDataParallel, module: torch.nn.Module) -> None:
        self.ddp = weakref.ref(ddp)
        self._thread = threading.get_ident()
        self._parameters = [
            (name, each.numel(), each.nbytes)
            for name, each in module.named_parameters()
            if each.requires_grad and name not in ddp.parameters_to_ignore
        ]
        self.buckets: list[Bucket] | None = None
        self.next = 0

    def look(self) -> None:
        """Updates the buckets, unless DDP's log may be locked.

        It is locked during a backward pass, also while that waits for operations of a hook of DDP.
        Such a hook may contain an optimizer step, on any thread.
        """
        ddp = self.ddp()
        is_outside = torch._C._current_graph_task_id() == -1
        if threading.get_ident() == self._thread and is_outside and self.buckets is None and ddp:
            log = ddp._get_ddp_logging_data()  # type: ignore[no-untyped-call]
            self.buckets = buckets_of(log, self._parameters)


class Titles:
    """The titles of one group's operations.

    Thread rule: any thread, with Python's lock; `of` is called in the order of the operations.
    """

    def __init__(self, group: object, is_recording: Callable[[], bool]) -> None:
        self._group = weakref.ref(group)
        self._is_recording = is_recording
        self._replicas: list[_Replica] = []
        self._pass = -1
        self._hook = modules.register_module_module_registration_hook(self._note)

    def close(self) -> None:
        """Ends the noting of DDPs. Can be called again."""
        self._hook.remove()

    def look(self) -> None:
        """Updates the buckets; called between steps."""
        self._replicas = [replica for replica in self._replicas if replica.ddp() is not None]
        for replica in self._replicas:
            replica.look()

    def of(self, kind: str, dtype: str, elements: int) -> str:
        """Return a title like `allreduce.bucket 0: fc.bias to conv.weight`; "" if unknown."""
        found = ""
        if kind == "allreduce":
            found = self._of_bucket(elements)
        elif kind in _OF_FSDP or (kind == "broadcast" and self._replicas):
            found = _of_sender(dtype) if self._is_recording() else ""
        return f"{kind}.{found}" if found else ""

    def _of_bucket(self, elements: int) -> str:
        task = torch._C._current_graph_task_id() if self._replicas else -1
        if task == -1:
            return ""
        if task != self._pass:
            self._pass = task
            for replica in self._replicas:
                replica.next = 0
        for replica in self._replicas:
            buckets = replica.buckets or ()
            if replica.next < len(buckets) and buckets[replica.next].elements == elements:
                replica.next += 1
                return buckets[replica.next - 1].title
        return ""

    def _note(self, owner: object, name: str, module: torch.nn.Module) -> None:
        if name != "module" or not isinstance(owner, DistributedDataParallel):
            return
        if owner.process_group is self._group():
            self._replicas.append(_Replica(owner, module))


def _of_sender(dtype: str) -> str:
    """Return a title by the function further up this thread's stack that sends tensors, or ""."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        file, what = _SENDERS.get(frame.f_code.co_name, (None, ""))
        if file and frame.f_code.co_filename.endswith(file):
            module = getattr(frame.f_locals.get("self"), "_module_fqn", None)
            return f"{what} {dtype}" if what else module or "the outermost module"
        frame = frame.f_back
    return ""
