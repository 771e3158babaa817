"""When the GPUs of ranks run kernels that compute, kernels that communicate, and copies."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hvdtune.timeline.model.intervals import joined
from hvdtune.timeline.model.other_slices import OtherSlices
from hvdtune.timeline.model.schema import COLLECTIVES, Spans
from hvdtune.timeline.model.trace import Trace

_COPIES = ("gpu_memcpy", "gpu_memset")
_CATEGORIES = ("kernel", *_COPIES)


@dataclass(frozen=True)
class DeviceSpans:
    """When a rank's GPU runs what: begins and ends in ns, which may overlap.

    Attributes:
        computing: kernels that compute.
        sending: kernels of NCCL's, in which ranks also wait for each other.
        copying: copies.
    """

    computing: Spans
    sending: Spans
    copying: Spans

    @property
    def busy(self) -> Spans:
        """When it runs any of them."""
        return joined(self.computing, self.sending, self.copying)


def by_rank(trace: Trace) -> dict[int, DeviceSpans]:
    """Of each rank whose GPU was recorded."""
    return {
        rank: spans
        for others, rows in device_rows(trace)
        for rank, spans in _of(trace, others, rows)
    }


def of_all(trace: Trace) -> dict[int, DeviceSpans] | None:
    """By rank; None unless the GPU of every rank that has steps was recorded.

    Where it was, what GPUs ran says what of communication computing hides, and not when the script
    waited: it may launch what it computes and what it sends long before the GPU runs it.
    """
    spans = by_rank(trace)
    if not spans:
        return None
    events = trace.events
    ranks = set(events.loc[(events["kind"] == "STEP").to_numpy(), "rank"].unique().tolist())
    return spans if ranks and ranks <= spans.keys() else None


def device_rows(trace: Trace) -> Iterator[tuple[OtherSlices, np.ndarray]]:
    """The slices of devices, if there are any."""
    if trace.parsed is not None and not _has_devices(trace.parsed["category"]):
        return  # before all slices are sorted
    others = trace.others
    if others is None or not _has_devices(others.rows["category"]):
        return
    category = others.rows["category"]
    wanted = [text in _CATEGORIES for text in category.cat.categories]
    rows = np.flatnonzero(np.array([*wanted, False])[category.cat.codes.to_numpy()])
    if len(rows):
        yield others, rows


def _has_devices(category: pd.Series) -> bool:
    return bool(category.cat.categories.isin(_CATEGORIES).any())


def _of(trace: Trace, others: OtherSlices, rows: np.ndarray) -> Iterator[tuple[int, DeviceSpans]]:
    events = trace.events
    collective = events["kind"].isin(COLLECTIVES).to_numpy()
    thread = np.searchsorted(others.starts, rows, side="right") - 1
    rank = others.threads["rank"].to_numpy()[thread]
    own = others.rows.iloc[rows]
    copy = own["category"].isin(_COPIES).to_numpy()
    names = own["name"].cat
    by_nccl = np.array([text.startswith("nccl") for text in names.categories])
    nccl = by_nccl[names.codes.to_numpy()] & ~copy
    begin, end = own["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
    for number in np.unique(rank).tolist():
        mine = rank == number
        of_nccl = "nccl" in str(trace.ranks.get(number, {}).get("backend", "nccl"))
        told = events[collective & (events["rank"] == number).to_numpy() & of_nccl]
        sent = (told["begin_ns"].to_numpy(), told["end_ns"].to_numpy())
        computing, sending, copying = (
            (begin[mine & which], end[mine & which]) for which in (~nccl & ~copy, nccl, copy)
        )
        yield number, DeviceSpans(computing, joined(sending, sent), copying)
