"""What the pages know of one run: its trace, what follows from it, and its study."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from hvdtune.dashboard.membership import MembershipFrames, open_membership
from hvdtune.dashboard.study import FILES, StudyFrames, open_study
from hvdtune.dashboard.swimlane import Swimlane
from hvdtune.errors import UsageError
from hvdtune.timeline import Trace, open_trace, summary
from hvdtune.timeline.analysis.arrivals import Arrivals, arrivals_of
from hvdtune.timeline.analysis.findings import Answer, why
from hvdtune.timeline.analysis.metrics import breakdown, critical_path, stragglers
from hvdtune.timeline.analysis.quantities import counts_of, measure
from hvdtune.timeline.analysis.recorded import says_of
from hvdtune.timeline.analysis.steps import steps_of
from hvdtune.timeline.model.duplicate_ranks import refuse_two_files_of_a_rank
from hvdtune.timeline.model.event_table import make_events
from hvdtune.timeline.model.job_metadata import JobMetadata, job_metadata_of
from hvdtune.timeline.model.schema import COLLECTIVES, COLUMNS
from hvdtune.timeline.reading.opening import open_light

_T = TypeVar("_T")


def _computed_alone(compute: Callable[[Any], _T]) -> cached_property[_T]:
    """A `cached_property` of a `RunView` that waits until no other is computed."""

    @wraps(compute)
    def computed(run: "RunView") -> _T:
        with run.computing:
            known = vars(run)
            found: _T = known[name] if (name := compute.__name__) in known else compute(run)
            return found

    return cached_property(computed)


@dataclass(frozen=True)
class RunView:
    """One run as the pages show it; what they need of its trace is computed once, when asked for.

    `link_gbps` is what a link between hosts can carry, in 10^9 bit/s, if somebody said so; `path`
    is what its trace was opened from. Of several requests at once, one computes a part at a time:
    each part may need much memory for a moment.
    """

    title: str
    trace: Trace
    study: StudyFrames | None = None
    link_gbps: float | None = None
    membership: MembershipFrames | None = None
    path: Path | None = None
    computing: threading.RLock = field(
        default_factory=threading.RLock, init=False, repr=False, compare=False
    )

    @_computed_alone
    def summary(self) -> Mapping[str, Any]:
        """See `phases.summary`."""
        return summary(self.trace)

    @_computed_alone
    def whole_trace(self) -> Trace:
        """The trace with its slices, which takes several times the memory of `trace`."""
        assert self.path is not None
        return open_trace(self.path)

    @_computed_alone
    def job(self) -> JobMetadata:
        """The metadata of the job, as far as the trace and its study have it."""
        tuned = self.study is not None and not self.study.trials.empty
        return replace(job_metadata_of(self.trace, self.link_gbps), was_tuned=tuned)

    @_computed_alone
    def answer(self) -> Answer:
        """Why it is slow."""
        return why(self.trace, self.job, self.steps)

    @_computed_alone
    def arrivals(self) -> Arrivals | None:
        """Who announced last, of a trace that says it and has no announcements of all ranks."""
        return arrivals_of(self.trace)

    @_computed_alone
    def steps(self) -> pd.DataFrame:
        """See `steps.steps_of`."""
        return steps_of(self.trace)

    @property
    def steps_are_found(self) -> bool:
        """Whether none are marked and they were found, which have no parts; see `Arrivals`."""
        return self.arrivals is not None and not self.arrivals.has_marks

    @_computed_alone
    def late_ranks(self) -> pd.DataFrame:
        """See `stragglers.table`."""
        of_streams = breakdown.is_only_of_streams(self.trace.events, self.steps)
        return stragglers.table(self.steps, of_streams=of_streams)

    @_computed_alone
    def critical_steps(self) -> pd.DataFrame:
        """The critical path: of each step the row of its slowest rank, in order of time."""
        unknown = says_of(self.trace, "critical_path")
        rows = critical_path.path_rows(self.steps.iloc[:0] if unknown else self.steps)
        return rows.sort_values("begin_ns", ignore_index=True)

    @_computed_alone
    def step_spans(self) -> pd.DataFrame:
        """By the number of each of `steps`: first_ns and last_ns over all ranks, slowest_ms."""
        by_step = self.steps.groupby("step")
        spans = by_step.agg(
            first_ns=("begin_ns", "min"), last_ns=("end_ns", "max"), slowest_ms=("step_ms", "max")
        )
        return spans.set_index(spans.index.astype("int64"))

    @_computed_alone
    def typical_step(self) -> int | None:
        """The number of the step whose slowest rank takes the median; None: there are no steps."""
        order = self.step_spans["slowest_ms"].sort_values(kind="stable").index
        return int(order[(len(order) - 1) // 2]) if len(order) else None

    @_computed_alone
    def quantities(self) -> Mapping[str, float]:
        """See `quantities.measure`."""
        return measure(self.steps)

    @_computed_alone
    def counts(self) -> Mapping[str, float]:
        """See `quantities.counts_of`."""
        return counts_of(self.trace)

    @_computed_alone
    def tensors(self) -> list[str]:
        """Every tensor of the trace in order of first appearance."""
        events = self.trace.events
        names = events.loc[events["kind"].isin(["NEGOTIATE", *COLLECTIVES]), "name"]
        return [str(name) for name in names.unique()]

    @property
    def names_no_tensors(self) -> bool:
        """Whether its trace does not say which tensors its collectives are about."""
        return bool(self.trace.meta.get("unnamed_tensors"))

    @_computed_alone
    def ranks(self) -> list[int]:
        """Ranks with at least one event or metadata, ascending."""
        known = {int(rank) for rank in self.trace.meta.get("ranks", {})}
        known |= {int(rank) for rank in self.trace.events["rank"].unique()}
        others = self.trace.others
        return sorted(known if others is None else {*known, *others.ranks})

    def prepare(self) -> None:
        """Computes what the first look at the timeline needs, so that it need not wait."""
        _ = self.tensors, self.ranks, self.swimlane.last_ns

    @_computed_alone
    def swimlane(self) -> Swimlane:
        """The lanes of its timeline."""
        return Swimlane.of(self.trace, self.steps if self.steps_are_found else None)


def open_run(path: Path, link_gbps: float | None = None) -> RunView:
    """Open a merged trace, a raw rank file, a run's directory, or the file of a study.

    Raises UsageError when there is nothing to open at `path` or a rank is in two files,
    TraceFormatError when it is no trace.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file or directory")
    if path.name in FILES:
        path = path.parent
    folder = path if path.is_dir() else path.parent
    study = open_study(folder)
    try:
        trace = open_light(path)
    except UsageError:  # there is none in the folder
        if study is None:
            raise
        text = "This study has no trace: tune with -o FOLDER, or record the job."
        return RunView(str(path), empty_trace([text]), study)
    refuse_two_files_of_a_rank(trace)
    warnings = trace.warnings + trace.left_out()
    trace = replace(trace, warnings=warnings)
    return RunView(str(path), trace, study, link_gbps, open_membership(folder), path)


def empty_trace(warnings: list[str]) -> Trace:
    """A trace without events."""
    columns = {name: np.empty(0, np.int64) for name in COLUMNS}
    return Trace(make_events(columns, []), {}, warnings)


def hosts_of(trace: Trace) -> list[str]:
    """Host names in the trace's metadata, each once, in rank order."""
    ranks = trace.meta.get("ranks", {})
    found = (str(ranks[rank].get("host", "")) for rank in sorted(ranks, key=int))
    return [host for host in dict.fromkeys(found) if host]
