"""Horovod's timelines: a process per tensor, written by rank 0 alone."""

import re
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import COLLECTIVES
from hvdtune.timeline.model.slices import KIND_TEXTS, categories_of, kind_column
from hvdtune.timeline.reading.formats.frame import count_within, kinds_of_frame
from hvdtune.timeline.reading.json.parsed import ParsedFile

NAME = "horovod"
NAMES_TENSORS = True
GAP = (
    "a timeline of Horovod has only the events of rank 0; for other ranks it has only "
    "announcements, and only of tensors that missed the response cache"
)
infer_events = None

_KINDS = {
    **{name: name for name in COLLECTIVES},
    "QUEUE": "QUEUE",
    "ADASUM": "ALLREDUCE",
    "MEMCPY_IN_FUSION_BUFFER": "PACK",
    "MEMCPY_OUT_FUSION_BUFFER": "UNPACK",
    "MEMCPY_IN_HOST_BUFFER": "COPY",
    "MEMCPY_OUT_HOST_BUFFER": "COPY",
    "WAIT_FOR_DATA": "WAIT",
    "WAIT_FOR_OTHER_TENSOR_DATA": "WAIT",
    "CYCLE_START": "CYCLE",
}
_LIBRARY = re.compile(r"(GLOO|MPI|NCCL|CCL|DDL)_")
_TICK = re.compile(r"[0-9]{1,7}")
_SIZES = {"uint8": 1, "int8": 1, "bool": 1, "uint16": 2, "int16": 2, "float16": 2, "bfloat16": 2}
_SIZES |= {"int32": 4, "float32": 4, "int64": 8, "float64": 8}


def recognizes(parsed: ParsedFile) -> bool:
    """Whether Horovod wrote it."""
    texts = set(parsed.texts)
    return any(f"NEGOTIATE_{name}" in texts for name in COLLECTIVES) or "CYCLE_START" in texts


