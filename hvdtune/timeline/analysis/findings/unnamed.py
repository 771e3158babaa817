"""The largest part of a step that is no computing and that no finding is about."""

from collections.abc import Sequence

from hvdtune.timeline.analysis.compare import TITLES
from hvdtune.timeline.analysis.findings.finding import (
    BY_MODEL,
    OF_RANKS,
    TraceEvidence,
    TraceFinding,
)
from hvdtune.timeline.analysis.metrics.breakdown import OFF_PROCESSOR

LEAST_PERCENT = 10.0  # of a step

_ONLY_OF_NEGOTIATION = frozenset({"long-cycle", "cold-cache", "different-order"})
_OF_NEGOTIATION = _ONLY_OF_NEGOTIATION | {"tiny-buckets"}
_OF_BUCKETS = (BY_MODEL - _ONLY_OF_NEGOTIATION) | {"exposed-communication"}
# Column of the breakdown -> the findings that are about it.
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
}


def note(evidence: TraceEvidence, found: Sequence[TraceFinding]) -> str:
    """Name it, with how much it is; "" where it is little."""
    kinds = {finding.kind for finding in found}
    left = {
        column: float(evidence.part(column).mean())
        for column, about in _ABOUT.items()
        if not about & kinds
    }
    most = max(left, key=lambda column: left[column], default="")
    percent = 100 * left[most] / evidence.step_ms if most else 0.0
    if percent < LEAST_PERCENT:
        return ""
    title = TITLES[most.removesuffix("_ms")].lower()
    if most == "off_processor_ms":
        title = f"time {OFF_PROCESSOR}"
    over = ", the mean of all ranks" if evidence.busy.shape[1] > 1 else ""
    return (
        f"{title} takes {left[most]:.2f} ms of a step ({percent:.0f} %{over}), "
        "and no finding is about it"
    )
