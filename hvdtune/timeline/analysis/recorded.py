"""What the programs that record traces know, and what hvdtune therefore cannot say of theirs.

To add something that not all of them record: a row in `FACTS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hvdtune.timeline.analysis.device_spans import device_rows
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.model.schema import COLLECTIVES, WAITS
from hvdtune.timeline.model.trace import Trace

_OWN = frozenset({"hvdtune", "hvdtune-json"})


@dataclass(frozen=True)
class Fact:
    """Something that not every program records.

    Attributes:
        formats: of the files that tell it, see `slices.File`.
        sentence: what is said where no file does.
        columns: of tables of `breakdown` and `metrics`, which then are not known.
        metrics: of `metrics.METRICS`, which then have nothing to say.
        is_told: whether a trace of other formats tells it all the same; None: never.
        unless: the key of `Trace.meta` that says that none of these files does; "": they all do.
        beside_profiler: whether a timeline of hvdtune's tells it where torch.profiler does not.
    """

    formats: frozenset[str]
    sentence: str
    columns: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()
    is_told: Callable[[Trace], bool] | None = None
    unless: str = ""
    beside_profiler: bool = False


def _communicates(trace: Trace) -> bool:
    return bool(trace.events["kind"].isin(COLLECTIVES).any())


def _tells_waits(trace: Trace) -> bool:
    """Whether there is what waits are inferred from, on each rank that has steps."""
    events = trace.events
    communicating = events.loc[events["kind"].isin((*COLLECTIVES, *WAITS)), "rank"].unique()
    with_steps = events.loc[(events["kind"] == "STEP").to_numpy(), "rank"].unique()
    if job_metadata_of(trace).size < 2 and (not len(with_steps) or _is_alone(trace)):
        return True
    return {*with_steps.tolist()} <= {*communicating.tolist()} and len(communicating) > 0


def _is_alone(trace: Trace) -> bool:
    """Whether a trace of one rank says that there are no others.

    Its files say so, or its GPU was recorded, whose kernels would communicate.
    """
    if any(known.get("size") == 1 for known in trace.meta.get("ranks", {}).values()):
        return True
    return any(True for _ in device_rows(trace))


def _has_all_ranks(trace: Trace) -> bool:
    return not job_metadata_of(trace).missing_ranks


def _has_all_ranks_or_buckets(trace: Trace) -> bool:
    return is_recorded(trace, "buckets") or _has_all_ranks(trace)


_BESIDE = (
    "torch.profiler does not record collectives of hvdtune and Horovod: record hvdtune's timeline, "
    "too (hvdtune run --timeline-filename trace.json ...), and open both."
)
_MISSING = "Not all ranks of the job are in this trace, so "
_OF_WAITS = frozenset({"efficiency", "critical_path"})

FACTS: Mapping[str, Fact] = {
    "negotiation": Fact(
        _OWN | {"horovod"},
        "Negotiation and queueing times are not recorded: a collective is assumed to be announced "
        "when it begins.",
        columns=frozenset({"negotiate_ms", "negotiate_p50_us", "negotiate_p95_us"}),
        metrics=frozenset({"queueing"}),
    ),
    "announcements": Fact(
        _OWN,
        "Other ranks' announcements are not recorded as events of those ranks, so waits for them "
        "and for the response are not known.",
        metrics=frozenset({"queueing"}),
    ),
    "cache": Fact(
        _OWN | {"horovod"},
        "Hits of the response cache are not recorded.",
        metrics=frozenset({"cache"}),
        unless="unknown_cache",
    ),
    "buckets": Fact(
        _OWN,
        "Which tensors share a bucket, and why it was closed, is not recorded.",
        columns=frozenset({"reason", "tensors_per_bucket"}),
        metrics=frozenset({"fusion"}),
    ),
    "cycles": Fact(_OWN, "The contents of cycles are not recorded.", metrics=frozenset({"cycles"})),
    "collectives": Fact(
        _OWN | {"horovod"},
        "No collectives are recorded in this trace.",
        metrics=frozenset({"bandwidth", "tensors"}),
        is_told=_communicates,
        beside_profiler=True,
    ),
    "waits": Fact(
        _OWN,
        "No collectives of the ranks in this trace are recorded, so the waits of these "
        "ranks are not known.",
        frozenset(
            {
                "blocked_ms",
                "wait_ms",
                "negotiate_ms",
                "exposed_ms",
                "communicate_ms",
                "compute_ms",
                "gpu_idle_ms",
                "off_processor_ms",
            }
        ),
        _OF_WAITS | {"overlap", "stragglers"},
        _tells_waits,
        beside_profiler=True,
    ),
    "others": Fact(
        frozenset(),
        f"{_MISSING}it is not known how long the recorded ranks wait for the others.",
        frozenset({"wait_ms", "negotiate_ms"}),
        _OF_WAITS,
        _has_all_ranks,
    ),
    "bucket-begins": Fact(
        frozenset(),
        f"{_MISSING}it is not known when collectives are under way and when they wait for a rank.",
        frozenset({"exposed_ms", "communicate_ms", "communicate_p50_us", "communicate_p95_us"}),
        frozenset({"overlap", "bandwidth"}),
        _has_all_ranks_or_buckets,
    ),
    "pauses": Fact(
        _OWN,
        "When the script collects garbage or writes checkpoints is not recorded.",
        columns=frozenset({"gc_ms", "checkpoint_ms"}),
    ),
}


def is_recorded(trace: Trace, fact: str) -> bool:
    """Whether any file of a trace tells this of `FACTS`; a trace of no file is hvdtune's own."""
    formats = {file.format for file in trace.files} or _OWN
    known = FACTS[fact]
    if known.unless in trace.meta:
        return False
    if formats & known.formats:
        return True
    return known.is_told is not None and known.is_told(trace)


def advice_of(trace: Trace) -> str:
    """What to record besides, where a recording of torch.profiler lacks it; "": nothing."""
    if not any(file.format == "kineto" for file in trace.files):
        return ""
    lacking = (
        each.beside_profiler and not is_recorded(trace, fact) for fact, each in FACTS.items()
    )
    return _BESIDE if any(lacking) else ""


def with_advice(trace: Trace, said: str) -> str:
    """A sentence on what a trace does not tell, followed by `advice_of`; "" stays as it is."""
    return f"{said} {advice_of(trace)}".strip() if said else ""


def says_of(trace: Trace, metric: str) -> str:
    """What is said in place of a metric of `metrics.METRICS`; "": the trace has what it needs."""
    lacking = (
        each.sentence
        for fact, each in FACTS.items()
        if metric in each.metrics and not is_recorded(trace, fact)
    )
    return next(lacking, "")


def as_recorded(trace: Trace, table: pd.DataFrame) -> pd.DataFrame:
    """The table with NaN in every column that the trace cannot tell."""
    unknown = {
        column
        for fact, each in FACTS.items()
        if not is_recorded(trace, fact)
        for column in each.columns
    }
    return table.assign(**dict.fromkeys([str(key) for key in table if key in unknown], np.nan))
