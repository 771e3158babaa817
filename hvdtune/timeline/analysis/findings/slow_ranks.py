"""Ranks that make others wait, and what every rank does besides computing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.analysis.findings.finding import (
    FEW_STEPS,
    Confidence,
    TraceEvidence,
    TraceFinding,
    cost_of,
    cost_of_pauses,
)
from hvdtune.timeline.analysis.metrics import stragglers
from hvdtune.timeline.analysis.metrics.breakdown import OFF_PROCESSOR

Floats = NDArray[np.float64]

MOST_OF_IT = 0.7  # a rank is named when removing its part alone saves this share
_CLEARLY_MORE = 1.5  # of what the others have, in the middle
_IS_LONG = 0.05  # of a step
_RARELY = 0.25  # of all steps
_OF_FEW_STEPS = 90.0  # percent in which a rank is to be the last: in half of them all are by chance
_IN_TURN = 1 / 3  # of all steps, in which another rank is the last by as much
_CLEARLY_LATE = 0.1  # of a step: by so much nobody is last by chance, in turn, in many steps
# Of the processor time that a rank lacks: what it costs beyond (cold caches, a slower clock, what
# the host of a virtual machine takes) is recorded nowhere, and may fall on one rank.
UNRECORDED = 0.25
_BUT_OF_MORE_WORK = ", except processor time that a rank lacks because it computes longer"
# Of the cost of a finding about ranks: where the others wait for them for less, it is not so.
_SEEN_WAITS = 0.25
PAUSE_OF_STEP = 0.25  # busy time this far above the median is a pause, not noise


@dataclass(frozen=True)
class _BusyPart:
    """A part of busy time that has a name."""

    column: str
    kind: str
    noun: str
    remedy: str
    everybodys_percent: float = 0.0  # of a step: less of it on all ranks is what is usual
    may_be_rare: bool = False  # long, and in few steps


_PARTS = (
    _BusyPart(
        "input_ms",
        "slow-input",
        "waits for input",
        "use more DataLoader workers, prefetching, or faster storage",
        everybodys_percent=5.0,
    ),
    _BusyPart(
        "gc_ms",
        "gc-pauses",
        "collects garbage",
        "call gc.freeze() after set-up and gc.disable(), or collect on all ranks in the same step",
        may_be_rare=True,
    ),
    _BusyPart(
        "checkpoint_ms",
        "checkpoint-pauses",
        "writes checkpoints",
        "write checkpoints from a copy in a thread, to a faster disk, or less often",
        may_be_rare=True,
    ),
    _BusyPart(
        "no_processor_ms",
        "oversubscribed",
        "is ready to run but has no processor",
        "run fewer ranks or threads on the host (OMP_NUM_THREADS, DataLoader workers), or stop "
        "other programs there",
        everybodys_percent=10.0,
    ),
)


def find(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """One finding for each named part, one for a rank that computes longer, one for pauses.

    Omits a finding that names ranks if the others did not wait for them, by the trace.
    """
    costs = _costs_of_ranks(evidence)
    for found in _find(evidence):
        if not found.ranks:
            yield found
        elif not sum(costs[rank] for rank in found.ranks) < _SEEN_WAITS * found.cost.mean:
            in_all = _cost_in_all(evidence, found, costs)
            yield replace(found, evidence=(*found.evidence, in_all))


def _find(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    busy = evidence.busy.to_numpy()
    ranks = [int(rank) for rank in evidence.busy.columns]
    left = busy.copy()
    lacking = np.zeros_like(busy)
    for part, spent in _spent(evidence):
        yield from _named_part(evidence, part, busy, spent, ranks)
        left -= spent
        if part.kind == "oversubscribed":
            lacking = spent
    late = _steady_excess(left)
    lacks_ms = float(lacking.mean(axis=0).max())
    slow = list(_slow_rank(evidence, left, late, ranks, lacks_ms))
    yield from slow
    if not any(len(found.ranks) > 1 for found in slow):  # of two in turn each seems to pause
        yield from _pauses(evidence, left - late, ranks)


def _spent(evidence: TraceEvidence) -> Iterator[tuple[_BusyPart, Floats]]:
    """The share that each part has of busy time; together no more than there is."""
    left = evidence.busy.to_numpy().copy()
    for part in _PARTS:
        spent = np.minimum(evidence.part(part.column), left)
        if part.kind == "oversubscribed":
            spent *= 1 - _of_extra_work(evidence)
        yield part, spent
        left -= spent


def _of_extra_work(evidence: TraceEvidence) -> Floats:
    """Which share of the time that each rank lacks a processor is due to its having more to do.

    On a crowded host, who computes for longer lacks a processor for longer: with as much work as
    the next rank it would lack as much less. Little more work may be cold caches.
    """
    ran, lacking = evidence.part("ran_ms"), evidence.part("no_processor_ms")
    result = np.zeros(ran.shape[1])
    if ran.shape[1] < 2 or not ran.any():
        return result
    for rank in range(ran.shape[1]):
        more, lacks_more = (_more_of(values, rank) for values in (ran, lacking))
        result[rank] = min(more, lacks_more) if more >= UNRECORDED else 0.0
    return result


def _more_of(values: Floats, rank: int) -> float:
    """Which share of what a rank typically has the next one does not, from 0."""
    own = values[:, rank]
    more = float(np.median(own - np.delete(values, rank, axis=1).max(axis=1)))
    return max(more, 0.0) / max(float(np.median(own)), 1e-9)


def lacks_processor_ms(evidence: TraceEvidence) -> Floats:
    """Return how much shorter each step would be, in ms, if no script waited for a processor."""
    (spent,) = (spent for part, spent in _spent(evidence) if part.kind == "oversubscribed")
    return saved(evidence.busy.to_numpy(), spent)


def saved(busy: Floats, spent: Floats) -> Floats:
    """Return how much shorter each step is without `spent`; the slowest rank sets its length."""
    result: Floats = busy.max(axis=1) - (busy - spent).max(axis=1)
    return result


def _named_part(
    evidence: TraceEvidence, part: _BusyPart, busy: Floats, spent: Floats, ranks: list[int]
) -> Iterator[TraceFinding]:
    gone = saved(busy, spent)
    culprit = _culprit(busy, spent, gone)
    if culprit is not None and not _has_more(spent, culprit):
        culprit = None
    waited = _waited_for_processors(evidence, part, spent)
    long = np.where(gone > _IS_LONG * evidence.step_ms, gone, 0.0)
    pauses = part.may_be_rare and np.count_nonzero(long) <= _RARELY * len(long)
    cost = (
        cost_of_pauses(long, evidence.step_ms)
        if pauses
        else cost_of(gone + waited, evidence.step_ms)
    )
    if culprit is None and cost.percent < part.everybodys_percent:
        return
    named = () if culprit is None else (ranks[culprit],)
    means = spent.mean(axis=0)
    who = "every rank" if culprit is None and len(ranks) > 1 else f"rank {ranks[culprit or 0]}"
    hit = 100 * float((spent.max(axis=1) > _IS_LONG * evidence.step_ms).mean())
    means_of = "mean of each rank" if len(ranks) > 1 else "mean"
    longest = "the slowest rank sets the length of each step: " if len(ranks) > 1 else ""
    evidence_text = [
        f"{means_of}: {_per_rank(means, ranks)} ms per step "
        f"({part.column.removesuffix('_ms').replace('_', ' ')})",
        f"{longest}without this time, steps would be {gone.mean():.2f} ms shorter",
        f"it takes more than 5 % of the step in {hit:.0f} % of {len(busy):,} steps",
    ]
    if pauses and np.count_nonzero(long):
        evidence_text[-1] = (
            f"it adds {long[long > 0].mean():.1f} ms to {np.count_nonzero(long):,} of "
            f"{len(busy):,} steps; the interval is wide because few steps are affected"
        )
    if part.kind == "oversubscribed" and _of_extra_work(evidence).any():
        recorded = evidence.part(part.column).mean(axis=0)
        evidence_text.append(
            f"recorded: {_per_rank(recorded, ranks)} ms per step; the share due to longer "
            "computing is counted as computing"
        )
    if waited.any():
        evidence_text.append(
            f"estimate: communication takes {waited.mean():.2f} ms longer if the runtime's "
            "threads lack a processor as often as the scripts"
        )
    # What communication lacks is not recorded but concluded.
    confidence: Confidence = "medium" if waited.mean() > gone.mean() else "high"
    if evidence.is_of_streams:
        confidence = "low"
        evidence_text.append(
            "if the script runs ahead of the GPU, some or all of this time is hidden"
        )
    yield TraceFinding(
        kind=part.kind,
        ranks=named,
        cost=cost,
        summary=f"{who} {part.noun}",
        evidence=tuple(evidence_text),
        remedy=f"on {who}: {part.remedy}" if named else part.remedy,
        confidence=confidence,
    )


def _waited_for_processors(evidence: TraceEvidence, part: _BusyPart, spent: Floats) -> Floats:
    """ms of communication, of each step: its threads lack a processor as often as the script's."""
    if part.kind != "oversubscribed":
        return np.zeros(len(spent))
    return evidence.blocked * processors_share(evidence)


