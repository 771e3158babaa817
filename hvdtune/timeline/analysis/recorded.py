"""What the programs that record traces know, and what hvdtune therefore cannot say of theirs.

To add something that not all of them record: a row in `FACTS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hvdtune.timeline.model.trace import Trace

_OWN = frozenset({"hvdtune", "hvdtune-json"})


@dataclass(frozen=True)
class Fact:
    """Something that not every program records.

    Attributes:
        formats: of the files that tell it, see `slices.File`.
        sentence: what is said where no file does.
        unless: the key of `Trace.meta` that says that none of these files does; "": they all do.
        columns: of tables of `breakdown` and `metrics`, which then are not known.
        metrics: of `metrics.METRICS`, which then have nothing to say.
    """

    formats: frozenset[str]
    sentence: str
    unless: str = ""
    columns: frozenset[str] = frozenset()
    metrics: frozenset[str] = frozenset()


FACTS: Mapping[str, Fact] = {
    "negotiation": Fact(
        _OWN | {"horovod"},
        "How long tensors are negotiated and queued is not recorded: a collective is taken to be "
        "announced when it begins.",
        columns=frozenset({"negotiate_ms", "negotiate_p50_us", "negotiate_p95_us"}),
        metrics=frozenset({"queueing"}),
    ),
    "cache": Fact(
        _OWN | {"horovod"},
        "Whether announcements hit a response cache is not recorded.",
        "unknown_cache",
        metrics=frozenset({"cache"}),
    ),
    "buckets": Fact(
        _OWN,
        "Which tensors share a bucket, and why it was closed, is not recorded.",
        columns=frozenset({"reason", "tensors_per_bucket"}),
        metrics=frozenset({"fusion"}),
    ),
    "cycles": Fact(_OWN, "What each cycle carries is not recorded.", metrics=frozenset({"cycles"})),
    "pauses": Fact(
        _OWN,
        "When the script collects garbage or writes checkpoints is not recorded.",
        columns=frozenset({"gc_ms", "checkpoint_ms"}),
    ),
}


def is_recorded(trace: Trace, fact: str) -> bool:
    """Whether any file of a trace tells this of `FACTS`; a trace of no file is hvdtune's own."""
    formats, known = {file.format for file in trace.files}, FACTS[fact]
    if known.unless in trace.meta:
        return False
    return not formats or bool(formats & known.formats)


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
