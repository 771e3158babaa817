"""What events are: their kinds, the record they are stored in, the columns of their table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]
Spans = tuple[Ints, Ints]  # begins and ends in ns
Column = Literal["name", "seq", "bucket", "arg"]
# What a script may say it does (SPAN), and what hvdtune.torch says for it.
INPUT, GARBAGE, CHECKPOINT = "input", "gc", "checkpoint"
# Names of the buckets of torch's DistributedDataParallel over hvdtune.distributed.
DDP_BUCKET = re.compile(r"allreduce\.bucket [0-9]+: ")
Row = Literal["steps", "script", "communication", "clock", "tensor", "process"]


@dataclass(frozen=True)
class Kind:
    """One kind of event.

    Attributes:
        code: its number in files.
        row: where exports draw it; events of row "tensor" are on the row of the tensor they name.
        fields: column -> what its value is for this kind; columns not listed are 0 or "".
        duration: what end - begin is when the event is an instant, "" when it is nothing.
        needs_all: whether no rank has the result before every rank has given a part.
        on_link: a, b: for one byte of the tensor, each link of a ring of n ranks carries a + b / n.
        horovod: the communication's name in Horovod's timeline, "" where it has none.
    """

    code: int
    name: str
    row: Row
    fields: Mapping[Column, str]
    span: bool = True
    duration: str = ""
    needs_all: bool = False
    on_link: tuple[int, int] = (0, 0)
    horovod: str = ""


_INSIDE_BUCKET: Mapping[Column, str] = {"bucket": "bucket", "arg": "bytes"}
_COLLECTIVE: Mapping[Column, str] = {"seq": "seq", "bucket": "bucket", "arg": "bytes"}


def _collective(
    code: int,
    name: str,
    horovod: str = "",
    on_link: tuple[int, int] = (0, 0),
    *,
    needs_all: bool = False,
) -> Kind:
    return Kind(code, name, "tensor", _COLLECTIVE, True, "", needs_all, on_link, horovod)


_TABLE = (
    Kind(1, "STEP", "steps", {"seq": "step", "bucket": "waited_us", "arg": "ran_us"}),
    Kind(2, "NEGOTIATE", "tensor", {"seq": "seq", "bucket": "bucket", "arg": "cached"}),
    Kind(3, "LATE", "tensor", {"seq": "seq", "arg": "last_rank"}, span=False, duration="late_us"),
    Kind(4, "QUEUE", "tensor", {"seq": "seq", "bucket": "bucket", "arg": "process_set"}),
    _collective(5, "ALLREDUCE", "GLOO_ALLREDUCE", (2, -2), needs_all=True),
    # The root may be done early.
    _collective(6, "BROADCAST", "GLOO_BCAST", (1, 0)),
    _collective(7, "ALLGATHER", "GLOO_ALLGATHER", (1, -1), needs_all=True),
    _collective(8, "BARRIER"),
    Kind(
        9,
        "BUCKET",
        "communication",
        {"bucket": "bucket", "seq": "tensors", "arg": "bytes", "name": "reason"},
    ),
    Kind(10, "PACK", "communication", _INSIDE_BUCKET),
    Kind(11, "REDUCE", "communication", _INSIDE_BUCKET),
    Kind(12, "EXCHANGE", "communication", _INSIDE_BUCKET),
    Kind(13, "UNPACK", "communication", _INSIDE_BUCKET),
    Kind(14, "WAIT", "communication", _INSIDE_BUCKET),
    Kind(15, "CYCLE", "process", {"seq": "cycle", "arg": "tensors", "bucket": "bytes"}, span=False),
    Kind(16, "KNOB_ADOPTED", "process", {"arg": "version", "name": "setting"}, span=False),
    Kind(17, "CLOCK", "clock", {"seq": "offset_ns"}, span=False, duration="round_trip_us"),
    # Horovod says MPI with Gloo, too.
    _collective(18, "ALLTOALL", "MPI_ALLTOALL", (1, -1)),
    _collective(19, "REDUCESCATTER", "GLOO_REDUCESCATTER", (1, -1), needs_all=True),
    _collective(20, "JOIN"),
    Kind(21, "SPAN", "script", {"name": "what"}),
    Kind(22, "BLOCKED", "script", {}),
    Kind(23, "PEER", "communication", {"bucket": "bucket", "seq": "peer"}),
    # A GPU's stream waits; the script until operations are on one, whatever the GPU does meanwhile.
    Kind(24, "STREAM_WAIT", "script", {"bucket": "bucket"}),
    Kind(25, "ENQUEUE_WAIT", "script", {}),
)

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _TABLE}
KIND_NAMES: tuple[str, ...] = tuple(KINDS)
# Waits for operations to end, and all that is recorded of waits.
OF_OPERATIONS = ("BLOCKED", "STREAM_WAIT")
WAITS = (*OF_OPERATIONS, "ENQUEUE_WAIT")
COLLECTIVES: tuple[str, ...] = tuple(kind.name for kind in _TABLE if kind.fields is _COLLECTIVE)

RECORD = np.dtype(
    [
        ("begin_ns", "<u8"),
        ("duration_and_kind", "<u8"),
        ("name", "<u4"),
        ("seq", "<u4"),
        ("bucket", "<u4"),
        ("arg", "<u4"),
    ]
)

# arg of NEGOTIATE is this many times the process set, plus 1 if the announcement hit the cache.
PROCESS_SET_UNIT = 2

INT_COLUMNS = ("begin_ns", "end_ns", "seq", "bucket", "arg")
COLUMNS = ("rank", "kind", "name", *INT_COLUMNS)


class HasEvents(Protocol):
    """What rules about events need of a trace; see `trace.Trace`."""

    @property
    def events(self) -> pd.DataFrame: ...

    @property
    def meta(self) -> Mapping[str, Any]: ...

    @property
    def warnings(self) -> list[str]: ...