def processors_share(evidence: TraceEvidence) -> float:
    """Which share of communication is waiting for processors, if it is that of the scripts.

    Between hosts it waits for the network, and only the lack of a processor reaches its threads.
    GPUs communicate without processors.
    """
    ran, lacking = evidence.part("ran_ms"), evidence.part("no_processor_ms")
    if not ran.any() or len(set(evidence.job.hosts.values())) > 1 or evidence.is_of_streams:
        return 0.0
    return float(lacking.sum() / (lacking.sum() + ran.sum()))


def _culprit(busy: Floats, spent: Floats, gone: Floats) -> int | None:
    """The one rank without whose part nearly all would be saved; None: there is none."""
    if busy.shape[1] < 2:
        return None
    alone = np.zeros(busy.shape[1])
    for rank in range(busy.shape[1]):
        only = np.zeros_like(spent)
        only[:, rank] = spent[:, rank]
        alone[rank] = saved(busy, only).mean()
    best = int(alone.argmax())
    second = float(np.sort(alone)[-2])
    return best if alone[best] >= MOST_OF_IT * gone.mean() and second < alone[best] / 2 else None


def _has_more(spent: Floats, rank: int) -> bool:
    """Whether a rank has clearly more of a part than the others, and not only the longest steps."""
    means = spent.mean(axis=0)
    return bool(means[rank] >= _CLEARLY_MORE * np.median(np.delete(means, rank)))


