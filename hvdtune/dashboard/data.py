"""What the page knows about one run: its trace cut into windows, and its study."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hvdtune.dashboard.study import Study, open_study
from hvdtune.errors import UsageError
from hvdtune.timeline import Trace, merge, read, step_table, summary, trace_of
from hvdtune.timeline.folders import find
from hvdtune.timeline.load import load_found
from hvdtune.timeline.schema import COLLECTIVES

SPANS_PER_WINDOW = 400


@dataclass(frozen=True)
class Run:
    """One run as the page shows it.

    `windows` has one row per selectable stretch of the trace (label, begin_ns, end_ns); together
    they cover every event. `steps` has one row per step (step, begin_ns, slowest_ms: the slowest
    rank's duration).
    """

    title: str
    trace: Trace
    summary: Mapping[str, Any]
    windows: pd.DataFrame
    study: Study | None


def open_run(path: Path) -> Run:
    """Open a merged trace, a raw rank file or a run's directory.

    Raises UsageError when there is nothing to open at `path`, TraceFormatError when it is no trace.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or directory")
    trace = _read_directory(path) if path.is_dir() else read(path)
    folder = path if path.is_dir() else path.parent
    return describe_run(str(path), trace, open_study(folder))


def describe_run(title: str, trace: Trace, study: Study | None = None) -> Run:
    """Cut a trace that is already read into the page's frames."""
    begins = step_table(trace).groupby("step")["begin_ns"].min().sort_values()
    windows = window_table(trace.events, begins.astype("int64"))
    return Run(title, trace, summary(trace), windows, study)


def window_table(events: pd.DataFrame, steps: "pd.Series[int]") -> pd.DataFrame:
    """Stretches of the trace to choose from: one per step, or of equal size without steps.

    `steps` holds the first begin of each step in ns, in order, by step number.
    """
    events = events[events["kind"] != "CLOCK"]
    if events.empty:
        return pd.DataFrame({"label": [], "begin_ns": [], "end_ns": []})
    first, last = int(events["begin_ns"].min()), int(events["end_ns"].max()) + 1
    if steps.empty:
        begins = np.sort(events.loc[events["kind"].isin(COLLECTIVES), "begin_ns"].to_numpy())
        cuts = [first, *begins[SPANS_PER_WINDOW::SPANS_PER_WINDOW].tolist()]
        cuts = sorted(set(cuts))
        labels = [f"part {index + 1} of {len(cuts)}" for index in range(len(cuts))]
    else:
        cuts = steps.tolist()
        labels = [f"step {step:.0f}" for step in steps.index]
        if first < cuts[0]:
            cuts, labels = [first, *cuts], ["before the first step", *labels]
    return pd.DataFrame({"label": labels, "begin_ns": cuts, "end_ns": [*cuts[1:], last]})


def tensor_names(trace: Trace) -> list[str]:
    """Every tensor of the trace in order of first appearance."""
    events = trace.events
    names = events.loc[events["kind"].isin(["NEGOTIATE", *COLLECTIVES]), "name"]
    return [str(name) for name in names.unique()]


def ranks_of(trace: Trace) -> list[int]:
    """Ranks with at least one event or metadata, ascending."""
    known = {int(rank) for rank in trace.meta.get("ranks", {})}
    return sorted(known | {int(rank) for rank in trace.events["rank"].unique()})


def hosts_of(trace: Trace) -> list[str]:
    """Host names in the trace's metadata, each once, in rank order."""
    ranks = trace.meta.get("ranks", {})
    found = (str(ranks[rank].get("host", "")) for rank in sorted(ranks, key=int))
    return [host for host in dict.fromkeys(found) if host]


def _read_directory(folder: Path) -> Trace:
    found = find([folder])
    if len(found.files) == 1 and not found.guesses:
        trace = read(found.files[0])
    elif all(file.suffix == ".hvt" for file in found.files):
        trace = merge(found.files)
    else:
        return trace_of(load_found(found))
    return replace(trace, warnings=[*found.notes, *trace.warnings])
