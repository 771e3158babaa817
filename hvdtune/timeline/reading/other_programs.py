"""Traces of other programs in the words that findings and metrics know.

torch.profiler writes no announcements and no buckets: a collective's begin on a rank is taken for
its announcement, and the collective for a bucket of its own. Its data loaders are input. Horovod
writes what rank 0 does, and nothing can be said of who waits for whom; that is told, not guessed.
"""

from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.model.convert import trace_of
from hvdtune.timeline.model.schema import (
    COLLECTIVES,
    COLUMNS,
    INPUT,
    KIND_NAMES,
    PROCESS_SET_UNIT,
    Trace,
    make_events,
)
from hvdtune.timeline.model.slices import Model

# Format -> what it cannot tell, however it was recorded.
GAPS = {
    "horovod": "a timeline of Horovod's has the events of rank 0 alone, and when other ranks "
    "announced only for tensors that the response cache did not know",
    "chrome": "a trace of a program that is not known has no collectives and no steps",
}


def trace_for_findings(model: Model) -> Trace:
    """What findings and metrics can use of a model.

    Returns:
        A trace with "gaps" in its meta where the format itself leaves evidence out.
    """
    trace = trace_of(model)
    formats = {file.format for file in model.files}
    gaps = [text for name, text in GAPS.items() if name in formats]
    if trace.events.empty and len(model.slices) and not gaps:
        gaps = [f"no step and no collective is among its {len(model.slices):,} slice(s)"]
    events = trace.events
    if formats == {"kineto"}:
        events = _with(events, _announcements(model), _inputs(model))
    return Trace(events, trace.meta | {"gaps": gaps}, trace.warnings, trace.others)


def _announcements(model: Model) -> pd.DataFrame:
    """NEGOTIATE and BUCKET events of collectives, and the collectives with the bucket's number."""
    slices = model.slices[model.slices["kind"].isin(COLLECTIVES)]
    process_set = slices["process_set"].clip(lower=0).to_numpy(np.int64)
    texts = slices["tensor"].astype(str).to_numpy(object)
    names = np.where(process_set > 0, texts + " of group " + process_set.astype(str), texts)
    bucket, _ = pd.factorize(pd.MultiIndex.from_arrays([names, slices["seq"].to_numpy()]))
    rows = pd.DataFrame(
        {
            "rank": slices["rank"].to_numpy(),
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
    announced = rows.assign(kind="NEGOTIATE", end_ns=rows["begin_ns"], arg=1)
    announced["arg"] += process_set * PROCESS_SET_UNIT
    return pd.concat(
        [rows, announced, rows.assign(kind="BUCKET", name="operation never fuses", seq=1)]
    )


def _inputs(model: Model) -> pd.DataFrame:
    slices = model.slices[model.slices["kind"] == "INPUT"]
    rows = slices[["rank", "begin_ns", "end_ns"]].reset_index(drop=True)
    return rows.assign(kind="SPAN", name=INPUT, seq=0, bucket=0, arg=0)


def _with(events: pd.DataFrame, *more: pd.DataFrame) -> pd.DataFrame:
    """The events with others, in which collectives replace those that are there."""
    kept = events[~events["kind"].isin(COLLECTIVES)].astype({"kind": object, "name": object})
    rows = pd.concat([kept, *more], ignore_index=True)
    names, texts = pd.factorize(rows["name"].astype(object))
    codes = {name: code for code, name in enumerate(KIND_NAMES)}
    columns: dict[str, Any] = {
        key: rows[key].to_numpy(np.int64) for key in COLUMNS if key not in ("kind", "name")
    }
    columns["kind"] = rows["kind"].astype(object).map(codes).to_numpy(np.int64)
    columns["name"] = names.astype(np.int64)
    return make_events(columns, [str(text) for text in texts])
