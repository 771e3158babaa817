"""Traces of torch.profiler, one per rank; a GPU's kernels and NCCL's where there are any."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.event_table import make_events
from hvdtune.timeline.model.events_of_slices import events_of
from hvdtune.timeline.model.schema import (
    COLLECTIVES,
    COLUMNS,
    INPUT,
    KIND_NAMES,
    PROCESS_SET_UNIT,
)
from hvdtune.timeline.model.slices import KIND_TEXTS, categories_of, kind_column
from hvdtune.timeline.model.trace import InferEvents
from hvdtune.timeline.reading.formats.frame import count_within, kinds_of_frame
from hvdtune.timeline.reading.json.parsed import ParsedFile

NAME = "kineto"
NAMES_TENSORS = False
GAP = ""

COLLECTIVE = re.compile(
    r"(?:(?:nccl|gloo|mpi|ucc|xccl):|nccl(?:Dev)?Kernel_)_?(all_?reduce|broadcast|all_?gather|"
    r"reduce_?scatter|all_?to_?all|barrier)",
    re.IGNORECASE,
)
# How a script starts a collective; one that a thread of a backend for CPUs carries out.
_LAUNCH = re.compile(
    r"c10d::_?(all_?reduce|broadcast|all_?gather|reduce_?scatter|all_?to_?all|barrier)",
    re.IGNORECASE,
)
_BY_THREAD = re.compile(r"(?:gloo|mpi|ucc):")
# torch's own, and what scripts call theirs: record_function("train_step#7").
_STEP = re.compile(r"(?:ProfilerStep|\w*step)#([0-9]{1,15})")
_LOADER = re.compile(r"enumerate\(DataLoader\)")
_CATEGORIES = {
    "cpu_op": "COMPUTE",
    "kernel": "COMPUTE",
    "gpu_memcpy": "COPY",
    "gpu_memset": "COPY",
}
_SIZES = {"byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "short": 2}
_SIZES |= {"int": 4, "float": 4, "long": 8, "double": 8}


def recognizes(parsed: ParsedFile) -> bool:
    """Whether torch.profiler wrote it."""
    around = parsed.around
    if "distributedInfo" in around or "deviceProperties" in around:
        return True
    return "cpu_op" in parsed.texts


def finish(frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
    """Fills in what the format means; what is known of the ranks."""
    code = kinds_of_frame(frame, kind)
    frame["kind"] = kind_column(code)
    info, rank = _distributed(parsed), _rank(parsed)
    frame["rank"] = np.full(len(frame), rank, np.int32)
    number_steps(frame, code, _STEP)
    describe_collectives(frame, code)
    host, size = parsed.around.get("host_name"), info.get("world_size")
    known = {"host": host, "size": size, "backend": info.get("backend")}
    return {rank: {key: value for key, value in known.items() if value is not None}}


def rank_of_track(parsed: ParsedFile) -> list[int]:
    """The file's."""
    return [_rank(parsed)] * len(parsed.tracks.pid)


def _distributed(parsed: ParsedFile) -> dict[str, Any]:
    info = parsed.around.get("distributedInfo")
    return info if isinstance(info, dict) else {}


def _rank(parsed: ParsedFile) -> int:
    rank = _distributed(parsed).get("rank")
    return rank if isinstance(rank, int) and 0 <= rank < 2**31 else -1


def origin_unix_ns(parsed: ParsedFile) -> int | None:
    """The file's time 0 in ns since 1970."""
    base = parsed.around.get("baseTimeNanoseconds")
    return base if isinstance(base, int) and 0 <= base < 2**62 else None


def kind(name: str, category: str) -> str:
    """The kind of events of a name and a category; see `slices.KIND_TEXTS`."""
    if category in ("user_annotation", "gpu_user_annotation") and _STEP.fullmatch(name):
        return "STEP" if category == "user_annotation" else ""
    if _LOADER.match(name):
        return "INPUT"
    if _LAUNCH.match(name):
        return "LAUNCH"
    collective = COLLECTIVE.match(name)
    # A collective on a GPU is a kernel, and annotations around it and its launch: it counts once.
    launched = name.startswith("nccl:") and category in ("user_annotation", "cpu_op")
    if category != "gpu_user_annotation" and not launched and collective:
        return collective_kind(collective)
    return _CATEGORIES.get(category, "")


def collective_kind(found: re.Match[str] | None) -> str:
    """The kind of what `COLLECTIVE` has found, "" of nothing."""
    return found[1].upper().replace("_", "") if found else ""


