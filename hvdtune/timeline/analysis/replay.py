"""What communication would have taken under other settings: a step played again with a cost model.

A step is its announcements. Rank 0 sends what all ranks have announced when the window of the cycle
time has passed since it last did, be it in the step before, when a bucket is full, or when every
rank waits; buckets are reduced one after another, and while one is, nothing is sent
(`csrc/negotiate/window.h`, `csrc/negotiate/bucket_plan.h`). What a script does between its last
announcement and its wait hides communication as computing before it does. The same model plays the
step as it was and as it would be, so that what the model does not know cancels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.analysis.fusion import NEVER_FUSES, plan_buckets
from hvdtune.timeline.analysis.metrics.bandwidth import bucket_table
from hvdtune.timeline.analysis.metrics.breakdown import (
    announced_by_all,
    of_each_rank,
    of_kinds,
    spans_of,
)
from hvdtune.timeline.model.intervals import union
from hvdtune.timeline.model.schema import COLLECTIVES, OF_OPERATIONS, Spans

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CostModel:
    """What a bucket takes: a fixed part, one per tensor, one per byte.

    Attributes:
        bucket_ms: per bucket.
        tensor_ms: per tensor in it.
        byte_ms: per byte.
        reply_ms: from the last announcement, when every rank waits, to the response.
    """

    bucket_ms: float
    tensor_ms: float
    byte_ms: float
    reply_ms: float = 0.0

    def shorter(self, share: float) -> "CostModel":
        """Return the costs if every bucket took this share of its time less."""
        left = max(1 - share, 0.0)
        parts = (self.bucket_ms * left, self.tensor_ms * left, self.byte_ms * left)
        return CostModel(*parts, self.reply_ms)

    def lasts_ms(self, tensors: int, size_bytes: float) -> float:
        return self.bucket_ms + tensors * self.tensor_ms + size_bytes * self.byte_ms


@dataclass(frozen=True)
class Rules:
    """The settings that decide what travels together, and when."""

    cycle_time_ms: float
    fusion_threshold_bytes: float


@dataclass(frozen=True)
class Step:
    """One step's collectives, in the order in which they were announced everywhere.

    Attributes:
        announced_ms: (ranks, collectives) since the step began; NaN: the rank takes no part.
        bytes: of each collective.
        fusible: whether it may share a bucket.
        names: of each collective.
        sent_ms: when something was sent last before them, since the step began; -inf: long ago.
        waits_ms: when the last rank began to wait for all of them, since the step began; -inf: as
            soon as it had announced them.
    """

    announced_ms: Floats
    bytes: Floats
    fusible: NDArray[np.bool_]
    names: tuple[str, ...] = ()
    sent_ms: float = -np.inf
    waits_ms: float = -np.inf

    @property
    def ready_ms(self) -> Floats:
        """The time at which all ranks had announced each collective, in ms."""
        result: Floats = np.nanmax(self.announced_ms, axis=0)
        return result

    @property
    def own_ms(self) -> float:
        """The time at which no rank had anything left to do but to wait, in ms."""
        return max(float(self.ready_ms.max(initial=0.0)), self.waits_ms)

    def without(self, index: int) -> "Step":
        """The step as it would be if one of its collectives were not there."""
        return replace(
            self,
            announced_ms=np.delete(self.announced_ms, index, axis=1),
            bytes=np.delete(self.bytes, index),
            fusible=np.delete(self.fusible, index),
            names=tuple(name for k, name in enumerate(self.names) if k != index),
        )


def finish_ms(step: Step, rules: Rules, model: CostModel) -> float:
    """Return when the last bucket of the step ends, in ms since the step began."""
    ready = step.ready_ms
    if len(ready) == 0:
        return 0.0
    order = np.argsort(ready, kind="stable")
    all_wait = float(ready[order[-1]])
    now, sent, at = -np.inf, step.sent_ms, 0
    while at < len(order):
        # A batch after a pause goes at once; else the window collects, until everybody waits.
        first = max(float(ready[order[at]]), now)
        due = max(min(sent + rules.cycle_time_ms, max(all_wait, first)), first)
        end = at + int(np.searchsorted(ready[order[at:]], due, side="right"))
        batch = order[at:end]
        sent = due
        now = due + model.reply_ms
        for members in plan(step, batch, rules.fusion_threshold_bytes):
            now += model.lasts_ms(len(members), float(step.bytes[members].sum()))
        at = end
    return now


def plan(step: Step, batch: NDArray[np.intp], threshold_bytes: float) -> list[list[int]]:
    """Which collectives of a batch share buckets, in order.

    A trace does not tell kinds of tensors apart, so all that may share a bucket count as one kind.
    """
    kinds = np.where(step.fusible[batch], 0, NEVER_FUSES)
    sizes = step.bytes[batch].astype(np.int64)
    buckets = plan_buckets(sizes.tolist(), kinds.tolist(), int(threshold_bytes))
    return [batch[members].tolist() for members in buckets]


def exposed_ms(steps: Sequence[Step], rules: Rules, model: CostModel) -> Floats:
    """Return for how many ms of each step every rank waits, until its last bucket ends."""
    after = [finish_ms(step, rules, model) - step.own_ms for step in steps]
    return np.maximum(np.array(after, np.float64), 0.0)


def steps_of(events: pd.DataFrame, wanted: Sequence[int]) -> list[Step]:
    """The steps of these numbers, as replay needs them; those without collectives are left out."""
    asked = announced_by_all(events, ("rank", "name", "begin_ns", "end_ns", "seq", "key"))
    marks = events[events["kind"] == "STEP"]
    step, key = _step_numbers(asked, marks), asked["key"].to_numpy()
    # A collective belongs to the first step in which a rank announced it.
    none = np.iinfo(np.int64).max
    first_step = np.full(int(key.max(initial=-1)) + 1, none)
    np.minimum.at(first_step, key, np.where(step >= 0, step, none))
    answered = np.sort(asked["end_ns"].to_numpy()[asked["rank"] == asked["rank"].min()])
    chosen = np.flatnonzero(np.isin(first_step, wanted)[key])
    asked = asked.take(chosen).assign(step=first_step[key[chosen]])
    done = _done(events, asked["seq"].unique())
    first = marks.groupby("seq")["begin_ns"].min()
    waits = _waits_by_rank(events)
    result = []
    for number, rows in asked.groupby("step"):
        times = rows.pivot_table(index="rank", columns="key", values="begin_ns")
        times = times[times.max().sort_values(kind="stable").index]
        about = rows.drop_duplicates("key").set_index("key").loc[times.columns]
        about = about.join(done, on=["name", "seq"])
        began = float(first[number])
        before = np.searchsorted(answered, rows["begin_ns"].min())
        result.append(
            Step(
                (times.to_numpy(np.float64) - began) / 1e6,
                about["bytes"].fillna(0).to_numpy(np.float64),
                about["fusible"].eq(True).to_numpy(),
                tuple(about["name"].astype(str)),
                sent_ms=(float(answered[before - 1]) - began) / 1e6 if before else -np.inf,
                waits_ms=(_all_wait_ns(rows, marks[marks["seq"] == number], waits) - began) / 1e6,
            )
        )
    return result


def _waits_by_rank(events: pd.DataFrame) -> dict[int, Spans]:
    """When each rank's script waited for operations, in order."""
    waited = events[of_kinds(events, OF_OPERATIONS)]
    return {rank: union(*spans_of(own, OF_OPERATIONS)) for rank, own in of_each_rank(waited)}