def _steady_excess(busy: Floats) -> Floats:
    """The time by which each rank exceeds, in its typical step, the next one: only one rank can."""
    result = np.zeros_like(busy)
    if busy.shape[1] < 2:
        return result
    for rank in range(busy.shape[1]):
        next_ms = np.delete(busy, rank, axis=1).max(axis=1)
        result[:, rank] = max(float(np.median(busy[:, rank] - next_ms)), 0.0)
    return result


def _slow_rank(
    evidence: TraceEvidence, busy: Floats, late: Floats, ranks: list[int], lacks_ms: float
) -> Iterator[TraceFinding]:
    """One whose busy time, without its named parts, is steadily longer than that of the next.

    Args:
        lacks_ms: of processor time per step, of the rank that lacks most of it.
    """
    if len(clearly := _clearly_in_turn(evidence, busy)) > 1:
        yield _in_turn(evidence, busy, clearly, ranks)
        return
    # Another rank may have as much of what has a name, and then sets the length of the step.
    cost = cost_of(saved(evidence.busy.to_numpy(), late), evidence.step_ms)
    if not cost.matters or late.max() < UNRECORDED * lacks_ms:
        return
    index = int(late.max(axis=0).argmax())
    rank = ranks[index]
    often = _is_last_percent(busy, index)
    if len(busy) < FEW_STEPS and often < _OF_FEW_STEPS:
        return
    if others := _others_in_turn(busy, index, float(late.max())):
        yield _in_turn(evidence, busy, sorted([index, *others]), ranks)
        return
    kind, confidence, why = _what_it_does(evidence, index, float(late[:, index].max()))
    crowded = []
    if late.max() < lacks_ms:
        confidence = "medium" if confidence == "high" else confidence
        crowded = [
            f"ranks also lack up to {lacks_ms:.2f} ms of processor time per step, which can delay "
            "one rank by more than is recorded"
        ]
    yield TraceFinding(
        kind=kind,
        ranks=(rank,),
        cost=cost,
        summary=f"rank {rank} {why}, and the others wait for it",
        evidence=(
            f"remaining busy time: {_per_rank(np.median(busy, axis=0), ranks)} ms (median), "
            "without input, garbage collection, checkpoints and lost processor time"
            + (_BUT_OF_MORE_WORK if _lacks_for_it(evidence, rank) else ""),
            f"it is last in {_is_last_percent(evidence.busy.to_numpy(), index):.0f} % of "
            f"{len(busy):,} steps",
            *_processor_evidence(evidence, ranks),
            *crowded,
        ),
        remedy=_REMEDIES[kind].format(rank=rank, host=_host(evidence, rank)),
        confidence=confidence,
    )


