"""The rank that announces last, of a trace that says when ranks announced and has no steps."""

from hvdtune.plural import counted
from hvdtune.timeline.analysis.arrivals import Arrivals, late_ms, table
from hvdtune.timeline.analysis.findings.finding import TraceFinding, cost_of

MOST_STEPS = 75.0  # percent; ranks that are late by chance take turns


def find(arrivals: Arrivals) -> list[TraceFinding]:
    """The rank that is the last in most steps, if there is one."""
    worst = table(arrivals).iloc[0]
    rank = int(worst["rank"])
    cost = cost_of(late_ms(arrivals, rank), arrivals.step_ms)
    if worst["late_percent"] < MOST_STEPS or not cost.matters:
        return []
    steps = counted(len(arrivals.steps), "step")
    return [
        TraceFinding(
            kind="late-rank",
            ranks=(rank,),
            cost=cost,
            summary=f"rank {rank} announces its tensors after the other ranks",
            evidence=(
                f"it is last in {worst['late_percent']:.0f} % of {steps}",
                f"it announces {int(worst['operations']):,} of {len(arrivals.known):,} operations "
                f"last, {worst['late_ms']:.2f} ms (median) after the second-to-last rank",
            ),
            remedy=(
                f"find out what rank {rank} does before it announces: record the job with "
                "torch.profiler, or with hvdtune, which separates computing, input and waiting"
            ),
        )
    ]