def _all_wait_ns(rows: pd.DataFrame, marks: pd.DataFrame, waits: Mapping[int, Spans]) -> float:
    """When the last rank had announced all of a step and began to wait for it."""
    latest = -np.inf
    ends = dict(zip(marks["rank"].to_list(), marks["end_ns"].to_list(), strict=True))
    announced = rows.groupby("rank")["begin_ns"].max()
    for rank, last in zip(announced.index.to_list(), announced.to_list(), strict=True):
        if rank not in waits or rank not in ends:
            continue
        begin, end = waits[rank]
        at = int(np.searchsorted(end, last, side="right"))  # the first that ends later
        if at < len(begin) and begin[at] < ends[rank]:
            latest = max(latest, float(begin[at]), float(last))
    return latest


def _done(events: pd.DataFrame, numbers: NDArray[np.int64]) -> pd.DataFrame:
    """Bytes and kind of each collective of these numbers, by name and number: the same on all."""
    rows = events[events["kind"].isin(COLLECTIVES) & events["seq"].isin(numbers)]
    rows = rows.drop_duplicates(["name", "seq"])
    values = {"bytes": rows["arg"].to_numpy(), "fusible": (rows["kind"] == "ALLREDUCE").to_numpy()}
    return pd.DataFrame(values, index=pd.MultiIndex.from_frame(rows[["name", "seq"]]))


def _step_numbers(rows: pd.DataFrame, marks: pd.DataFrame) -> NDArray[np.int64]:
    """The step of its own rank in which each row begins; -1: none."""
    result = np.full(len(rows), -1, np.int64)
    ranks = rows["rank"].to_numpy()
    at = rows["begin_ns"].to_numpy()
    for rank, own in marks.sort_values("begin_ns").groupby("rank"):
        mine = np.flatnonzero(ranks == rank)
        where = np.searchsorted(own["begin_ns"].to_numpy(), at[mine], side="right") - 1
        inside = (where >= 0) & (at[mine] < own["end_ns"].to_numpy()[where])
        result[mine[inside]] = own["seq"].to_numpy()[where[inside]]
    return result


