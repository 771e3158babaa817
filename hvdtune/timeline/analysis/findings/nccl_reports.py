"""Who is late or gone, by what NCCL says of its communicators: its Inspector and its RAS."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hvdtune.plural import counted
from hvdtune.timeline.analysis.findings.finding import FEW_STEPS, NOT_PER_STEP, TraceFinding
from hvdtune.timeline.analysis.findings.hang import ranks_named
from hvdtune.timeline.model.schema import COLLECTIVES
from hvdtune.timeline.model.trace import Trace

INSPECTOR, RAS = "nccl-inspector", "nccl_ras"
MOST_OPERATIONS = 75.0  # percent; ranks that are late by chance take turns
LEAST_SHARE = 0.1  # of the time of the other ranks' kernels, below which lateness is nothing
_FINE = (0, 7)  # ncclSuccess, ncclInProgress


def is_inspected(trace: Trace) -> bool:
    """Whether all that is known is of NCCL's Inspector."""
    return bool(trace.files) and all(file.format == INSPECTOR for file in trace.files)


def durations(trace: Trace) -> pd.DataFrame:
    """How long collectives ran on each rank, of those that several ranks tell of.

    Returns:
        Rows by communicator, operation and number; a column of ms for each rank, NaN where it does
        not tell of it.
    """
    events = trace.events[trace.events["kind"].isin(COLLECTIVES)]
    if events.empty:
        return pd.DataFrame()
    where = events["name"].astype(str).str.partition(" ")
    rows = pd.DataFrame(
        {
            "communicator": where[0],
            "operation": where[2],
            "number": events["seq"],
            "rank": events["rank"],
            "ms": (events["end_ns"] - events["begin_ns"]) / 1e6,
        }
    )
    keys = ["communicator", "operation", "number"]
    table = rows.pivot_table(index=keys, columns="rank", values="ms", aggfunc="last")
    return table[table.notna().sum(axis=1) > 1]


def late(table: pd.DataFrame) -> list[TraceFinding]:
    """Ranks that come last to most collectives of a communicator, by a table of `durations`.

    A kernel of NCCL's runs until the last rank has come, so that rank's own is the shortest.
    """
    found = []
    for name, own in table.groupby(level="communicator"):
        own = own.dropna(axis=1, how="all").dropna()
        if len(own) < FEW_STEPS:
            continue
        values = own.to_numpy(np.float64)
        last = values.argmin(axis=1)
        place, count = Counter(last.tolist()).most_common(1)[0]
        share = 100 * count / len(own)
        others = np.delete(values, place, axis=1)
        waits = float(np.median(others.min(axis=1) - values[:, place]))
        usual = float(np.median(others))
        if share < MOST_OPERATIONS or waits < LEAST_SHARE * usual:
            continue
        rank = int(own.columns.to_numpy()[place])
        found.append(
            (
                -waits * len(own),
                TraceFinding(
                    kind="late-rank",
                    ranks=(rank,),
                    cost=NOT_PER_STEP,
                    summary=f"rank {rank} is last in the collectives of communicator {name}",
                    evidence=(
                        f"its kernels are the shortest in {share:.0f} % of {len(own):,} "
                        f"collectives recorded by {counted(values.shape[1], 'rank')}; a kernel "
                        "runs until the last rank arrives",
                        f"its kernels run {np.median(values[:, place]):.3f} ms (median), those of "
                        f"the others {usual:.3f} ms; the next shortest take {waits:.3f} ms "
                        "(median) more",
                    ),
                    remedy=(
                        f"find out what rank {rank} does before each collective: record the job "
                        "with torch.profiler or nsys, which separate computing and input"
                    ),
                    confidence="medium",
                ),
            )
        )
    return [finding for _, finding in sorted(found, key=lambda pair: pair[0])]


def answers_of(trace: Trace) -> list[Mapping[str, Any]]:
    """The answers of NCCL's RAS in a trace."""
    known = trace.meta.get("ranks", {}).values()
    return [said[RAS] for said in known if isinstance(said, dict) and RAS in said]


def gone(answers: Sequence[Mapping[str, Any]]) -> list[TraceFinding]:
    """What is wrong with communicators: ranks that are gone first, then errors, then who lags."""
    found = [
        finding
        for answer in answers
        for communicator in answer["communicators"]
        for rule in (_missing, _errors, _behind)
        for finding in rule(communicator)
    ]
    order = ("rank-gone", "communicator-error", "missing-call")
    return sorted(found, key=lambda finding: order.index(finding.kind))