def finish(frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
    """Fills in what the format means; what is known of the ranks."""
    code = kinds_of_frame(frame, kind)
    frame["kind"] = kind_column(code)
    frame["tensor"] = _tensors(parsed, parsed.table["track"].to_numpy())
    frame["rank"] = _ranks(frame, code)
    if "args" in frame:
        frame["bytes"] = _bytes(frame["args"])
    _number(frame, code)
    return {0: {}}


def rank_of_track(parsed: ParsedFile) -> list[int]:
    """Rank 0 wrote all but the ticks."""
    return [0] * len(parsed.tracks.pid)


def origin_unix_ns(parsed: ParsedFile) -> int | None:
    """The file's time 0 in ns since 1970, which Horovod says since 0.21."""
    start_us = parsed.tracks.clues.get("start_time_since_epoch_in_micros")
    return start_us * 1000 if isinstance(start_us, int) and 0 < start_us < 2**52 else None


def kind(name: str, category: str) -> str:
    """The kind of events of a name and a category; see `slices.KIND_TEXTS`."""
    if name.startswith("NEGOTIATE_"):
        return "NEGOTIATE"
    if _TICK.fullmatch(name):
        return "READY"
    return _KINDS.get(name) or ("EXCHANGE" if _LIBRARY.match(name) else "")


def _tensors(parsed: ParsedFile, track: NDArray[Any]) -> pd.Categorical:
    titles = parsed.tracks.processes
    return categories_of(
        [titles.get(pid, f"pid {pid}" if pid else "") for pid in parsed.tracks.pid], track
    )


def _ranks(frame: pd.DataFrame, code: NDArray[np.int8]) -> NDArray[np.int32]:
    # A tick is named by the rank that announced.
    named = frame["name"].cat
    ranks = [int(text) if _TICK.fullmatch(text) else 0 for text in named.categories]
    by_name = np.array(ranks or [0], np.int32)[named.codes.to_numpy()]
    return np.where(code == KIND_TEXTS.index("READY"), by_name, 0).astype(np.int32)


def _bytes(args: "pd.Series[str]") -> NDArray[np.int64]:
    codes, texts = pd.factorize(args)
    sizes = np.array([_bytes_said(text) for text in texts] or [-1], np.int64)
    return sizes[codes]


def _bytes_said(args: str) -> int:
    try:
        said = msgspec.json.decode(args, type=dict[str, Any]) if args else {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return -1
    size = _SIZES.get(str(said.get("dtype")), 0)
    shape = re.findall(r"[0-9]+", str(said.get("shape")))
    if not size or "shape" not in said or len(shape) > 32:
        return -1
    elements = 1
    for extent in shape:
        elements *= int(extent[:18])
    return elements * size if elements < 2**50 else -1


def _number(frame: pd.DataFrame, code: NDArray[np.int8]) -> None:
    """Numbers operations by tensor, and buckets by what is under way at the same time."""
    tensor = frame["tensor"].cat.codes.to_numpy()
    begin, end = frame["begin_ns"].to_numpy(), frame["end_ns"].to_numpy()
    collective = np.isin(code, [KIND_TEXTS.index(name) for name in COLLECTIVES])
    negotiate = code == KIND_TEXTS.index("NEGOTIATE")
    queue = code == KIND_TEXTS.index("QUEUE")
    seq = np.full(len(frame), -1, np.int64)
    for group in (negotiate, queue, collective):
        rows = np.flatnonzero(group)
        rows = rows[np.argsort(begin[rows], kind="stable")]
        seq[rows] = count_within(tensor[rows])
    inner = np.isin(
        code, [KIND_TEXTS.index(name) for name in ("PACK", "UNPACK", "EXCHANGE", "WAIT")]
    )
    ready = code == KIND_TEXTS.index("READY")
    seq = _inherit(seq, collective, inner, tensor, begin, end)
    frame["seq"] = _inherit(seq, negotiate, ready, tensor, begin, end)
    bucket = np.full(len(frame), -1, np.int64)
    bucket[collective] = _overlapping(begin[collective], end[collective])
    frame["bucket"] = _inherit(bucket, collective, inner, tensor, begin, end)
    frame.loc[negotiate, "cached"] = _cached(frame, negotiate, ready)


def _inherit(
    values: NDArray[np.int64],
    outer: NDArray[np.bool_],
    inner: NDArray[np.bool_],
    tensor: NDArray[Any],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Gives what lies within a slice of the same tensor its value."""
    rows = np.flatnonzero(outer | inner)
    order = rows[np.lexsort((-end[rows], inner[rows], begin[rows], tensor[rows]))]
    place = np.arange(len(order))
    last = np.maximum.accumulate(np.where(outer[order], place, -1))
    source = order[np.maximum(last, 0)]
    inside = inner[order] & (last >= 0) & (tensor[source] == tensor[order])
    inside &= begin[order] <= end[source]
    values = values.copy()
    values[order[inside]] = values[source[inside]]
    return values


def _overlapping(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers the stretches of time that the slices cover; one thread does bucket after bucket."""
    order = np.argsort(begin, kind="stable")
    reach = np.maximum.accumulate(end[order])
    starts = np.zeros(len(order), np.int64)
    starts[1:] = begin[order][1:] >= reach[:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(starts)
    return numbers


def _cached(
    frame: pd.DataFrame, negotiate: NDArray[np.bool_], ready: NDArray[np.bool_]
) -> NDArray[np.int8]:
    keys = frame["tensor"].cat.codes.to_numpy().astype(np.int64) << 40 | frame["seq"].to_numpy()
    ticked = np.isin(keys[negotiate], keys[ready])
    # Some programs that write this format have ticks only for what was not in the cache, others for
    # all: those of a file that has them for all its announcements tell nothing.
    cached = np.where(ticked, 0, 1) if not ticked.all() else np.full(len(ticked), -1)
    return cached.astype(np.int8)
