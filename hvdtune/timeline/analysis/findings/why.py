"""Asks all rules and ranks what they find."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from hvdtune.plural import counted
from hvdtune.timeline.analysis import device_spans
from hvdtune.timeline.analysis.arrivals import (
    Arrivals,
    arrivals_of,
    sentence,
    sentence_of_steps,
)
from hvdtune.timeline.analysis.findings import (
    buckets,
    exposed,
    hang,
    idle_gpus,
    late_rank,
    nccl_reports,
    negotiation,
    network,
    slow_ranks,
    unnamed,
)
from hvdtune.timeline.analysis.findings.finding import (
    FEW_STEPS,
    MIN_STEPS,
    TraceEvidence,
    TraceFinding,
)
from hvdtune.timeline.analysis.findings.slow_ranks import UNRECORDED
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.analysis.recorded import FACTS, advice_of, is_recorded
from hvdtune.timeline.analysis.steps import steps_of
from hvdtune.timeline.model.job_metadata import JobMetadata
from hvdtune.timeline.model.schema import COLLECTIVES, INPUT, WAITS
from hvdtune.timeline.model.trace import Trace

MOST_FINDINGS = 5
MANY_DROPPED = 0.01
_MOST_NAMED = 8  # of ranks

# Each may find what costs too little to matter.
RULES: tuple[Callable[[TraceEvidence], Iterator[TraceFinding]], ...] = (
    slow_ranks.find,
    negotiation.find,
    buckets.find,
    network.find,
)
_LOOK_INSIDE = (
    "look at the rank's threads before the collective in torch.profiler's recording: gaps are "
    "sleep or waits; record hvdtune's timeline next to it to separate computing, input and waiting"
)


def _in_a_clause(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")


_NO_COLLECTIVES = "the trace has no collectives"
Verdict = Literal["found", "nothing", "unexplained", "incomplete"]
_ONLY_ARRIVALS = "the trace records announcements, but not the parts of a step"


@dataclass(frozen=True)
class Answer:
    """Why a job is slow, as far as its trace tells.

    Attributes:
        verdict: "found", "nothing" (no bottleneck), "unexplained" (nothing was found, and less
            than 80 % of a step is explained), "incomplete" (evidence is missing).
        findings: at most five, the one that costs most first.
        missing: what evidence is missing, one sentence each.
        notes: what limits the answer without making it impossible.
        step_ms: what a step takes, mean over steps and ranks.
        steps: how many were looked at.
        ranks: whose events are there.
        scope: what was looked at, where that is no steps.
        explained_percent: of a step, where nothing was found in steps; see `unnamed.StepShares`.
        unexplained: the largest part without an explanation, of an "unexplained" step.
    """

    verdict: Verdict
    findings: tuple[TraceFinding, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    step_ms: float = 0.0
    steps: int = 0
    ranks: tuple[int, ...] = ()
    scope: str = ""
    explained_percent: float | None = None
    unexplained: str = ""

    @property
    def headline(self) -> str:
        """A sentence on what was looked at and whether anything was found, or what is missing."""
        if self.verdict == "incomplete":
            return "INCOMPLETE: " + "; ".join(self.missing) + "."
        if self.scope:
            return f"{self.scope}."
        ranks = counted(len(self.ranks), "rank")
        scope = f"{counted(self.steps, 'step')} of {self.step_ms:.2f} ms on {ranks}"
        if self.verdict == "unexplained":
            return f"Not explained: in {scope}, {self.unexplained}."
        return f"{scope}." if self.findings else f"No bottleneck found in {scope}."

    def document(self) -> dict[str, Any]:
        """For JSON."""
        percent = self.explained_percent
        return {
            "verdict": self.verdict,
            "step_ms": round(self.step_ms, 4) if self.step_ms else None,
            "steps": self.steps,
            "ranks": list(self.ranks),
            "findings": [finding.row() for finding in self.findings],
            "missing": list(self.missing),
            "explained_percent": percent if percent is None else round(percent, 2),
            "unexplained": self.unexplained,
            "notes": list(self.notes),
        }


def why(trace: Trace, job: JobMetadata, steps: pd.DataFrame | None = None) -> Answer:
    """Look for bottlenecks.

    Findings that are parts of each other are counted once: the cause nearer to the evidence wins.

    Args:
        trace: as read.
        job: what is known of it.
        steps: `breakdown.steady_steps` of the trace, if that has been asked for already.
    """
    answer = _answer(trace, job, steps)
    advice = advice_of(trace)
    return replace(answer, notes=(*answer.notes, _in_a_clause(advice))) if advice else answer


def _answer(trace: Trace, job: JobMetadata, steps: pd.DataFrame | None) -> Answer:
    if dumps := hang.dumps_of(trace):
        return _of_dumps(dumps)
    if answers := nccl_reports.answers_of(trace):
        gone = nccl_reports.gone(answers)
        return _of_nccl(gone, nccl_reports.scope(answers, gone), ())
    if nccl_reports.is_inspected(trace):
        return _of_inspector(trace, job)
    if arrivals := arrivals_of(trace):
        return _of_arrivals(arrivals, trace, job)
    missing = tuple(_missing(trace, job))
    if missing == (_says_no_collectives(trace),) and (answer := _without_collectives(trace, job)):
        return answer
    if missing:
        return Answer("incomplete", missing=missing, ranks=job.ranks)
    evidence = TraceEvidence.of(trace, job, steps)
    if len(evidence.busy) < MIN_STEPS:
        shared = counted(len(evidence.busy), "step")
        text = f"all ranks share only {shared}; at least {MIN_STEPS} are needed"
        return Answer("incomplete", missing=(text,), ranks=job.ranks)
    found = [finding for rule in RULES for finding in rule(evidence) if finding.cost.matters]
    found = _without_overlaps(found)
    found += network.find_rest(evidence, found)
    found += exposed.find(evidence, found)
    found += idle_gpus.find(trace, evidence, found)
    found.sort(key=lambda finding: -finding.cost.mean)
    notes = [*_notes(trace, job, evidence)]
    told_ms = (row.cost.mean for row in found if row.kind == "oversubscribed")
    lost_ms = max(float(slow_ranks.lacks_processor_ms(evidence).mean()), *told_ms, 0.0)
    if kept := _apart_from_crowding(found, lost_ms):
        if len(kept) < len(found):
            notes.append(_CROWDED.format(UNRECORDED * lost_ms))
        found = kept
    if len(evidence.busy) < FEW_STEPS:
        found = [_less_sure(finding) for finding in found]
        notes.insert(0, _few(len(evidence.busy)))
    answer = _of_steps(trace, evidence, found, notes)
    return replace(answer, steps=len(evidence.busy))


def _of_steps(
    trace: Trace, evidence: TraceEvidence, found: Sequence[TraceFinding], notes: Sequence[str]
) -> Answer:
    """The answer of steps that were looked at."""
    answer = Answer(
        "found",
        findings=tuple(found[:MOST_FINDINGS]),
        notes=tuple(notes),
        step_ms=evidence.step_ms,
        steps=evidence.steps["step"].nunique(),
        ranks=evidence.job.ranks,
    )
    shares = unnamed.shares(trace, evidence, answer.findings)
    if found or shares.are_enough:
        note = shares.note(of_ranks=evidence.busy.shape[1] > 1)
        answer = replace(answer, notes=(*answer.notes, note) if note else answer.notes)
    if found:
        return answer
    answer = replace(answer, verdict="nothing", explained_percent=shares.explained_percent)
    if shares.are_enough:
        return answer
    return replace(answer, verdict="unexplained", unexplained=shares.sentence())


def _few(steps: int) -> str:
    return f"only {counted(steps, 'step')} were recorded; rare problems may be missed"


def _less_sure(finding: TraceFinding) -> TraceFinding:
    return replace(finding, confidence="medium") if finding.confidence == "high" else finding


def _without_collectives(trace: Trace, job: JobMetadata) -> Answer | None:
    """The answer of a training without communication: what one process or its GPUs do.

    None where nothing of that was recorded.
    """
    evidence = TraceEvidence.of(trace, job)
    steps = evidence.steps["step"].nunique()
    if steps < MIN_STEPS:
        return None
    found: list[TraceFinding] = []
    looked_at = []
    if job.size == 1 and (told := _told_of_scripts(trace, evidence)):
        looked_at += told
        # Nothing tells of waits, so all of a step is taken to be the script's own.
        own = replace(evidence, steps=evidence.steps.assign(blocked_ms=0.0))
        found += (row for row in slow_ranks.find(own) if row.cost.matters)
    if evidence.sees_gpus:
        looked_at.append("GPU activity")
        found += idle_gpus.find(trace, evidence, found)
    if not looked_at:
        return None
    found.sort(key=lambda finding: -finding.cost.mean)
    notes = [f"no collectives are recorded, so only {_listed(looked_at)} was checked"]
    if not is_recorded(trace, "waits"):
        notes.append("any time spent waiting for other ranks is unknown")
    if steps < FEW_STEPS:
        found = [_less_sure(finding) for finding in found]
        notes.insert(0, _few(steps))
    return _of_steps(trace, evidence, found, notes)


def _told_of_scripts(trace: Trace, evidence: TraceEvidence) -> list[str]:
    """What a trace tells of what scripts do besides computing."""
    told = []
    events = trace.events
    if (events.loc[events["kind"] == "SPAN", "name"] == INPUT).any():
        told.append("waiting for input")
    if is_recorded(trace, "pauses"):
        told.append("collecting garbage and writing checkpoints")
    if evidence.steps["ran_ms"].notna().any():
        told.append("lack of processors")
    return told


def _listed(parts: Sequence[str]) -> str:
    """The parts in a sentence."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _of_dumps(dumps: hang.Dumps) -> Answer:
    """The answer of dumps of a job that hangs, or is thought to."""
    found = hang.find(dumps)
    return Answer(
        "found" if found else "nothing",
        findings=tuple(found[:MOST_FINDINGS]),
        notes=tuple(hang.notes(dumps)),
        ranks=tuple(sorted(dumps)),
        scope=hang.scope(dumps, found),
    )


