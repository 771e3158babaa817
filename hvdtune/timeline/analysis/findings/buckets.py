"""Time lost in how tensors are put into buckets."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hvdtune.plural import sized
from hvdtune.timeline.analysis.findings.finding import SEND_LESS, TraceEvidence, TraceFinding
from hvdtune.timeline.analysis.metrics import fusion
from hvdtune.timeline.analysis.metrics.breakdown import of_each_rank, spans_of, waits_of
from hvdtune.timeline.analysis.metrics.critical_path import path_rows
from hvdtune.timeline.analysis.replay import Step
from hvdtune.timeline.model.intervals import covered_within, joined

DEFAULT_THRESHOLD_BYTES = 128 << 20
LARGE_SHARE = 0.5  # of a step's bytes in one tensor
AFTER_SHARE = 0.1  # of a step's bytes: the small gradients that an optimizer packs come last
COPY_SHARE = 0.5  # of the work in buckets


def find(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """Find at most one of each: tiny buckets, a huge late tensor, copies."""
    yield from _tiny_buckets(evidence)
    yield from _huge_late_tensor(evidence)
    yield from _copy_bound(evidence)


def _tiny_buckets(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    rules = evidence.rules
    if rules is None or rules.fusion_threshold_bytes >= DEFAULT_THRESHOLD_BYTES:
        return
    larger = replace(rules, fusion_threshold_bytes=DEFAULT_THRESHOLD_BYTES)
    cost = evidence.saved(evidence.replayed, larger)
    table = fusion.table(evidence.events)
    each_us = 1000 * evidence.costs.bucket_ms
    yield TraceFinding(
        kind="tiny-buckets",
        ranks=(),
        cost=cost,
        summary=f"a fusion threshold of {sized(rules.fusion_threshold_bytes)} makes many "
        "small buckets",
        evidence=(
            f"in the whole trace: {fusion.sentence(table)}",
            f"a bucket costs {each_us:.0f} us whatever its size",
        ),
        remedy=f"--fusion-threshold-mb {DEFAULT_THRESHOLD_BYTES >> 20}",
        knob="fusion_threshold_bytes",
        confidence="medium",
    )


def _huge_late_tensor(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    if evidence.rules is None or not evidence.replayed:
        return
    steps = evidence.replayed
    found = [_huge_and_late(step) for step in steps]
    names = [step.names[k] for step, k in zip(steps, found, strict=True) if k is not None]
    if len(names) < 0.8 * len(steps) or len(set(names)) > 1:
        return
    pairs = [(step, k) for step, k in zip(steps, found, strict=True) if k is not None]
    kept = [step for step, _ in pairs]
    cost = evidence.saved(kept, changed=[step.without(k) for step, k in pairs])
    size = float(np.median([step.bytes[k] for step, k in pairs]))
    share = 100 * float(np.median([step.bytes[k] / step.bytes.sum() for step, k in pairs]))
    yield TraceFinding(
        kind="huge-late-tensor",
        ranks=(),
        cost=cost,
        summary=f"tensor {names[0]} ({sized(size)}) is announced last or nearly so, and nothing "
        "hides its communication",
        evidence=(
            f"it is {share:.0f} % of the bytes of a step",
            f"replayed without it, the same steps end {cost.mean:.2f} ms earlier",
        ),
        remedy=f"{SEND_LESS}, sparse gradients of an embedding, or split it so that its parts are "
        "ready earlier (DDP: a smaller bucket_cap_mb)",
        confidence="medium",
    )


def _huge_and_late(step: Step) -> int | None:
    """The collective that is most of the step's bytes, if few bytes are announced after it."""
    if len(step.bytes) < 3:
        return None
    largest = int(step.bytes.argmax())
    if step.bytes[largest] < LARGE_SHARE * step.bytes.sum():
        return None
    after = float(step.bytes[step.ready_ms > step.ready_ms[largest]].sum())
    return largest if after <= AFTER_SHARE * step.bytes.sum() else None


def _copy_bound(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """Waits inside a bucket are for peers, who do the same: they are shared out like the work.

    Ranks that read each other's memory read what the other ranks of the host have, once to reduce
    and once for the result, where a whole bucket is copied in and out: only the rest is saved.
    """
    copied = exposed_phase_ms(evidence, ("PACK", "UNPACK"))
    worked = copied + exposed_phase_ms(evidence, ("REDUCE", "EXCHANGE"))
    if worked.sum() == 0 or copied.sum() < COPY_SHARE * worked.sum():
        return
    alone_ms = float(path_rows(evidence.steps)["exposed_ms"].mean())
    share = float(copied.sum() / worked.sum())
    per_host = max(Counter(evidence.job.hosts.values()).values(), default=1)
    cost = evidence.saved_by_shorter(share / per_host)
    yield TraceFinding(
        kind="copy-bound",
        ranks=(),
        cost=cost,
        summary="communication is mostly copying tensors into buckets and out of them",
        evidence=(
            f"packing and unpacking are {100 * share:.0f} % of the work in {alone_ms:.2f} ms "
            "of communication per step that nothing hides",
            "reading the memory of the host's other ranks replaces some of it",
            f"in the whole trace: {fusion.sentence(fusion.table(evidence.events))}",
        ),
        remedy="keep gradients where they are (zero_grad(set_to_none=False)), or let ranks read "
        "each other's memory (kernel.yama.ptrace_scope, the container's seccomp profile)",
        confidence="medium",
    )


def exposed_phase_ms(evidence: TraceEvidence, kinds: tuple[str, ...]) -> NDArray[np.float64]:
    """Return for each step the ms for which its slowest rank waited in these phases."""
    if kinds not in evidence.phases_ms:
        evidence.phases_ms[kinds] = _exposed_phase_ms(evidence, kinds)
    return evidence.phases_ms[kinds]


def _exposed_phase_ms(evidence: TraceEvidence, kinds: tuple[str, ...]) -> NDArray[np.float64]:
    rows = path_rows(evidence.steps)
    result = np.zeros(len(rows))
    for rank, events in of_each_rank(evidence.events[["rank", "kind", "begin_ns", "end_ns"]]):
        own = rows[rows["rank"] == rank]
        phase, blocked = spans_of(events, kinds), waits_of(events)
        begin, end = own["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
        alone = [covered_within(*spans, begin, end) for spans in (phase, blocked)]
        either = covered_within(*joined(phase, blocked), begin, end)
        result[own.index.to_numpy()] = (sum(alone) - either) / 1e6
    return result
