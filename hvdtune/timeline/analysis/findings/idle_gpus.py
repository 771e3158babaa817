"""GPUs that have nothing to do in a part of every step, on all ranks, beside communication."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from hvdtune.timeline.analysis import device_spans
from hvdtune.timeline.analysis.findings.finding import (
    OF_RANKS,
    TraceEvidence,
    TraceFinding,
    cost_of,
)
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.model.trace import Trace

MUCH_PERCENT = 20.0  # of a step
# A GPU that is idle for less than this after each kernel waits for the next one to be launched,
# which takes the longer the more a profiler records of it.
_LAUNCH_MS = 0.1

_LAUNCHES = (
    "launch less often: torch.compile, CUDA graphs (hvd.CUDAGraph can contain collectives), a "
    "foreach or fused optimizer, a larger batch"
)
_HOST = (
    "find what the host does or waits for meanwhile: batches (more DataLoader workers, "
    "pin_memory and non_blocking copies), .item() and .cpu() in every step, logging; "
    "put hvd.span(...) around it"
)


def find(
    trace: Trace, evidence: TraceEvidence, found: Sequence[TraceFinding]
) -> Iterator[TraceFinding]:
    """Find at most one, unless what makes a rank late is as much."""
    spans = device_spans.of_all(trace)
    if spans is None:
        return
    idle = evidence.part("idle_ms")
    cost = cost_of(idle.min(axis=1), evidence.step_ms)
    late_ms = sum(row.cost.mean for row in found if row.kind in OF_RANKS)
    if not cost.matters or cost.percent < MUCH_PERCENT or cost.mean < 2 * late_ms:
        return
    kernels = _kernels_per_step(spans, evidence.steps)
    waits_for_launches = idle.mean() < _LAUNCH_MS * kernels
    each_ms = idle.mean() / max(kernels, 1.0)
    each = f"{each_ms:.1f} ms" if each_ms >= 1 else f"{1000 * each_ms:.0f} us"
    yield TraceFinding(
        kind="idle-gpus",
        ranks=(),
        cost=cost,
        summary="every rank leaves its GPU idle without communicating: "
        + (
            "each kernel ends before the next one is launched"
            if waits_for_launches
            else "the GPU waits for its host"
        ),
        evidence=(
            "counted on the least idle GPU of each step; the mean of all GPUs is "
            f"{idle.mean():.2f} ms, {100 * idle.mean() / evidence.step_ms:.0f} % of a step",
            f"a GPU runs {kernels:,.0f} kernels and copies per step, and is idle {each} per kernel",
            "the profiler itself makes each launch slower",
        ),
        remedy=_LAUNCHES if waits_for_launches else _HOST,
    )


def _kernels_per_step(spans: dict[int, device_spans.DeviceSpans], steps: pd.DataFrame) -> float:
    """How many kernels and copies begin in a step, the mean of all ranks."""
    counts = []
    for rank, own in breakdown.of_each_rank(steps):
        begin = np.sort(spans[rank].busy[0])
        windows = own["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
        first, last = (np.searchsorted(begin, at) for at in windows)
        counts.append(last - first)
    return float(np.concatenate(counts).mean())