def _of_inspector(trace: Trace, job: JobMetadata) -> Answer:
    """The answer of logs that say how long each collective ran on each rank."""
    table = nccl_reports.durations(trace)
    if len(table) < FEW_STEPS:
        shared = f"{counted(len(table), 'collective')} of several ranks"
        text = (
            f"the logs contain {shared}; at least {FEW_STEPS} are needed: pass the logs of all "
            "ranks"
        )
        return Answer("incomplete", missing=(text,), ranks=job.ranks)
    found = nccl_reports.late(table)
    whole = f"NCCL's Inspector recorded {counted(len(table), 'collective')} of several ranks"
    return _of_nccl(found, whole if found else f"{whole}: no rank is usually last", job.ranks)


def _of_nccl(found: Sequence[TraceFinding], scope: str, ranks: tuple[int, ...]) -> Answer:
    return Answer(
        "found" if found else "nothing",
        findings=tuple(found[:MOST_FINDINGS]),
        ranks=ranks,
        scope=scope,
    )


def _of_arrivals(arrivals: Arrivals, trace: Trace, job: JobMetadata) -> Answer:
    """The answer of a trace that only says who announced when."""
    steps = steps_of(trace)
    looked = Answer(
        "incomplete",
        notes=(_in_a_clause(sentence_of_steps(arrivals)),),
        step_ms=float(steps["step_ms"].mean()) if len(steps) else 0.0,
        steps=steps["step"].nunique(),
        ranks=arrivals.ranks,
    )
    if len(arrivals.steps) < FEW_STEPS:
        return replace(looked, missing=(*job.gaps, _in_a_clause(sentence(arrivals))))
    found = late_rank.find(arrivals)
    if any(file.format == "kineto" for file in trace.files):
        found = [replace(finding, remedy=_LOOK_INSIDE) for finding in found]
    return replace(
        looked,
        verdict="found" if found else "unexplained",
        findings=tuple(found),
        unexplained="" if found else f"no rank is late; {_ONLY_ARRIVALS}",
        notes=(
            *looked.notes,
            "the trace records only when ranks announced tensors, so only late ranks were looked "
            "for",
        ),
    )


