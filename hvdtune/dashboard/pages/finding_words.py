"""How pages tell what a finding costs and how sure it is."""

from hvdtune.plural import capitalized
from hvdtune.timeline.analysis.findings import TraceFinding


def costs(found: TraceFinding) -> str:
    """What it costs, or why that is not known."""
    cost = found.cost
    if not cost.is_known:
        return capitalized(found.why_no_cost)
    return (
        f"{cost.mean:.2f} ms per step ({cost.percent:.0f} %; 95 % interval {cost.low:.2f} to "
        f"{cost.high:.2f})"
    )


def sure(found: TraceFinding) -> str:
    """How it is known."""
    return found.basis
