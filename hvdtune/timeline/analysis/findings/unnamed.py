"""How much of a step is explained, and the largest part that is not."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.analysis.compare import TITLES
from hvdtune.timeline.analysis.findings.finding import (
    BY_MODEL,
    OF_RANKS,
    TraceEvidence,
    TraceFinding,
)
from hvdtune.timeline.analysis.metrics import stragglers
from hvdtune.timeline.analysis.metrics.breakdown import (
    OFF_PROCESSOR,
    SPANS,
    UNTOLD,
    knows_computing,
    of_each_rank,
    spans_of,
    waits_of,
)
from hvdtune.timeline.model.intervals import covered_within, joined
from hvdtune.timeline.model.trace import Trace

LEAST_PERCENT = 10.0  # of a step: a smaller part is not worth a note
ENOUGH_PERCENT = 80.0  # of a step: "no bottleneck" is an answer only from here on

_ONLY_OF_NEGOTIATION = frozenset({"long-cycle", "cold-cache", "different-order"})
_OF_NEGOTIATION = _ONLY_OF_NEGOTIATION | {"tiny-buckets"}
_OF_BUCKETS = (BY_MODEL - _ONLY_OF_NEGOTIATION) | {"exposed-communication"}
_REST_OF_WAITS = "waiting for communication"
# Part of a step -> the findings that are about it.
_ABOUT = {
    "off_processor_ms": OF_RANKS | {"idle-gpus"},
    "input_ms": frozenset({"slow-input"}),
    "gc_ms": frozenset({"gc-pauses"}),
    "checkpoint_ms": frozenset({"checkpoint-pauses"}),
    "no_processor_ms": frozenset({"oversubscribed"}),
    "gpu_idle_ms": frozenset({"idle-gpus", "slow-elsewhere"}),
    "wait_ms": OF_RANKS | _OF_NEGOTIATION | {"huge-late-tensor"},
    "negotiate_ms": _OF_NEGOTIATION | {"exposed-communication"},
    "exposed_ms": _OF_BUCKETS,
    _REST_OF_WAITS: OF_RANKS | _OF_NEGOTIATION | _OF_BUCKETS,
    UNTOLD: OF_RANKS,
}
_WAITS = ("wait_ms", "negotiate_ms", "exposed_ms")


@dataclass(frozen=True)
class StepShares:
    """The explained share of a step and its other parts: means of all ranks.

    Explained is computing that was seen as such, and every part that a finding is about.

    Attributes:
        step_ms: the whole.
        left: title and ms of each part that is not explained, the largest first.
    """

    step_ms: float
    left: tuple[tuple[str, float], ...]

    @property
    def explained_percent(self) -> float:
        """Share of the step that is explained."""
        return 100.0 - self._percent(sum(ms for _, ms in self.left))

    @property
    def are_enough(self) -> bool:
        """Whether "no bottleneck" is an answer."""
        return self.explained_percent >= ENOUGH_PERCENT

    def sentence(self) -> str:
        """How much is explained, and the largest part that is not."""
        title, ms = self.left[0]
        return (
            f"{self.explained_percent:.0f} % of a step is known to be computing; the largest other "
            f"part is {title}, {ms:.2f} ms per step ({self._percent(ms):.0f} %)"
        )

    def note(self, *, of_ranks: bool) -> str:
        """Name the largest part that is recorded and that no finding is about; "": it is little.

        Args:
            of_ranks: whether the numbers are means of several ranks.
        """
        title, ms = next(((title, ms) for title, ms in self.left if title != UNTOLD), ("", 0.0))
        if self._percent(ms) < LEAST_PERCENT:
            return ""
        over = ", the mean of all ranks" if of_ranks else ""
        return (
            f"{title} takes {ms:.2f} ms of a step ({self._percent(ms):.0f} %{over}), "
            "and no finding explains it"
        )

    def _percent(self, ms: float) -> float:
        return 100 * ms / self.step_ms if self.step_ms else 0.0


def shares(trace: Trace, evidence: TraceEvidence, found: Sequence[TraceFinding]) -> StepShares:
    """Divide the steps of `evidence`, which are of `trace`."""
    kinds = {finding.kind for finding in found}
    left = [
        (_title(part), ms)
        for part, ms in _parts(trace, evidence).items()
        if ms > 0 and not _ABOUT[part] & kinds
    ]
    return StepShares(evidence.step_ms, tuple(sorted(left, key=lambda row: -row[1])))


def _parts(trace: Trace, evidence: TraceEvidence) -> dict[str, float]:
    """ms per step of all that is not known to be computing."""
    columns = [part for part in _ABOUT if part.endswith("_ms")]
    parts = {column: float(evidence.part(column).mean()) for column in columns}
    if evidence.sees_gpus:  # what a GPU computes, its script need not
        parts["off_processor_ms"] = 0.0
        if evidence.steps["gpu_idle_ms"].isna().all():  # how long ranks wait is not recorded
            spent = sum(parts[column] for column in SPANS)
            parts["gpu_idle_ms"] = max(float(evidence.part("idle_ms").mean()) - spent, 0.0)
    waited = float(evidence.part("blocked_ms").mean())
    parts[_REST_OF_WAITS] = max(waited - sum(parts[column] for column in _WAITS), 0.0)
    if not knows_computing(evidence.steps):
        busy = evidence.step_ms - sum(parts.values())
        parts[UNTOLD] = max(busy - float(_in_operators(trace, evidence).mean()), 0.0)
    return parts


def _in_operators(trace: Trace, evidence: TraceEvidence) -> NDArray[np.float64]:
    """ms of each step in which a profiler saw operators of a rank that waited for nothing."""
    others = trace.others
    of_rank = {} if others is None else dict(of_each_rank(others.of_kind("COMPUTE")))
    events = dict(of_each_rank(evidence.events))
    rows = evidence.steps.assign(operators_ms=0.0)
    for rank, own in of_each_rank(evidence.steps):
        if rank not in of_rank:
            continue
        seen = of_rank[rank]["begin_ns"].to_numpy(), of_rank[rank]["end_ns"].to_numpy()
        other = joined(waits_of(events[rank]), spans_of(events[rank], ("SPAN",)))
        windows = own["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
        alone = covered_within(*joined(seen, other), *windows) - covered_within(*other, *windows)
        rows.loc[own.index, "operators_ms"] = alone / 1e6
    return stragglers.part(rows, "operators_ms")


def _title(part: str) -> str:
    if part == "off_processor_ms":
        return f"time {OFF_PROCESSOR}"
    return TITLES[part.removesuffix("_ms")].lower() if part.endswith("_ms") else part
