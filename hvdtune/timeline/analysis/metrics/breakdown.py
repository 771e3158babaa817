"""Where the time of each step went on each rank.

The parts of a step add up to it: `compute_ms` is what is left when everything that is known to be
something else is taken away, and `off_processor_ms` of it is time in which the thread neither ran
nor could have: idle, or waiting for a device.

Where the GPUs of all ranks were recorded, a rank waits for communication while its GPU computes
nothing and communicates, or the script waits: what the script launches runs later.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.plural import counted
from hvdtune.timeline.analysis import device_spans
from hvdtune.timeline.analysis.device_spans import DeviceSpans
from hvdtune.timeline.analysis.recorded import as_recorded, is_recorded
from hvdtune.timeline.model.intervals import covered_within, joined, without
from hvdtune.timeline.model.schema import (
    CHECKPOINT,
    COLLECTIVES,
    GARBAGE,
    INPUT,
    OF_OPERATIONS,
    PROCESS_SET_UNIT,
    WAITS,
    Ints,
    Spans,
)
from hvdtune.timeline.model.trace import Trace

TITLE = "Step times"

SPANS = {"input_ms": INPUT, "gc_ms": GARBAGE, "checkpoint_ms": CHECKPOINT}
PARTS = (
    "compute_ms",
    *SPANS,
    "no_processor_ms",
    "gpu_idle_ms",
    "wait_ms",
    "negotiate_ms",
    "exposed_ms",
)
COLUMNS = (
    "rank",
    "step",
    "begin_ns",
    "end_ns",
    "step_ms",
    "blocked_ms",
    *PARTS,
    "communicate_ms",
    "ran_ms",
    "off_processor_ms",
    "idle_ms",
)
_WORDS = {
    "compute_ms": "computing",
    "input_ms": "waiting for input",
    "gc_ms": "collecting garbage",
    "checkpoint_ms": "writing checkpoints",
    "no_processor_ms": "without a processor",
    "gpu_idle_ms": "with an idle GPU",
}
UNTOLD = "computing or unrecorded activity"
OFF_PROCESSOR = "off the processor (asleep, or waiting for a device)"
_LEAST_OFF_PERCENT = 0.5
# Parts of the time in which the script waits for communication: what it waits for
_WAITED_FOR = {
    "wait_ms": "other ranks",
    "negotiate_ms": "negotiation",
    "exposed_ms": "buckets",
}
# Of a step: between it and the next, which then follows. A profiler takes time for itself there.
_MOST_BETWEEN = 0.05

_SECOND_STEP = 2  # programs count from 0 or from 1


def table(
    events: pd.DataFrame,
    gpus: Mapping[int, DeviceSpans] | None = None,
    *,
    from_waits: bool = False,
) -> pd.DataFrame:
    """One row per rank and step.

    Args:
        events: see `schema.Trace`.
        gpus: see `device_spans.of_all`.
        from_waits: a step begins and ends where its last wait for operations does, instead of where
            the script marks it. There ranks meet; what one does between that and its mark makes the
            others wait in their next step. Steps of GPUs whose streams wait are cut so in any case:
            a script may mark its steps long before the GPU comes to them.

    Returns:
        Columns rank, step, begin_ns, end_ns, step_ms; blocked_ms (in which it waited for
        communication, see `waiting`); its parts wait_ms (not all ranks had announced), exposed_ms
        (a bucket was under way), negotiate_ms (neither); input_ms, gc_ms, checkpoint_ms (what the
        script said it did); no_processor_ms (it could run, but other threads did); gpu_idle_ms (of
        what is left, when the GPU ran nothing); compute_ms (the rest); communicate_ms (a bucket was
        under way, hidden or not); ran_ms and off_processor_ms; idle_ms, in which the GPU ran
        nothing and the script did not wait for operations. What is not recorded is NaN: times of
        processors, and without `gpus` those of GPUs; see `as_recorded` for the rest.
    """
    asked = announced_by_all(events, ("rank", "begin_ns", "all_ns"))
    parts = (
        _of_rank(rank, own, asked, gpus.get(rank) if gpus else None, from_waits=from_waits)
        for rank, own in of_each_rank(events)
    )
    rows = [part for part in parts if len(part)]
    if not rows:
        return pd.DataFrame({name: np.empty(0) for name in COLUMNS})
    return pd.concat(rows, ignore_index=True)


def apart_from_computing(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps of `table` in which off_processor_ms, where it is known, is no part of compute_ms."""
    off_ms = steps["off_processor_ms"].fillna(0.0)
    return steps.assign(compute_ms=steps["compute_ms"] - off_ms)