def number_steps(frame: pd.DataFrame, code: NDArray[np.int8], name: re.Pattern[str]) -> None:
    """Numbers the steps of a frame by their names, whose number is the first group of `name`."""
    named = frame["name"].cat
    numbers = [
        int(found[1]) if (found := name.fullmatch(text)) else -1 for text in named.categories
    ]
    by_name = np.array(numbers or [-1], np.int64)[named.codes.to_numpy()]
    steps = code == KIND_TEXTS.index("STEP")
    frame["seq"] = np.where(steps, by_name, -1)


def describe_collectives(
    frame: pd.DataFrame, code: NDArray[np.int8], streams: NDArray[np.int64] | None = None
) -> None:
    """Numbers collectives of one kind and group, whose order is the same on all ranks.

    Args:
        streams: numbers that tell the streams of all ranks apart; where a file names no groups,
            the n-th stream of each rank on which there are collectives stands for group n.
    """
    rows = np.flatnonzero(np.isin(code, [KIND_TEXTS.index(name) for name in COLLECTIVES]))
    rows = rows[np.argsort(frame["begin_ns"].to_numpy()[rows], kind="stable")]
    said = [_said(text) for text in frame["args"].iloc[rows]] if "args" in frame else []
    groups = np.array([group for group, _ in said] or [0] * len(rows), np.int64)
    sizes = np.array([size for _, size in said] or [-1] * len(rows), np.int64)
    rank = frame["rank"].to_numpy()[rows]
    if streams is not None:
        groups = _places(streams[rows], rank)
    for column, values in (
        ("seq", count_within(code[rows], groups, rank)),
        ("process_set", groups),
        ("bytes", sizes),
    ):
        whole = frame[column].to_numpy().copy()
        whole[rows] = values
        frame[column] = whole
    kinds = np.zeros(len(frame), np.int64)
    kinds[rows] = code[rows]
    # Kineto names no tensors: what is reduced is known by its place in the order.
    frame["tensor"] = categories_of([text.lower() for text in KIND_TEXTS], kinds)


def _places(streams: NDArray[np.int64], rank: NDArray[np.int32]) -> NDArray[np.int64]:
    """The place of each row's stream among those of its rank, in the order of their first rows."""
    places: dict[tuple[int, int], int] = {}
    counts: dict[int, int] = {}
    for key in zip(rank.tolist(), streams.tolist(), strict=True):
        if key not in places:
            places[key] = counts[key[0]] = counts.get(key[0], -1) + 1
    return np.array(
        [places[key] for key in zip(rank.tolist(), streams.tolist(), strict=True)], np.int64
    )


def _said(args: str) -> tuple[int, int]:
    try:
        said = msgspec.json.decode(args, type=dict[str, Any]) if args else {}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        said = {}
    group = str(said.get("Process Group Name", "0"))
    elements = said.get("In msg nelems")
    size = _SIZES.get(str(said.get("dtype")).lower(), 0)
    moved = -1
    if isinstance(elements, int) and size and 0 <= elements < 2**50:
        moved = elements * size
    return int(group) if re.fullmatch("[0-9]{1,9}", group) else 0, moved


