"""What a reader makes of one file."""

from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from hvdtune.timeline.model.slices import File


@dataclass
class FileSlices:
    """One file, or the files that one job of hvdtune's left.

    Attributes:
        frame: the model's columns but `file`, times as in the file, rows in any order.
        origin_unix_ns: the file's time 0.
        ranks: as in `Trace`.
        meta: what else is known of the trace; see `Trace.meta`.
    """

    file: File
    frame: pd.DataFrame
    origin_unix_ns: int | None
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