def _is_last_percent(busy: Floats, index: int) -> float:
    return 100 * float((busy[:, index] > np.delete(busy, index, axis=1).max(axis=1)).mean())


def _excess(busy: Floats) -> Floats:
    """By how much the last rank of each step exceeds the next one."""
    in_order = np.sort(busy, axis=1)
    result: Floats = in_order[:, -1] - in_order[:, -2]
    return result


def _others_in_turn(busy: Floats, index: int, late_ms: float) -> list[int]:
    """The other ranks that are last in many steps by about as much.

    Which of them has the larger median is then a matter of a few steps.
    """
    last, excess = busy.argmax(axis=1), _excess(busy)
    found = []
    for other in range(busy.shape[1]):
        its = excess[last == other]
        if other != index and len(its) >= _IN_TURN * len(busy) and np.median(its) >= late_ms / 2:
            found.append(other)
    return found


def _clearly_in_turn(evidence: TraceEvidence, busy: Floats) -> list[int]:
    """Ranks of which each is the last in many steps by much, where processor times are known."""
    if busy.shape[1] < 2 or not evidence.part("ran_ms").any():
        return []  # a crowded host makes ranks late in turn, too
    last, excess = busy.argmax(axis=1), _excess(busy)
    least = _IN_TURN if busy.shape[1] < 3 else _IN_TURN / 2
    return [
        rank
        for rank in range(busy.shape[1])
        if np.count_nonzero(last == rank) >= least * len(busy)
        and np.median(excess[last == rank]) >= _CLEARLY_LATE * evidence.step_ms
    ]


