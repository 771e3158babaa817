"""Communication that GPUs carry out while they compute nothing.

The host does not wait for it, so what the script waits for does not show it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from hvdtune.timeline.analysis.findings.exposed import MUCH_PERCENT, much
from hvdtune.timeline.analysis.findings.finding import (
    OF_RANKS,
    TraceEvidence,
    TraceFinding,
    cost_of,
)
from hvdtune.timeline.analysis.metrics import breakdown, gpu, stragglers
from hvdtune.timeline.model.intervals import covered_within
from hvdtune.timeline.model.trace import Trace


def find(
    trace: Trace, evidence: TraceEvidence, found: Sequence[TraceFinding]
) -> Iterator[TraceFinding]:
    """Find at most one, if no other finding is about communication."""
    if any(row.kind not in OF_RANKS for row in found):
        return
    spans = gpu.spans_of_all(trace, evidence.steps["rank"].unique().tolist())
    if spans is None:
        return
    steps = pd.concat(
        own.assign(alone_ms=_alone_ms(spans[rank], own))
        for rank, own in breakdown.of_each_rank(evidence.steps)
    )
    alone = stragglers.part(steps, "alone_ms")
    cost = cost_of(alone.min(axis=1), evidence.step_ms)
    if not cost.matters or cost.percent < MUCH_PERCENT:
        return
    yield TraceFinding(
        kind="exposed-communication",
        ranks=(),
        cost=cost,
        summary="the GPUs of all ranks carry out communication that no computing hides",
        evidence=(
            "counted on the GPU on which kernels of NCCL run alone least in each step",
            f"the mean of all GPUs is {alone.mean():.2f} ms, "
            f"{100 * alone.mean() / evidence.step_ms:.0f} % of a step",
            "the script waits for less of it, since what it launches is carried out later",
        ),
        remedy=much(evidence),
    )


def _alone_ms(spans: gpu.DeviceSpans, steps: pd.DataFrame) -> np.ndarray:
    """How long in each step communication runs and nothing computes."""
    first, last = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
    both = tuple(np.concatenate([spans.computing[k], spans.sending[k]]) for k in (0, 1))
    computing = covered_within(*spans.computing, first, last)
    result: np.ndarray = (covered_within(both[0], both[1], first, last) - computing) / 1e6
    return result
