"""Communication that is much, that nothing hides, and that no other finding explains."""

from collections.abc import Iterator, Sequence

import numpy as np

from hvdtune.timeline.analysis.findings.finding import (
    LESS_OFTEN,
    OF_RANKS,
    SEND_LESS,
    TraceEvidence,
    TraceFinding,
    cost_of,
)
from hvdtune.timeline.analysis.findings.slow_ranks import processors_share
from hvdtune.timeline.analysis.metrics import fusion

MUCH_PERCENT = 20.0  # of a step


def find(evidence: TraceEvidence, found: Sequence[TraceFinding]) -> Iterator[TraceFinding]:
    """Find at most one, if no other finding is about communication."""
    if any(row.kind not in OF_RANKS for row in found):
        return
    # What the runtime's threads lack of processors is told with what the scripts do.
    cost = cost_of(evidence.blocked * (1 - processors_share(evidence)), evidence.step_ms)
    if not cost.matters or cost.percent < MUCH_PERCENT:
        return
    buckets, negotiation, late = (
        _of_least_blocked(evidence, part) for part in ("exposed_ms", "negotiate_ms", "wait_ms")
    )
    waited = [f"{buckets:.2f} ms for buckets"]
    if evidence.knows_negotiation:
        waited.append(f"{negotiation:.2f} ms for negotiation")
    in_turn = late > cost.mean / 2
    yield TraceFinding(
        kind="exposed-communication",
        ranks=(),
        cost=cost,
        summary="every rank waits, mostly for others to announce: different ranks are late in "
        "different steps"
        if in_turn
        else (
            "the GPUs of all ranks communicate without computing"
            if evidence.sees_gpus
            else f"{_who(evidence)} waits for communication that no computing hides"
        ),
        evidence=(
            *_counted_on(evidence, waited, late),
            "in the whole trace: "
            + fusion.sentence(fusion.table(evidence.events)).removesuffix("."),
        ),
        remedy=_IN_TURN if in_turn else much(evidence),
        confidence="low" if in_turn else "medium",
    )


_IN_TURN = (
    "wait less often in a step (group small tensors, hvd.allreduce_async and one synchronize), "
    "and put hvd.span(...) around the work between waits"
)


def much(evidence: TraceEvidence) -> str:
    """What to do about much communication."""
    less = f"{SEND_LESS} or {LESS_OFTEN}"
    if evidence.job.was_tuned:
        return f"{less}; the setting has already been tuned by a study"
    return f"tune the setting with hvdtune run --trials 40; {less}"


def _who(evidence: TraceEvidence) -> str:
    ranks = evidence.busy.columns
    return "every rank" if len(ranks) > 1 else f"rank {ranks[0]}"


def _counted_on(evidence: TraceEvidence, waited: Sequence[str], late: float) -> Iterator[str]:
    if evidence.busy.shape[1] == 1:
        yield f"{' and '.join(waited)} of each step (mean)"
        return
    yield (
        f"counted on the rank that waits least in each step: {', '.join(waited)} and {late:.2f} ms "
        "for ranks that had not announced yet"
    )
    of_all = float(evidence.part("blocked_ms").mean())
    yield (
        f"the mean of all ranks is {of_all:.2f} ms, {100 * of_all / evidence.step_ms:.0f} % of a "
        "step, because ranks also wait for each other"
    )


def _of_least_blocked(evidence: TraceEvidence, part: str) -> float:
    """ms per step of the rank that waited least in each: its parts add up to what it waited."""
    least = evidence.part("blocked_ms").argmin(axis=1)
    return float(np.take_along_axis(evidence.part(part), least[:, None], axis=1).mean())