def _in_turn(
    evidence: TraceEvidence, busy: Floats, chosen: list[int], ranks: list[int]
) -> TraceFinding:
    """Ranks of which now one is late and now another."""
    last, excess = busy.argmax(axis=1), _excess(busy)
    late = np.where(np.isin(last, chosen), excess, 0.0)
    of_each = np.where(np.arange(busy.shape[1]) == last[:, None], late[:, None], 0.0)
    kind, why = _what_they_do(evidence, chosen, last)
    named = [f"rank {ranks[each]}" for each in chosen]
    in_all = evidence.busy.to_numpy()
    often = (
        f"{name} in {_is_last_percent(in_all, each):.0f} %"
        for name, each in zip(named, chosen, strict=True)
    )
    hosts = sorted({_host(evidence, ranks[each]) for each in chosen})
    return TraceFinding(
        kind=kind,
        ranks=tuple(ranks[each] for each in chosen),
        cost=cost_of(saved(in_all, of_each), evidence.step_ms),
        summary=f"in turn, {' or '.join(named)} {why}, and the others wait for it",
        evidence=(
            f"the last rank is {', '.join(often)} of {len(busy):,} steps, by "
            f"{np.median(excess[np.isin(last, chosen)]):.2f} ms (median)",
            *_processor_evidence(evidence, ranks),
        ),
        remedy=_REMEDIES[kind].format(
            rank=" or ".join(str(ranks[each]) for each in chosen),
            host=hosts[0] if len(hosts) == 1 else "",
        ),
        # A crowded host makes ranks late in turn, too, which only processor times tell.
        confidence="medium" if evidence.part("ran_ms").any() else "low",
    )


_REMEDIES = {
    "slow-compute": "give rank {rank} less work per step (batch, sequence length), or check the "
    "clock, the temperature and other users of its processor or device{host}",
    "slow-elsewhere": "find what the script of rank {rank}{host} waits for between collectives "
    "(input, a lock, a device): py-spy dump, hvd.span(...) around the suspects, or torch.profiler "
    "for its GPU",
}


def _what_they_do(
    evidence: TraceEvidence, chosen: list[int], last: NDArray[np.intp]
) -> tuple[str, str]:
    """What ranks do more of in the steps in which they are the last than in the others."""
    ran, off = evidence.part("ran_ms"), evidence.part("off_processor_ms")
    if not ran.any():
        return "slow-compute", "is busy longer in each step"
    more_ran, more_off = (
        float(np.mean([_more_when_last(part[:, rank], last == rank) for rank in chosen]))
        for part in (ran, off)
    )
    if more_off > more_ran:
        return "slow-elsewhere", f"is {OFF_PROCESSOR} longer"
    return "slow-compute", "computes longer"


def _more_when_last(own: Floats, is_last: NDArray[np.bool_]) -> float:
    """By how much a rank's typical time differs between steps in which it is last and others."""
    if is_last.all() or not is_last.any():
        return 0.0
    return float(np.median(own[is_last]) - np.median(own[~is_last]))


def _what_it_does(
    evidence: TraceEvidence, index: int, excess_ms: float
) -> tuple[str, Confidence, str]:
    off = evidence.part("off_processor_ms")
    ran = evidence.part("ran_ms")
    if not ran.any():
        idle = evidence.part("gpu_idle_ms")
        more_idle = float(np.median(idle[:, index]) - np.median(np.delete(idle, index, axis=1)))
        if more_idle > 0.5 * excess_ms:
            return "slow-elsewhere", "medium", "leaves its GPU idle longer"
        return "slow-compute", "low", "is busy longer in each step"
    more_off = float(np.median(off[:, index]) - np.median(np.delete(off, index, axis=1)))
    if more_off > 0.5 * excess_ms:
        return "slow-elsewhere", "high", f"is {OFF_PROCESSOR} longer"
    return "slow-compute", "high", "computes longer"


def _processor_evidence(evidence: TraceEvidence, ranks: list[int]) -> list[str]:
    ran = evidence.part("ran_ms")
    if not ran.any() and evidence.sees_gpus:
        idle = evidence.part("gpu_idle_ms")
        return [f"its GPU is idle meanwhile: {_per_rank(idle.mean(axis=0), ranks)} ms per step"]
    if not ran.any():
        return [
            "processor times were not recorded, so it may also wait for input, a device, or a "
            "busy processor"
        ]
    return [f"on a processor: {_per_rank(ran.mean(axis=0), ranks)} ms per step"]


