"""Where in the timeline a finding shows: a step, lanes of ranks, and what they did in it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hvdtune.dashboard.data import RunView
from hvdtune.timeline.analysis.findings import TraceFinding
from hvdtune.timeline.analysis.findings.finding import OF_RANKS
from hvdtune.timeline.analysis.metrics import stragglers

# Kind of a finding -> the column of the breakdown that it is about, and what a rank does meanwhile.
_ABOUT = {
    "oversubscribed": ("no_processor_ms", "is ready to run but has no processor"),
    "slow-input": ("input_ms", "waits for input"),
    "gc-pauses": ("gc_ms", "collects garbage"),
    "checkpoint-pauses": ("checkpoint_ms", "writes checkpoints"),
}
_PAUSES = {"pauses", "gc-pauses", "checkpoint-pauses"}
_BUSY = ("own_ms", "does not wait for operations")
_BLOCKED = ("blocked_ms", "waits for operations")
MOST_RANKS = 8  # of whom a sentence tells


@dataclass(frozen=True)
class Evidence:
    """What shows a finding.

    Attributes:
        step: the number of a typical step.
        first_ns, last_ns: from where to where it lasts, over all ranks.
        lane: the label of the lanes in which it shows.
        ranks: whose lanes.
        text: what ranks do in this step.
    """

    step: int
    first_ns: int
    last_ns: int
    lane: str
    ranks: Sequence[int]
    text: str


def evidence_of(run: RunView, found: TraceFinding, step: int | None = None) -> Evidence | None:
    """The evidence in a step, or in a typical one that shows it; None where there is none."""
    if not found.cost.is_known:
        return None
    of_ranks = found.kind in OF_RANKS
    column, does = _ABOUT.get(found.kind, _BUSY if of_ranks else _BLOCKED)
    steps = run.steps.assign(own_ms=run.steps["step_ms"] - run.steps["blocked_ms"])
    number = _typical(run, found) if step is None else step
    rows = steps[steps["step"] == number].sort_values(column, ascending=False)
    if rows.empty:
        return None
    ranks = found.ranks or (int(rows["rank"].iloc[0]),) if of_ranks else tuple(rows["rank"])
    each = [
        f"rank {rank} {'' if place else does + ' '}for {ms:.2f} of {lasts:.2f} ms"
        for place, (rank, ms, lasts) in enumerate(
            rows[["rank", column, "step_ms"]].head(MOST_RANKS).to_numpy(object)
        )
    ]
    more = f" and {len(rows) - MOST_RANKS} more ranks" if len(rows) > MOST_RANKS else ""
    when = " The time within the step is not recorded." if found.kind == "oversubscribed" else ""
    text = f"In step {number:,.0f}, {', '.join(each)}{more}.{when}"
    first, last = int(rows["begin_ns"].min()), int(rows["end_ns"].max())
    lane = "busy" if of_ranks else "wait"
    return Evidence(int(number), first, last, lane, tuple(int(rank) for rank in ranks), text)


def _typical(run: RunView, found: TraceFinding) -> int:
    """Of the steps that show it plainly, the one of median length."""
    # Where waits are not known, findings count all of a step as busy.
    own = stragglers.busy_times(run.steps.fillna({"blocked_ms": 0.0}))
    if found.kind in _ABOUT:
        values = stragglers.part(run.steps, _ABOUT[found.kind][0]).max(axis=1)
    elif found.kind in OF_RANKS:
        most = own[found.ranks[0]] if found.ranks else own.max(axis=1)
        values = (most - own.min(axis=1)).to_numpy()
    else:
        values = stragglers.part(run.steps, "blocked_ms").min(axis=1)
    shows = values > 0
    # Of what is in most steps half of the usual is plain; of pauses the very largest may be
    # something else.
    usual = 0.95 if found.kind in _PAUSES else 0.5
    plain = np.quantile(values[shows], usual) / 2 if shows.any() else 0.0
    lasts = run.step_spans["slowest_ms"].loc[own.index[values >= plain]]
    return int(lasts.sort_values(kind="stable").index[(len(lasts) - 1) // 2])