def fit_costs(events: pd.DataFrame) -> CostModel:
    """Fit a model to the buckets of the trace.

    Buckets are served one after another, so one's time is from its first rank's begin, or from the
    end of the one before where that is later or just before, to its last rank's end. Where all
    buckets are alike, the parts cannot be told apart: then small ones are all fixed cost and large
    ones all bytes. Buckets of which there are a few only, as of what is exchanged once before the
    training, do not tell them apart.
    """
    buckets = bucket_table(events)
    by = buckets[buckets["bytes"] > 0].groupby("bucket")
    rows = by.agg(
        begin=("begin_ns", "min"),
        end=("end_ns", "max"),
        tensors=("tensors", "first"),
        bytes=("bytes", "first"),
    ).sort_values("begin")
    reply_ms = _shortest_reply_ms(events)
    if rows.empty:
        return CostModel(0.0, 0.0, 0.0, reply_ms)
    free = rows["end"].cummax().shift(fill_value=rows["begin"].iloc[0] - NEXT_NS)
    begin = rows["begin"].where(rows["begin"] - free >= NEXT_NS, free)
    rows["ms"] = (rows["end"] - begin).clip(lower=1) / 1e6
    # A rare pause is no cost of bytes.
    most_ms = rows.groupby(["tensors", "bytes"])["ms"].transform("quantile", 1 - RARE)
    rows["ms"] = np.minimum(rows["ms"].to_numpy(np.float64), most_ms.to_numpy(np.float64))
    alike = rows.groupby(["tensors", "bytes"])["ms"].agg(["mean", "size"]).reset_index()
    alike.columns = pd.Index(["tensors", "bytes", "ms", "count"])
    often = alike[alike["count"] >= OFTEN]
    return _fit(alike if often.empty else often, reply_ms)


SMALL_BYTES = 256 * 1024
RARE = 0.01  # of buckets alike
OFTEN = 5  # buckets alike that say what others take
NEXT_NS = 100_000  # a bucket that begins sooner after another was waiting for it


def _fit(alike: pd.DataFrame, reply_ms: float) -> CostModel:
    ms = alike["ms"].to_numpy(np.float64)
    size = alike["bytes"].to_numpy(np.float64)
    if len(alike) < 2:
        if size[0] < SMALL_BYTES:
            return CostModel(float(ms[0]), 0.0, 0.0, reply_ms)
        return CostModel(0.0, 0.0, float(ms[0] / size[0]), reply_ms)
    ones, tensors = np.ones(len(ms)), alike["tensors"].to_numpy(np.float64)
    columns = np.stack((ones, tensors, size / 2**20), axis=1)
    # Relative errors count, and what was seen often counts more.
    weight = np.sqrt(alike["count"].to_numpy(np.float64)) / ms
    found = least_squares(columns * weight[:, None], ms * weight)
    return CostModel(float(found[0]), float(found[1]), float(found[2]) / 2**20, reply_ms)


def least_squares(columns: Floats, values: Floats) -> Floats:
    """Factors of 0 and more of few columns, whose sum comes closest to the values.

    Each subset of the columns is tried, which is soon done and needs no import of SciPy. Where
    columns are alike, the first is taken.
    """
    best, least = np.zeros(columns.shape[1]), float(values @ values)
    rounding = 1e-12 * least
    for count in range(1, columns.shape[1] + 1):
        for chosen in map(list, combinations(range(columns.shape[1]), count)):
            factors = np.linalg.lstsq(columns[:, chosen], values, rcond=None)[0]
            error = columns[:, chosen] @ factors - values
            if (factors >= 0).all() and error @ error < least - rounding:
                best, least = np.zeros(columns.shape[1]), float(error @ error)
                best[chosen] = factors
    return best


def _shortest_reply_ms(events: pd.DataFrame) -> float:
    """From the last announcement to the response, when nothing is in its way."""
    asked = announced_by_all(events, ("rank", "bucket", "end_ns", "all_ns"))
    replies = asked.groupby(["rank", "bucket"]).agg(
        all_ns=("all_ns", "max"), end_ns=("end_ns", "max")
    )
    if replies.empty:
        return 0.0
    shortest = float((replies["end_ns"] - replies["all_ns"]).clip(lower=0).quantile(0.05)) / 1e6
    pings = events[events["kind"] == "CLOCK"]
    if pings.empty:
        return shortest
    # There, back and some work: where buckets keep everybody busy no reply is a short one.
    return min(shortest, 3 * float((pings["end_ns"] - pings["begin_ns"]).quantile(0.1)) / 1e6)
