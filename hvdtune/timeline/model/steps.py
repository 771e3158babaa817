"""Cuts a trace to some of its steps, or of its time."""

import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.model.trace import Trace


def common_steps(trace: Trace) -> list[int]:
    """The steps that every rank of the trace has recorded, in order."""
    steps = trace.events[trace.events["kind"] == "STEP"]
    ranks = trace.events["rank"].nunique()
    recorded = steps.groupby("seq")["rank"].nunique()
    return [int(step) for step in recorded.index[recorded == ranks]]


def cut_to_steps(trace: Trace, first: int, end: int) -> Trace:
    """The trace from the first rank's begin of step `first` to the last one's end of `end` - 1.

    Settings adopted before stay, as do the clocks. The trace is empty where it has no such step.

    Example:
        >>> steps = common_steps(trace)  # doctest: +SKIP
        >>> cut_to_steps(trace, steps[0], steps[0] + 20)  # doctest: +SKIP
    """
    events = trace.events
    is_step = (events["kind"] == "STEP").to_numpy()
    wanted = is_step & events["seq"].between(first, end - 1).to_numpy()
    begin, stop = events["begin_ns"].to_numpy(), events["end_ns"].to_numpy()
    if not wanted.any():
        return _only(trace, wanted)
    since, until = begin[wanted].min(), stop[wanted].max()
    inside = (stop >= since) & (begin < until) & (~is_step | wanted)
    return _only(trace, inside | _adopted_before(trace, until))


def cut_before(trace: Trace, since_ns: int) -> Trace:
    """The trace without steps and other events that began before `since_ns` of its clock.

    Settings adopted before stay.
    """
    later = trace.events["begin_ns"].to_numpy() >= since_ns
    return _only(trace, later | _adopted_before(trace, since_ns))


def _adopted_before(trace: Trace, until_ns: int) -> NDArray[np.bool_]:
    events = trace.events
    adopted: NDArray[np.bool_] = (events["kind"] == "KNOB_ADOPTED").to_numpy()
    return adopted & (events["begin_ns"].to_numpy() < until_ns)


def _only(trace: Trace, wanted: NDArray[np.bool_]) -> Trace:
    return Trace(trace.events[wanted].reset_index(drop=True), trace.meta, trace.warnings)
