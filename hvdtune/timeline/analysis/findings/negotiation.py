"""Time lost before communication begins: the window, the response cache, the order of tensors."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hvdtune.plural import counted
from hvdtune.timeline.analysis.findings.finding import TraceEvidence, TraceFinding, cost_of
from hvdtune.timeline.analysis.findings.slow_ranks import lacks_processor_ms
from hvdtune.timeline.analysis.metrics.breakdown import announced_by_all
from hvdtune.timeline.analysis.replay import Step

DEFAULT_CYCLE_TIME_MS = 1.0
# Of announcements of names that were seen before.
FEW_HITS_PERCENT = 50.0
LACKS_PERCENT = 10.0  # of a step: less of it is usual
# How the timeline calls operations of a group of torch.distributed, and how many names such a group
# uses in the core (hvdtune.distributed.names).
_OF_TORCH: Final = re.compile(r"(^|\.)(torch\.\d+$|bucket \d+: )")
_NAMES_OF_TORCH: Final = 1024
# Rank correlation of two ranks' orders of announcing: same scripts have 0.9 and more.
SAME_ORDER = 0.5


def find(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    """Find at most one of each: long cycle, cold cache, different order."""
    yield from _long_cycle(evidence)
    yield from _cold_cache(evidence)
    yield from _different_order(evidence)


def _long_cycle(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    rules = evidence.rules
    if rules is None or rules.cycle_time_ms <= DEFAULT_CYCLE_TIME_MS:
        return
    shorter = replace(rules, cycle_time_ms=DEFAULT_CYCLE_TIME_MS)
    cost = evidence.saved(evidence.replayed, shorter)
    asked = announced_by_all(evidence.events, ("end_ns", "all_ns"))
    response_ms = (asked["end_ns"] - asked["all_ns"]).clip(lower=0) / 1e6
    yield TraceFinding(
        kind="long-cycle",
        ranks=(),
        cost=cost,
        summary=f"tensors wait for the cycle of {rules.cycle_time_ms:g} ms after all ranks "
        "announced them",
        evidence=(
            f"a tensor waits {response_ms.quantile(0.9):.2f} ms for its response (90th percentile) "
            "after the last rank announced it",
            f"a replay with a cycle of {DEFAULT_CYCLE_TIME_MS:g} ms ends each step "
            f"{cost.mean:.2f} ms earlier (mean)",
        ),
        remedy=f"--cycle-time-ms {DEFAULT_CYCLE_TIME_MS:g} or less",
        knob="cycle_time_ms",
        confidence="medium",
    )


def _cold_cache(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    events = evidence.events
    first = evidence.steps["begin_ns"].min() if len(evidence.busy) else 0
    is_warm = (events["kind"] == "NEGOTIATE") & (events["begin_ns"] >= first)
    warm = events.loc[is_warm, ["rank", "name", "arg"]]
    misses = 100 * float((warm["arg"] % 2 == 0).mean()) if len(warm) else 0.0
    if misses < FEW_HITS_PERCENT:
        return
    # No rank goes on before the last one has its response: where names travel to each rank in turn,
    # that is the same one in most steps. Which others are late now and then is chance.
    of_ranks = evidence.part("negotiate_ms")
    per_step = of_ranks[:, int(of_ranks.mean(axis=0).argmax())]
    waits = np.maximum(per_step - evidence.costs.reply_ms, 0.0)
    if not cost_of(waits, evidence.step_ms).matters:
        return
    lacks = _processors_taken_ms(evidence, waits)
    cost = cost_of(waits + lacks, evidence.step_ms)
    again = 100 * float(warm.duplicated(["rank", "name"]).mean())
    names = warm["name"].nunique()
    remedy, knob = cache_remedy(evidence.job.setting, list(warm["name"].unique()), again)
    yield TraceFinding(
        kind="cold-cache",
        ranks=(),
        cost=cost,
        summary=f"{misses:.0f} % of announcements miss the response cache and are sent in full",
        evidence=(
            f"{counted(names, 'name')} in {len(evidence.busy):,} steps; {again:.0f} % of "
            "announcements repeat an earlier name",
            f"the rank that gets its responses last waits {per_step.mean():.2f} ms per step for "
            "responses only",
            *_processor_evidence(lacks),
        ),
        remedy=remedy,
        knob=knob,
    )


def cache_remedy(setting: Mapping[str, Any], names: Sequence[str], again: float) -> tuple[str, str]:
    """What to do about a cold cache, and the knob that it is about, "" for none.

    Args:
        setting: of the job, by the names of knobs.
        names: of what was announced.
        again: how many per cent of announcements have a name that their rank announced before.
    """
    capacity = int(setting.get("cache_capacity", 0))
    by_torch = any(_OF_TORCH.search(name) for name in names)
    room = 1 << len(names).bit_length()
    if by_torch:  # these are called otherwise in the timeline, by names that repeat sooner
        room = max(room, _NAMES_OF_TORCH)
    if not setting.get("cache_enabled", True):
        text = f"enable the response cache with --cache-capacity {max(room, 1024)} (it is disabled)"
        return text, "cache_enabled"
    if capacity < room and (by_torch or again >= FEW_HITS_PERCENT):
        return f"--cache-capacity {room} instead of {capacity}", "cache_capacity"
    if by_torch:
        return (
            "record later steps: the cache fills during the first hundreds of operations of a "
            "torch.distributed group"
        ), ""
    if again >= FEW_HITS_PERCENT:
        return "give each tensor the same shape in every step, so that the cache can be used", ""
    return "give each tensor the same name in every step, so that the cache can be used", ""


def _processors_taken_ms(
    evidence: TraceEvidence, waits: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Announcing in full takes processors from the scripts, but less than it makes them wait.

    So do buckets: what the runtime is busy with for longer has as much more of the blame. The first
    rank to begin a bucket only waits for the others in it.
    """
    lacks = lacks_processor_ms(evidence)
    usual = 100 * lacks.mean() < LACKS_PERCENT * evidence.step_ms
    if usual or lacks.mean() > waits.mean():
        return np.zeros_like(lacks)
    in_buckets = float(evidence.part("communicate_ms").min(axis=1).mean())
    return lacks * float(waits.mean()) / (float(waits.mean()) + in_buckets)