def sentence(table: pd.DataFrame) -> str:
    """The shares of a step: means of all ranks."""
    if table.empty:
        return "The trace has no steps."
    total = float(table["step_ms"].sum())
    percent = {part: 100 * float(table[part].sum()) / total for part in PARTS}
    off = 100 * float(table["off_processor_ms"].sum()) / total
    words = _WORDS if knows_computing(table) else _WORDS | {"compute_ms": UNTOLD}
    if off >= _LEAST_OFF_PERCENT:
        words = {"compute_ms": _WORDS["compute_ms"], "off": OFF_PROCESSOR, **_WORDS}
        percent |= {"off": off, "compute_ms": percent["compute_ms"] - off}
    waits = {part: percent[part] for part in _WAITED_FOR}
    if not knows_waits(table):
        waits["rest"] = 100 * float(table["blocked_ms"].sum()) / total - sum(waits.values())
    waited = sum(waits.values())
    whole = _in_whole_percent({part: percent[part] for part in words} | {"waited": waited})
    shares = [f"{whole[part]} % {word}" for part, word in words.items() if part in whole]
    if "waited" in whole:
        shares.append(_share_of_waits(waits, whole["waited"]))
    steps, ranks = (table[key].nunique() for key in ("step", "rank"))
    parts = ", ".join(shares) or "its parts are unknown"
    return (
        f"A step takes {total / len(table):.2f} ms, the mean of {counted(steps, 'step')} on "
        f"{counted(ranks, 'rank')}: {parts}."
    )


def _share_of_waits(percent: Mapping[str, float], waited: int) -> str:
    whole = _in_whole_percent(percent, waited)
    each = [f"{whole[part]} % for {word}" for part, word in _WAITED_FOR.items() if part in whole]
    if "rest" in percent:
        each.append("the rest for unknown reasons" if each else "for unknown reasons")
    return f"{waited} % waiting for communication ({', '.join(each)})"


def _in_whole_percent(percent: Mapping[str, float], total: int | None = None) -> dict[str, int]:
    """Shares without decimals that add up, those with the largest remainders rounded up.

    Args:
        percent: shares of one whole; those that are 0 are left out.
        total: what they shall add up to, their sum rounded up or down; None: to the nearest.
    """
    shares = {part: share for part, share in percent.items() if share > 0}
    whole = {part: math.floor(share) for part, share in shares.items()}
    total = round(sum(shares.values())) if total is None else total
    by_remainder = sorted(shares, key=lambda part: whole[part] - shares[part])
    for part in by_remainder[: max(total - sum(whole.values()), 0)]:
        whole[part] += 1
    return whole


def knows_computing(table: pd.DataFrame) -> bool:
    """Whether computing is told from other things that are not waiting, by the steps of `table`.

    Else what is left of a step may as well be time off the processor or without one.
    """
    return bool(table[["ran_ms", "idle_ms"]].notna().to_numpy().any())


def knows_waits(table: pd.DataFrame) -> bool:
    """Whether it is known how much of waiting is for other ranks, by the steps of `table`."""
    return not table["wait_ms"].isna().any()