def infer_events(slices: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Completes the events of `slices` with what findings need.

    torch.profiler writes no announcements and no buckets: a collective's begin on a rank is taken
    for its announcement, or its launch where a backend for CPUs carries it out later, on a thread
    of its own. The collective, from its begin on the last rank, is taken for a bucket of its own.
    Data loaders are input.
    """
    return _with(events, _announcements(slices), _inputs(slices))


def infer_beside(files: Sequence[int], *, has_steps: bool) -> InferEvents:
    """Completes the events of a trace in which only some files are torch.profiler's.

    The others say more of collectives, so only steps and data loaders are taken from these, or
    where the others have them, too, what is no event: operators, and what GPUs ran.
    """

    def infer(slices: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
        del events
        own = slices["file"].isin(files)
        if has_steps:
            return events_of(slices[~own])
        kept = slices[~own | ~slices["kind"].isin(COLLECTIVES)]
        return _with(events_of(kept), _inputs(slices[own]), replaces_collectives=False)

    return infer


def _announcements(slices: pd.DataFrame) -> pd.DataFrame:
    """NEGOTIATE and BUCKET events of collectives, and the collectives with the bucket's number."""
    asked_ns = _asked_ns(slices)
    slices = slices[slices["kind"].isin(COLLECTIVES)]
    process_set = slices["process_set"].clip(lower=0).to_numpy(np.int64)
    texts = slices["tensor"].astype(str).to_numpy(object)
    names = np.where(process_set > 0, texts + " of group " + process_set.astype(str), texts)
    bucket, _ = pd.factorize(pd.MultiIndex.from_arrays([names, slices["seq"].to_numpy()]))
    rows = pd.DataFrame(
        {
            "rank": np.maximum(slices["rank"].to_numpy(), 0),  # as of all other events
            "kind": slices["kind"].astype(str).to_numpy(object),
            "name": names,
            "begin_ns": slices["begin_ns"].to_numpy(),
            "end_ns": slices["end_ns"].to_numpy(),
            "seq": slices["seq"].clip(lower=0).to_numpy(),
            "bucket": bucket,
            "arg": slices["bytes"].clip(lower=0).to_numpy(),
        }
    )
    # Announced, and from the cache: there is none that could be missed.
    announced = rows.assign(kind="NEGOTIATE", begin_ns=asked_ns, end_ns=asked_ns, arg=1)
    announced["arg"] += process_set * PROCESS_SET_UNIT
    # Why it was closed is not known, nor what is in it: its one tensor is the bucket itself.
    buckets = rows.assign(kind="BUCKET", name="", seq=1)
    # Before that a rank waits for the others, not for bytes. Clocks of hosts may differ.
    begun = buckets.groupby("bucket")["begin_ns"].transform("max")
    buckets["begin_ns"] = np.minimum(begun, buckets["end_ns"])
    return pd.concat([rows, announced, buckets])


def _asked_ns(slices: pd.DataFrame) -> NDArray[np.int64]:
    """When each collective of `slices` was asked for, in their order.

    That is its begin, or where its rank has as many launches of its kind, the launch: a backend for
    CPUs carries out a few at a time and in order, so a script that waits may have launched several.
    """
    collectives = slices[slices["kind"].isin(COLLECTIVES)]
    asked_ns = collectives["begin_ns"].to_numpy(np.int64).copy()
    launches = slices[slices["kind"] == "LAUNCH"]
    launches = launches.assign(
        kind=[collective_kind(_LAUNCH.match(name)) for name in launches["name"].astype(str)]
    )
    names = collectives["name"].astype("category").cat
    by_thread = np.array([bool(_BY_THREAD.match(str(text))) for text in names.categories], bool)
    of_threads = collectives.assign(at=np.arange(len(collectives)))
    of_threads = of_threads[np.append(by_thread, False)[names.codes.to_numpy()]]
    by_kind = launches.groupby(["rank", "kind"])["begin_ns"]
    launched = {key: np.sort(begin.to_numpy(np.int64)) for key, begin in by_kind}
    for (rank, kind), own in of_threads.groupby(["rank", "kind"], observed=True):
        own = own.sort_values("begin_ns", kind="stable")
        begin_ns = launched.get((rank, str(kind)), np.empty(0, np.int64))
        if len(begin_ns) == len(own) and (begin_ns <= own["begin_ns"].to_numpy()).all():
            asked_ns[own["at"].to_numpy()] = begin_ns
    return asked_ns


def _inputs(slices: pd.DataFrame) -> pd.DataFrame:
    slices = slices[slices["kind"] == "INPUT"]
    rows = slices[["rank", "begin_ns", "end_ns"]].reset_index(drop=True)
    return rows.assign(kind="SPAN", name=INPUT, seq=0, bucket=0, arg=0)


def _with(
    events: pd.DataFrame, *more: pd.DataFrame, replaces_collectives: bool = True
) -> pd.DataFrame:
    """The events with others, whose collectives may replace those that are there."""
    kept = events[~events["kind"].isin(COLLECTIVES)] if replaces_collectives else events
    kept = kept.astype({"kind": object, "name": object})
    rows = pd.concat([kept, *more], ignore_index=True)
    names, texts = pd.factorize(rows["name"].astype(object))
    codes = {name: code for code, name in enumerate(KIND_NAMES)}
    columns: dict[str, Any] = {
        key: rows[key].to_numpy(np.int64) for key in COLUMNS if key not in ("kind", "name")
    }
    columns["kind"] = rows["kind"].astype(object).map(codes).to_numpy(np.int64)
    columns["name"] = names.astype(np.int64)
    return make_events(columns, [str(text) for text in texts])