def _processor_evidence(lacks: NDArray[np.float64]) -> list[str]:
    if not lacks.any():
        return []
    return [
        "announcing in full also takes processor time, which delays scripts by "
        f"{lacks.mean():.2f} ms per step"
    ]


def _different_order(evidence: TraceEvidence) -> Iterator[TraceFinding]:
    if evidence.rules is None:
        return
    steps = [step for step in evidence.replayed if step.announced_ms.shape[1] >= 4]
    if len(steps) < len(evidence.replayed) / 2 or not steps:
        return
    alike = [_likeness(step) for step in steps]
    worst, rank = min(((float(np.median(row)), k) for k, row in enumerate(np.transpose(alike))))
    if worst > SAME_ORDER:
        return
    ordered = [_in_one_order(step) for step in steps]
    cost = evidence.saved(steps, changed=ordered)
    named = (int(evidence.busy.columns[rank]),) if len(evidence.job.ranks) > 2 else ()
    who = f"rank {named[0]} announces" if named else "the ranks announce"
    yield TraceFinding(
        kind="different-order",
        ranks=named,
        cost=cost,
        summary=f"{who} tensors in a different order, so each tensor waits for the last rank",
        evidence=(
            f"rank correlation of the orders: {worst:.2f} (1: the same order)",
            f"a replay with all ranks in the order of rank {evidence.job.ranks[0]} ends each step "
            f"{cost.mean:.2f} ms earlier (mean)",
        ),
        remedy="build the model and its optimizer in the same order on every rank, and do "
        "not iterate over sets",
        confidence="medium",
    )


def _likeness(step: Step) -> list[float]:
    """For each rank, the median correlation of its order with those of the others."""
    times = step.announced_ms[:, ~np.isnan(step.announced_ms).any(axis=0)]
    ranks = len(times)
    if times.shape[1] < 4 or ranks < 2:
        return [1.0] * ranks
    orders = times.argsort(axis=1, kind="stable").argsort(axis=1)
    # Tensors that one rank announced at the same instant have no order.
    both = np.atleast_2d(np.corrcoef(orders))
    return [float(np.median(np.delete(both[k], k))) for k in range(ranks)]


def _in_one_order(step: Step) -> Step:
    """As if every rank announced in the first one's order, at the instants it announced at."""
    times = step.announced_ms.copy()
    whole = np.flatnonzero(~np.isnan(times).any(axis=0))
    order = np.argsort(times[0, whole], kind="stable")
    times[:, whole[order]] = np.sort(times[:, whole], axis=1)
    return replace(step, announced_ms=times)