def sentence_of_busy_time(table: pd.DataFrame) -> str:
    """What of busy time is no computing, which no timeline can show; "" where nothing is told.

    Args:
        table: the steps of `steady_steps`.
    """
    if table.empty or not (table["blocked_ms"] > 0).any():
        return ""
    if table["ran_ms"].isna().any():
        return (
            "Processor time of the script's thread is not recorded, so busy time may be computing "
            "or any wait, such as for a device."
        )
    parts = {"off_processor_ms": OFF_PROCESSOR, "no_processor_ms": _WORDS["no_processor_ms"]}
    means = {word: float(table[part].mean()) for part, word in parts.items()}
    least = _LEAST_OFF_PERCENT / 100 * float(table["step_ms"].mean())
    parts_of_it = [f"{mean:.2f} ms {word}" for word, mean in means.items() if mean >= least]
    if not parts_of_it:
        return ""
    busy = float((table["step_ms"] - table["blocked_ms"]).mean())
    over = "mean of all ranks" if table["rank"].nunique() > 1 else "mean"
    return (
        f"A rank is busy for {busy:.2f} ms per step ({over}), including "
        f"{' and '.join(parts_of_it)}. "
        "The time within the step is not recorded, so the lanes show it as computing."
    )


def words_of(part: str) -> str:
    """What a rank does in a part of a step: one of `PARTS` or off_processor_ms, without "_ms"."""
    column = f"{part}_ms"
    if part == "off_processor":
        return OFF_PROCESSOR
    return _WORDS.get(column) or f"waiting for {_WAITED_FOR[column]}"


def sees_gpus(steps: pd.DataFrame) -> bool:
    """Whether the GPUs of all ranks were recorded, by the steps of `table`."""
    return bool(steps["idle_ms"].notna().any())


def is_only_of_streams(events: pd.DataFrame, steps: pd.DataFrame) -> bool:
    """Whether it was GPUs' streams that waited, and nothing else of GPUs was recorded."""
    return not sees_gpus(steps) and bool((events["kind"] == "STREAM_WAIT").any())


def note_of_unseen_gpus(events: pd.DataFrame, steps: pd.DataFrame) -> str:
    """Say so where GPUs' streams waited and what GPUs computed is not recorded; "" otherwise.

    Args:
        events: of the trace, see `schema.Trace`.
        steps: of `table` or `steady_steps`.
    """
    if not is_only_of_streams(events, steps):
        return ""
    return (
        "GPU kernels are not recorded, so idle GPU time counts as busy, except waits for buckets; "
        "also record with torch.profiler to separate it"
    )


def steady_steps(trace: Trace) -> pd.DataFrame:
    """The steps that every page and command speaks of: `of_trace` from wait to wait, `steady`."""
    return steady(of_trace(trace, from_waits=True))


def of_trace(trace: Trace, *, from_waits: bool = False) -> pd.DataFrame:
    """`table` of a trace, with NaN in all that it cannot tell."""
    found = table(trace.events, device_spans.of_all(trace), from_waits=from_waits)
    if not is_recorded(trace, "negotiation"):
        # Between two collectives a script waits for its backend to begin the next.
        between = found["negotiate_ms"]
        moved = {column: found[column] + between for column in ("exposed_ms", "communicate_ms")}
        found = found.assign(**moved)
    return as_recorded(trace, found)


def steady(breakdown: pd.DataFrame) -> pd.DataFrame:
    """Steps that all ranks have, without the first ones, in which caches fill and memory is new.

    A trace that begins after a training's second step has none of those.

    A step that a rank has twice is left out: nobody knows which of the two the others had.
    """
    ranks = breakdown["rank"].nunique()
    common = breakdown.groupby("step")["rank"].agg(["nunique", "size"])
    once = (common["nunique"] == ranks) & (common["size"] == ranks)
    steps = np.sort(common.index[once].to_numpy())
    return breakdown[breakdown["step"].isin(steps[count_first(steps) :])]