def scope(answers: Sequence[Mapping[str, Any]], found: Sequence[TraceFinding]) -> str:
    """A sentence on what was looked at."""
    count = sum(len(answer["communicators"]) for answer in answers)
    when = ", ".join(str(answer["timestamp"]) for answer in answers if answer["timestamp"])
    whole = f"NCCL's RAS reported {counted(count, 'communicator')}" + (
        f" at {when}" if when else ""
    )
    if found:
        return whole
    return f"{whole}: no rank is missing or has an error, and all made the same number of calls"


def _title(communicator: Mapping[str, Any]) -> str:
    return f"communicator {communicator['hash']} of {counted(communicator['size'], 'rank')}"


def _where(report: Mapping[str, Any]) -> str:
    return f"rank {report['rank']} is process {report['pid']} on {report['host']}"


def _missing(communicator: Mapping[str, Any]) -> Iterator[TraceFinding]:
    missing = communicator["missing_ranks"]
    if not missing:
        return
    dead = [each for each in missing if each["status"]["considered_dead"]]
    silent = [each for each in missing if each["status"]["unresponsive"]]
    ranks = tuple(each["rank"] for each in dead or silent or missing)
    does = "is" if len(ranks) == 1 else "are"
    what = "dead" if dead else "unresponsive" if silent else "missing from this communicator"
    yield TraceFinding(
        kind="rank-gone",
        ranks=ranks,
        cost=NOT_PER_STEP,
        summary=f"{ranks_named(ranks)} of {_title(communicator)} {does} {what}, according to "
        "NCCL's RAS",
        evidence=tuple(_where(each) for each in (dead or silent or missing)[:8]),
        remedy=f"check the log and the host of {ranks_named(ranks)}",
        confidence="high" if dead else "medium",
    )


def _errors(communicator: Mapping[str, Any]) -> Iterator[TraceFinding]:
    wrong = [
        each
        for each in communicator["ranks"]
        if each["status"]["init_state"] not in _FINE
        or each["status"]["async_error"] not in _FINE
        or each["status"]["abort_flag"]
    ]
    if wrong:
        ranks = tuple(each["rank"] for each in wrong)
        yield TraceFinding(
            kind="communicator-error",
            ranks=ranks,
            cost=NOT_PER_STEP,
            summary=f"{ranks_named(ranks)} of {_title(communicator)}: errors, according to NCCL's "
            "RAS",
            evidence=tuple(
                f"{_where(each)}: initialization {each['status']['init_state']}, asynchronous "
                f"error {each['status']['async_error']}"
                + (", aborted" if each["status"]["abort_flag"] else "")
                for each in wrong[:8]
            ),
            remedy="check these ranks' logs with NCCL_DEBUG=WARN; numbers are ncclResult_t values",
        )


def _behind(communicator: Mapping[str, Any]) -> Iterator[TraceFinding]:
    reports = communicator["ranks"]
    operations = {name for each in reports for name in each["collective_counts"]}
    lags: dict[int, list[str]] = {}
    for name in sorted(operations):
        counts = {each["rank"]: each["collective_counts"].get(name, 0) for each in reports}
        most = max(counts.values())
        for rank, count in counts.items():
            if count < most:
                lags.setdefault(rank, []).append(
                    f"rank {rank} has called {count:,} {name}, others {most:,}"
                )
    if not lags:
        return
    ranks = tuple(sorted(lags))
    where = [_where(each) for each in reports if each["rank"] in lags]
    yield TraceFinding(
        kind="missing-call",
        ranks=ranks,
        cost=NOT_PER_STEP,
        summary=(
            f"{ranks_named(ranks)} of {_title(communicator)} "
            f"{'has' if len(ranks) == 1 else 'have'} called fewer collectives than the others"
        ),
        evidence=(*(text for rank in ranks[:8] for text in lags[rank]), *where[:8]),
        remedy=(
            "query NCCL's RAS again after some seconds: in a running job the counts change; "
            f"if they do not, check the stack (py-spy dump) of {ranks_named(ranks)}"
        ),
        confidence="medium",
    )