def _missing(trace: Trace, job: JobMetadata) -> Iterator[str]:
    events = trace.events
    if events.empty:
        none = f"no steps or collectives in its {counted(trace.slice_count, 'slice')}"
        yield from (job.gaps or (none,)) if trace.slice_count else ("the trace holds no slices",)
        return
    yield from job.gaps
    if job.missing_ranks:
        named = _named(job.first_missing(_MOST_NAMED), job.missing_ranks)
        yield f"events of {named} are missing, so waits between ranks are unknown"
    kinds = events["kind"]
    with_steps = set(events.loc[kinds == "STEP", "rank"].unique().tolist())
    if not with_steps:
        yield "no steps are marked: train with DistributedOptimizer, or call hvd.mark_step()"
    elif without := sorted({*job.ranks} - with_steps):
        named = _named(without[:_MOST_NAMED], len(without))
        yield f"steps of {named} are missing, so waits between ranks are unknown"
    steps = events.loc[kinds == "STEP", ["rank", "seq"]]
    for rank, step in steps[steps.duplicated()].head(1).to_numpy().tolist():
        yield f"rank {rank} has step {step} twice, so its steps are ambiguous"
    if not kinds.isin(COLLECTIVES).any():
        yield _says_no_collectives(trace)
    elif len(job.ranks) > 1 and events.loc[kinds == "NEGOTIATE", "rank"].nunique() < len(job.ranks):
        yield "some ranks' announcements are missing, so late ranks cannot be found"
    if unseen := _unseen_streams(trace):
        yield unseen
    if job.dropped > MANY_DROPPED * len(events):
        yield f"{job.dropped:,} records were dropped; {len(events):,} are left"