def count_first(steps: Ints) -> int:
    """How many of these steps, by their numbers in order, are left out as the first ones."""
    return min(5, len(steps) // 10 + 1) if len(steps) and steps[0] < _SECOND_STEP else 0


def of_each_rank(rows: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Each rank and its rows, in their order; `groupby` would copy all of a large table at once."""
    ranks = rows["rank"].to_numpy()
    order = np.argsort(ranks, kind="stable").astype(np.int32)
    ordered = ranks[order]
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    del ordered
    for part in np.split(order, starts):
        if len(part):
            yield int(ranks[part[0]]), rows.take(part)


def announced_by_all(events: pd.DataFrame, keep: Sequence[str]) -> pd.DataFrame:
    """Return when each rank announced each collective, and when the last of all did.

    Args:
        events: see `schema.Trace`.
        keep: the columns that are needed, since there may be many rows: of `events`, and key (a
            number per collective, from 0), all_ns and last_rank.

    Returns:
        These columns of the NEGOTIATE events.
    """
    rows = np.flatnonzero((events["kind"] == "NEGOTIATE").to_numpy())
    begin, ranks = (events[column].to_numpy()[rows] for column in ("begin_ns", "rank"))
    parts = [events["seq"].to_numpy()[rows], events["name"].cat.codes.to_numpy()[rows]]
    parts.insert(1, events["arg"].to_numpy()[rows] // PROCESS_SET_UNIT)
    order = np.lexsort((begin, *parts)).astype(np.int32)
    changes = np.zeros(max(len(order) - 1, 0), bool)
    for part in parts:
        ordered = part[order]
        changes |= ordered[1:] != ordered[:-1]
    parts.clear()
    last = order[np.flatnonzero(np.concatenate((changes, np.ones(min(len(order), 1), bool))))]
    key = np.zeros(len(order), np.int32)
    key[order[1:]] = np.cumsum(changes, dtype=np.int32)
    del order, changes
    last_of = last[key]
    found = {"all_ns": begin, "last_rank": ranks}
    columns = {
        column: found[column][last_of] if column in found else events[column].array[rows]
        for column in keep
        if column != "key"
    }
    return pd.DataFrame(columns | ({"key": key} if "key" in keep else {}), copy=False)


def _of_rank(
    rank: int,
    own: pd.DataFrame,
    asked: pd.DataFrame,
    gpu: DeviceSpans | None,
    *,
    from_waits: bool,
) -> pd.DataFrame:
    steps, begin, end = steps_of(own, gpu)
    if len(begin) == 0:
        return pd.DataFrame(columns=list(COLUMNS))
    announced = asked[asked["rank"] == rank]
    lacking = announced["begin_ns"].to_numpy(), announced["all_ns"].to_numpy()
    waits = waits_of(own)
    if from_waits and not _is_of_streams(own, gpu):
        begin, end = _cut_at_waits(begin, end, np.sort(waits[1]))
    blocked, bucket = waiting(own, gpu)

    def covered(*spans: Spans) -> Ints:
        """ns of each step that any of the spans cover."""
        return covered_within(*joined(*spans), begin, end)

    in_bucket, waited = covered(bucket), covered(blocked)
    either = covered(blocked, bucket)
    wait = waited_for_ranks(blocked, lacking, bucket, (begin, end))
    step_ms = (end - begin) / 1e6
    ran = steps["arg"].to_numpy() / 1e3
    rows = pd.DataFrame(
        {
            "rank": np.full(len(begin), rank, np.int64),
            "step": steps["seq"].to_numpy(),
            "begin_ns": begin,
            "end_ns": end,
            "step_ms": step_ms,
            "blocked_ms": waited / 1e6,
            "wait_ms": wait / 1e6,
            "exposed_ms": (waited + in_bucket - either) / 1e6,
            "negotiate_ms": np.maximum(either - in_bucket - wait, 0) / 1e6,
            "communicate_ms": in_bucket / 1e6,
            "ran_ms": np.where(ran > 0, ran, np.nan),
            "idle_ms": step_ms - covered(gpu.busy, waits) / 1e6 if gpu else np.nan,
        }
    )
    named = own[of_kinds(own, ("SPAN",))]
    spans = {
        column: spans_of(named[named["name"] == name], ("SPAN",)) for column, name in SPANS.items()
    }
    for column, told in spans.items():
        rows[column] = (covered(told, blocked) - waited) / 1e6
    left = step_ms - waited / 1e6 - sum((rows[column] for column in SPANS), np.zeros(len(begin)))
    without_processor = np.where(ran > 0, steps["bucket"].to_numpy() / 1e3, np.nan)
    rows["no_processor_ms"] = np.minimum(without_processor, left)
    left -= rows["no_processor_ms"].fillna(0.0)
    idle_ms = step_ms - covered(blocked, gpu.busy, *spans.values()) / 1e6 if gpu else np.nan
    rows["gpu_idle_ms"] = np.clip(idle_ms, 0.0, left)
    rows["compute_ms"] = left - rows["gpu_idle_ms"].fillna(0.0)
    # Input and checkpoints use a processor, too: what is certain is the difference.
    rows["off_processor_ms"] = np.maximum(rows["compute_ms"] - rows["ran_ms"], 0.0)
    return rows[list(COLUMNS)]


def waited_for_ranks(blocked: Spans, lacking: Spans, bucket: Spans, windows: Spans) -> Ints:
    """How many ns of each window a rank waits for ranks that have not announced.

    Args:
        blocked: its waits for operations.
        lacking: from its own announcements to the last of all ranks.
        bucket: while one of its buckets is under way, its waits are for that.
        windows: begins and ends.
    """

    def covered(*spans: Spans) -> Ints:
        return covered_within(*joined(*spans), *windows)

    # |blocked and lacking, without bucket|, by inclusion and exclusion
    both = covered(blocked, bucket) + covered(lacking, bucket)
    return both - covered(blocked, lacking, bucket) - covered(bucket)


def waiting(own: pd.DataFrame, gpu: DeviceSpans | None) -> tuple[Spans, Spans]:
    """When a rank waits for communication, and when some of its is under way.

    Args:
        own: its events.
        gpu: what its GPU ran, if that was recorded of all ranks. What it computes meanwhile hides
            communication, whatever the script waits for; what it does not hide is waited for.
    """
    waits, bucket = waits_of(own), under_way(own, gpu)
    if gpu is None:
        return waits, bucket
    sending = joined(spans_of(own, COLLECTIVES), gpu.sending)
    return without(joined(waits, sending), gpu.computing), bucket


def under_way(own: pd.DataFrame, gpu: DeviceSpans | None) -> Spans:
    """When some communication of a rank is; arguments as of `waiting`."""
    bucket = spans_of(own, ("BUCKET",))
    if gpu is None:
        return bucket
    # Kernels of NCCL's that no event tells of have no bucket, either.
    return joined(bucket, without(gpu.sending, spans_of(own, COLLECTIVES)))


def spans_of(events: pd.DataFrame, kinds: Sequence[str]) -> Spans:
    """Begins and ends, in ns, of the events of these kinds."""
    which = of_kinds(events, kinds)
    return events["begin_ns"].to_numpy()[which], events["end_ns"].to_numpy()[which]


def of_kinds(events: pd.DataFrame, kinds: Sequence[str]) -> NDArray[np.bool_]:
    """Which events are of these kinds."""
    known = events["kind"].cat.categories.isin(kinds)
    which: NDArray[np.bool_] = np.append(known, False)[events["kind"].cat.codes.to_numpy()]
    return which


def _cut_at_waits(begin: Ints, end: Ints, waited: Ints) -> Spans:
    """Steps that follow one another move to the last wait that ends in them, where there is one.

    Those that stand alone stay as they are: what they lost at their end, no other would gain.
    """
    if len(waited) == 0:
        return begin, end
    last = waited[np.maximum(np.searchsorted(waited, end, side="right") - 1, 0)]
    moved = np.where((last > begin) & (last <= end), last, end)
    between = begin[1:] - end[:-1]
    follows = (between >= 0) & (between <= _MOST_BETWEEN * (end - begin)[:-1])
    no = np.zeros(1, bool)
    moved = np.where(np.concatenate((follows, no)) | np.concatenate((no, follows)), moved, end)
    return np.concatenate((begin[:1], np.where(follows, moved[:-1], begin[1:]))), moved


def steps_of(own: pd.DataFrame, gpu: DeviceSpans | None) -> tuple[pd.DataFrame, Ints, Ints]:
    """The steps of a rank as its script marks them, or where its GPU's stream waits, as its GPU
    comes to the end of their buckets.

    Args:
        own, gpu: as of `waiting`.

    Returns:
        The STEP events in order, their begins and ends.
    """
    steps = own[of_kinds(own, ("STEP",))].sort_values("begin_ns")
    begin, end = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
    if len(begin) == 0 or not _is_of_streams(own, gpu):
        return steps, begin, end
    known, begin, end = _cut_on_gpu(own, begin, end)
    return steps[known], begin, end


def _is_of_streams(own: pd.DataFrame, gpu: DeviceSpans | None) -> bool:
    return gpu is None and bool(of_kinds(own, ("STREAM_WAIT",)).any())


def _cut_on_gpu(own: pd.DataFrame, begin: Ints, end: Ints) -> tuple[NDArray[np.bool_], Ints, Ints]:
    """Steps from the end of one's last bucket to that of the next one's.

    Args:
        own: the events of a rank.
        begin, end: as its script marks them, in order.

    Returns:
        Of which steps the trace has all buckets, and those of the one before; begins and ends of
        these.
    """
    asked = own[of_kinds(own, ("NEGOTIATE",))]
    at = asked["begin_ns"].to_numpy()
    step = np.searchsorted(begin, at, side="right") - 1
    inside = (step >= 0) & (at < end[step])
    buckets = own[of_kinds(own, ("BUCKET",))].drop_duplicates("bucket").set_index("bucket")
    done = buckets["end_ns"].reindex(asked["bucket"]).fillna(np.inf).to_numpy(np.float64)
    last = np.full(len(begin), -np.inf)
    np.maximum.at(last, step[inside], done[inside])
    last[np.isinf(last)] = np.nan  # nothing was announced, or a bucket's end is not recorded
    before = np.concatenate((np.full(1, np.nan), last[:-1]))
    known = last > before
    return known, before[known].astype(np.int64), last[known].astype(np.int64)


def waits_of(own: pd.DataFrame) -> Spans:
    """Begins and ends, in ns, of a rank's waits for operations, from its events.

    For operations on a GPU it is the GPU's stream that waits. A script that waits until they are on
    a stream keeps none waiting that has other work.

    Where the trace does not tell, a script is taken to wait from the last announcement of a step to
    the end of its last collective.
    """
    if of_kinds(own, WAITS).any():
        begin, end = spans_of(own, OF_OPERATIONS)
        return begin[end > begin], end[end > begin]
    begin, end = spans_of(own, ("STEP",))
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], end[order]
    announced = np.sort(spans_of(own, ("NEGOTIATE",))[0])
    done = np.sort(spans_of(own, COLLECTIVES)[1])
    if len(announced) == 0 or len(done) == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    last_asked = announced[np.maximum(np.searchsorted(announced, end) - 1, 0)]
    last_done = done[np.maximum(np.searchsorted(done, end, side="right") - 1, 0)]
    waits = (last_asked >= begin) & (last_done > last_asked)
    return last_asked[waits], last_done[waits]
