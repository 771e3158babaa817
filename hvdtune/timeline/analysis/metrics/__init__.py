"""One metric per file: `table` makes a DataFrame of one, `sentence` says what it shows.

To add one: a file with TITLE, `table` and `sentence`, and its name in `METRICS`.
"""

from collections.abc import Mapping
from types import ModuleType

from hvdtune.timeline.analysis.metrics import (
    bandwidth,
    breakdown,
    cache,
    critical_path,
    cycles,
    efficiency,
    fusion,
    overlap,
    queueing,
    stragglers,
    tensors,
)

METRICS: Mapping[str, ModuleType] = {
    "breakdown": breakdown,
    "efficiency": efficiency,
    "overlap": overlap,
    "critical_path": critical_path,
    "stragglers": stragglers,
    "tensors": tensors,
    "fusion": fusion,
    "bandwidth": bandwidth,
    "cycles": cycles,
    "queueing": queueing,
    "cache": cache,
}

__all__ = ["METRICS"]