def _pauses(evidence: TraceEvidence, busy: Floats, ranks: list[int]) -> Iterator[TraceFinding]:
    """Rare long steps of a rank that no recorded span explains."""
    middle = np.median(busy, axis=0)
    spread = 1.4826 * np.median(np.abs(busy - middle), axis=0)
    limit = np.maximum(8 * spread, PAUSE_OF_STEP * evidence.step_ms)
    excess = np.where(busy - middle > limit, busy - middle, 0.0)
    gone = saved(busy, excess)
    culprit = _culprit(busy, excess, gone)
    # Of all ranks they may be the host's, which only many tell from chance.
    cost = (cost_of if culprit is None else cost_of_pauses)(gone, evidence.step_ms)
    hit = np.flatnonzero(excess.max(axis=1) > 0)
    # Two could be chance; what is in most steps is no pause.
    if cost.percent < 2.0 or len(hit) < 3 or len(hit) > len(busy) // 2:
        return
    who = "ranks pause" if culprit is None else f"rank {ranks[culprit]} pauses"
    apart = np.diff(evidence.busy.index.to_numpy()[hit])
    regular = len(apart) > 2 and float(np.ptp(apart)) <= 1 and float(np.median(apart)) > 1
    yield TraceFinding(
        kind="pauses",
        ranks=() if culprit is None else (ranks[culprit],),
        cost=cost,
        summary=f"{who} in {len(hit):,} of {len(busy):,} steps, "
        f"{excess[excess > 0].mean():.1f} ms each",
        evidence=(
            f"every {np.median(apart):.0f} steps" if regular else "at irregular intervals",
            "no span in the trace covers these pauses",
        ),
        remedy="put hvd.span(...) around validation, checkpoints and logging to find the cause",
        confidence="medium",
    )


def _costs_of_ranks(evidence: TraceEvidence) -> dict[int, float]:
    """What each rank costs the others, ms per step; NaN where their waits are unknown."""
    table = stragglers.table(evidence.steps, of_streams=evidence.is_of_streams)
    return {
        int(rank): float(cost)
        for rank, cost in zip(table["rank"], table["cost_ms_per_step"], strict=True)
    }


def _cost_in_all(evidence: TraceEvidence, found: TraceFinding, costs: Mapping[int, float]) -> str:
    """The costs of ranks, of which the cost of a finding is a part."""
    each = " and ".join(
        f"rank {rank} costs the others {costs[rank]:.2f} ms" for rank in found.ranks
    )
    counts = "only the cause that it names"
    if len(found.ranks) == 1 and found.cost.mean > costs[found.ranks[0]]:
        counts = (
            "all of the rank's longer busy time, although the recorded waits of the others are "
            "shorter"
        )
    if found.kind == "slow-compute" and _lacks_for_it(evidence, found.ranks[0]):
        counts = (
            "a typical step, including processor time that the rank lacks because it computes "
            "longer"
        )
    return f"in total, {each} per step (cost of a rank); this finding counts {counts}"


def _lacks_for_it(evidence: TraceEvidence, rank: int) -> bool:
    """Whether a rank lacks a processor for longer because it computes for longer."""
    ranks = [int(each) for each in evidence.busy.columns]
    return bool(_of_extra_work(evidence)[ranks.index(rank)] > 0)


def _per_rank(values: Floats, ranks: list[int]) -> str:
    if len(ranks) > 8:
        worst = int(values.argmax())
        return f"rank {ranks[worst]}: {values[worst]:.2f}, the median rank: {np.median(values):.2f}"
    if len(ranks) == 1:
        return f"{values[0]:.2f}"
    return ", ".join(f"rank {r}: {v:.2f}" for r, v in zip(ranks, values, strict=True))


def _host(evidence: TraceEvidence, rank: int) -> str:
    host = evidence.job.hosts.get(rank)
    return f" on {host}" if host else ""