def _says_no_collectives(trace: Trace) -> str:
    """What is missing where there are none; with nothing else missing, other things can be told."""
    unknown = next((fact for fact in ("waits", "collectives") if not is_recorded(trace, fact)), "")
    return _in_a_clause(FACTS[unknown].sentence) if unknown else _NO_COLLECTIVES


def _named(first: Sequence[int], count: int) -> str:
    """So many ranks, of which the first ones are given by number."""
    more = f" and {count - len(first):,} more" if count > len(first) else ""
    return f"{'rank' if count == 1 else 'ranks'} {', '.join(map(str, first))}{more}"


def _unseen_streams(trace: Trace) -> str:
    """Which ranks do not say what their GPU's stream waits for though there is one; "": none."""
    events = trace.events
    kinds = events["kind"]
    if not kinds.isin(("STREAM_WAIT", "ENQUEUE_WAIT")).any() or device_spans.of_all(trace):
        return ""
    with_steps = set(events.loc[kinds == "STEP", "rank"].unique().tolist())
    unseen = sorted(with_steps - set(events.loc[kinds == "STREAM_WAIT", "rank"].unique().tolist()))
    if not unseen:
        return ""
    which = f"rank {unseen[0]}" if len(unseen) == 1 else f"{len(unseen)} ranks"
    return f"the trace does not record the waits of the GPU stream of {which}"


def _notes(trace: Trace, job: JobMetadata, evidence: TraceEvidence) -> Iterator[str]:
    if job.size == 1:
        yield "a single rank never waits for other ranks"
    if job.settings > 1:
        yield (
            f"{job.settings} settings were in use ({job.changes} changes); costs are means over "
            "all of them"
        )
    doubt = max(job.clock_doubt_us.values(), default=0.0)
    if doubt > 0:
        yield (
            f"clocks of hosts agree to within {doubt:.1f} us (the largest residual of their "
            "alignment)"
        )
    if not job.setting:
        yield "the setting is not in the trace, so knobs were not checked"
    if not evidence.sees_gpus and not trace.events["kind"].isin(WAITS).any():
        yield (
            "the script's waits are not recorded; they were inferred from the times at which it "
            "announced tensors"
        )
    if note := breakdown.note_of_unseen_gpus(trace.events, evidence.steps):
        yield note


# Of these pairs the second follows from the first.
_EXPLAINS = (
    ("huge-late-tensor", "copy-bound"),
    ("tiny-buckets", "copy-bound"),
    ("tiny-buckets", "cold-cache"),
    ("long-cycle", "cold-cache"),
    ("cold-cache", "oversubscribed"),
    ("cold-cache", "slow-link"),
    ("oversubscribed", "pauses"),
)


_CROWDED = "CPU contention hides any cost below {:.2f} ms per step"
# What scripts say that they do is known, however crowded the host is.
_SAID = {"oversubscribed", "gc-pauses", "checkpoint-pauses"}
# So is the setting, and what scripts announce and when, though what these cost is not sure.
_KNOWN = {"tiny-buckets", "small-ddp-buckets", "long-cycle", "cold-cache", "huge-late-tensor"}


def _apart_from_crowding(found: list[TraceFinding], lost_ms: float) -> list[TraceFinding]:
    """Leave out what may be nothing but a lack of processors, which may cost more than is recorded.

    What may as well be due to it is never sure.
    """
    return [
        _less_sure(row) if row.kind not in _SAID and row.cost.mean < lost_ms else row
        for row in found
        if row.kind in _SAID | _KNOWN or row.cost.mean >= UNRECORDED * lost_ms
    ]


def _without_overlaps(found: list[TraceFinding]) -> list[TraceFinding]:
    cost = {finding.kind: finding.cost.mean for finding in found}
    hidden = {b for a, b in _EXPLAINS if a in cost and cost.get(b, 0.0) <= cost[a]}
    # A lack of processors makes all ranks pause, not one of them again and again.
    return [row for row in found if row.kind not in hidden or (row.kind == "pauses" and row.ranks)]
