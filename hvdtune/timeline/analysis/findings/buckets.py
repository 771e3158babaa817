"""Time lost in how tensors are put into buckets."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hvdtune.plural import sized
from hvdtune.timeline.analysis.findings.finding import (
    SEND_LESS,
    StepCost,
    TraceEvidence,
    TraceFinding,
)
from hvdtune.timeline.analysis.findings.slow_ranks import processors_share
from hvdtune.timeline.analysis.metrics import fusion
from hvdtune.timeline.analysis.metrics.breakdown import of_each_rank, spans_of, waits_of
from hvdtune.timeline.analysis.metrics.critical_path import path_rows
from hvdtune.timeline.analysis.replay import Step
from hvdtune.timeline.model.intervals import covered_within, joined
from hvdtune.timeline.model.schema import DDP_BUCKET

DEFAULT_THRESHOLD_BYTES = 128 << 20
LARGE_SHARE = 0.5  # of a step's bytes in one tensor
AFTER_SHARE = 0.1  # of a step's bytes: the small gradients that an optimizer packs come last
COPY_SHARE = 0.5  # of the work in buckets
DDP_BYTES = (1 << 20, 25 << 20)  # DDP's default sizes: of the first bucket, of the others
# A call of an operation: the script's part is as long as the shortest times between two
# announcements, which have hardly any computing in them; to complete it takes half of that again.
_SHORTEST = 0.1  # quantile
_MOST_OF_PART_MS = 0.3
_CALL_OF_PART = 1.5


def find(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """Find at most one of each: tiny buckets, buckets of DDP, a huge late tensor, copies."""
    yield from _tiny_buckets(evidence)
    yield from _small_ddp_buckets(evidence)
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
            f"each bucket costs {each_us:.0f} us regardless of its size",
        ),
        remedy=f"--fusion-threshold-mb {DEFAULT_THRESHOLD_BYTES >> 20}",
        knob="fusion_threshold_bytes",
        confidence="medium",
    )


def _small_ddp_buckets(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """Buckets of DDP that its default size would join.

    The steps are replayed with joined buckets, which are ready when the last of each is. Each
    bucket less also saves the script a call.
    """
    steps = [step for step in evidence.replayed if any(map(DDP_BUCKET.match, step.names))]
    if evidence.rules is None or 2 * len(steps) < len(evidence.replayed) or not steps:
        return
    joined_steps = [_with_joined(step) for step in steps]
    counts = np.array([len(step.names) for step in steps])
    spared = counts - np.array([len(step.names) for step in joined_steps])
    if np.median(spared) < 1:
        return
    call_ms = _call_ms(steps) / (1 - min(processors_share(evidence), 0.9))
    cost = _with_calls(
        evidence.saved(steps, changed=joined_steps), call_ms * float(spared.mean()), evidence
    )
    of_ddp = [
        (name, size)
        for step in steps
        for name, size in zip(step.names, step.bytes, strict=True)
        if DDP_BUCKET.match(name)
    ]
    number, size = len(of_ddp) / len(steps), float(np.median([size for _, size in of_ddp]))
    yield TraceFinding(
        kind="small-ddp-buckets",
        ranks=(),
        cost=cost,
        summary=f"DistributedDataParallel sends {number:.0f} small buckets per step",
        evidence=(
            f"their size is {sized(size)} (median); with DDP's default sizes there would be "
            f"{number - float(spared.mean()):.0f}",
            f"a bucket costs the script about {1000 * call_ms:.0f} us in addition to its "
            "communication",
        ),
        remedy="remove bucket_cap_mb of DistributedDataParallel (default: 25), or search for the "
        "size with hvdtune run --trials 40 --knobs live,ddp_bucket_cap_mb",
        knob="ddp_bucket_cap_mb",
        confidence="medium",
    )


def _with_joined(step: Step) -> Step:
    """The step with buckets of DDP joined in their order, up to DDP's default sizes."""
    groups: list[list[int]] = []
    filled, number = 0.0, -1  # bytes of the last group of DDP's, and which of them that is
    open_group: list[int] | None = None
    for index, name in enumerate(step.names):
        size = float(step.bytes[index])
        if not DDP_BUCKET.match(name):
            groups.append([index])
        elif open_group is not None and filled + size <= DDP_BYTES[min(number, 1)]:
            open_group.append(index)
            filled += size
        else:
            open_group, filled, number = [index], size, number + 1
            groups.append(open_group)
    groups.sort(key=lambda group: group[-1])
    return replace(
        step,
        announced_ms=np.stack([step.announced_ms[:, group].max(axis=1) for group in groups], 1),
        bytes=np.array([step.bytes[group].sum() for group in groups]),
        fusible=np.array([step.fusible[group].all() for group in groups]),
        names=tuple(step.names[group[0]] for group in groups),
    )


def _call_ms(steps: list[Step]) -> float:
    """Time that a call of an operation takes on an idle processor."""
    gaps = [np.diff(np.sort(step.announced_ms, axis=1), axis=1).ravel() for step in steps]
    known = np.concatenate(gaps)
    known = known[~np.isnan(known)]
    part_ms = float(np.quantile(known, _SHORTEST)) if len(known) else 0.0
    return _CALL_OF_PART * min(part_ms, _MOST_OF_PART_MS)


def _with_calls(cost: StepCost, calls_ms: float, evidence: TraceEvidence) -> StepCost:
    """The cost with the time of the calls that would be spared, ms per step."""
    mean = cost.mean + calls_ms
    percent = 100 * mean / evidence.step_ms if evidence.step_ms else 0.0
    return StepCost(mean, cost.low + calls_ms, cost.high + calls_ms, percent)


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
        summary=f"tensor {names[0]} ({sized(size)}) is announced among the last, so no "
        "computing hides its communication",
        evidence=(
            f"it is {share:.0f} % of the bytes of a step",
            f"a replay without this tensor ends each step {cost.mean:.2f} ms earlier (mean)",
        ),
        remedy=f"{SEND_LESS}, sparse gradients of an embedding; or split the tensor so that its "
        "parts are ready earlier (DDP: a smaller bucket_cap_mb)",
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
            "of exposed communication per step",
            "zero-copy between ranks of a host would replace some of it",
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
