"""Profiles of GPUs by nsys and rocprofv3: kernels, copies, calls, and what scripts marked."""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.slices import kind_column
from hvdtune.timeline.model.trace import InferEvents
from hvdtune.timeline.reading.formats import kineto
from hvdtune.timeline.reading.formats.frame import kinds_of_frame
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.sqlite import nsys, rocpd

# As scripts call their steps: torch's own, and "step 12", "iteration_12", "train_step#12".
_STEP: Final = re.compile(
    r"(?:ProfilerStep|\w*step|iteration|iter)[ _:#=-]?([0-9]{1,15})", re.IGNORECASE
)
_CATEGORIES: Final = {"kernel": "COMPUTE", "gpu_memcpy": "COPY", "gpu_memset": "COPY"}


@dataclass
class GpuProfile:
    """One of the profilers; see `detection.Format`."""

    NAME: str
    NAMES_TENSORS: bool = False
    GAP: str = ""

    def recognizes(self, parsed: ParsedFile) -> bool:
        """Whether it wrote the file."""
        return isinstance(parsed.around.get(self.NAME), dict)

    def finish(self, frame: pd.DataFrame, parsed: ParsedFile) -> dict[int, dict[str, Any]]:
        """Fills in what the format means; what is known of the ranks."""
        code = kinds_of_frame(frame, self.kind)
        frame["kind"] = kind_column(code)
        ranks = np.array([*self.rank_of_track(parsed), -1], np.int32)
        frame["rank"] = ranks[parsed.table["track"].to_numpy()]
        kineto.number_steps(frame, code, _STEP)
        kineto.describe_collectives(frame, code, _streams(frame))
        host = self._said(parsed).get("host")
        known = {"host": host} if isinstance(host, str) else {}
        return dict.fromkeys(sorted({*frame["rank"].unique().tolist()}), known)

    def kind(self, name: str, category: str) -> str:
        """The kind of events of a name and a category; see `slices.KIND_TEXTS`."""
        if category == "nvtx":
            return "STEP" if _STEP.fullmatch(name) else ""
        collective = kineto.COLLECTIVE.match(name) if category == "kernel" else None
        return kineto.collective_kind(collective) or _CATEGORIES.get(category, "")

    def rank_of_track(self, parsed: ParsedFile) -> list[int]:
        """As the file says of the processes."""
        ranks = self._said(parsed).get("ranks")
        told = ranks if isinstance(ranks, dict) else {}
        found = [told.get(pid.partition(" ")[0], -1) for pid in parsed.tracks.pid]
        return [rank if isinstance(rank, int) and 0 <= rank < 2**31 else -1 for rank in found]

    def origin_unix_ns(self, parsed: ParsedFile) -> int | None:
        """The file's time 0 in ns since 1970."""
        origin = self._said(parsed).get("origin_unix_ns")
        return origin if isinstance(origin, int) and 0 < origin < 2**61 else None

    @property
    def infer_events(self) -> InferEvents:
        """Collectives announce nothing, as torch.profiler's."""
        return kineto.infer_events

    def _said(self, parsed: ParsedFile) -> dict[str, Any]:
        said = parsed.around.get(self.NAME)
        return said if isinstance(said, dict) else {}


def _streams(frame: pd.DataFrame) -> NDArray[np.int64]:
    """The device and stream of each row as a number; frames of several processes have several."""
    pid, tid = (frame[key].cat.codes.to_numpy().astype(np.int64) for key in ("pid", "tid"))
    return pid << 32 | tid


NSYS = GpuProfile(nsys.KEY)
ROCPD = GpuProfile(rocpd.KEY)
