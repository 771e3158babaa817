"""What numbers are called, and the one definition that each has on every page."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hvdtune.timeline.model.schema import COLLECTIVES
from hvdtune.timeline.model.trace import Trace


@dataclass(frozen=True)
class Quantity:
    """A number with a name.

    Attributes:
        title: what it is called.
        unit: of its value.
        definition: what it is, in sentences.
        column: of `metrics.breakdown`, whose mean over steps and ranks it is; "": of none.
    """

    title: str
    unit: str
    definition: str
    column: str = ""


QUANTITIES: Mapping[str, Quantity] = {
    "step-time": Quantity(
        "Step time",
        "ms",
        "Duration of a step: mean over all ranks and over all steps that every rank has, except "
        "the first ones. A step ends with its last wait for operations, where ranks "
        "synchronize, or at the script's mark if steps are not consecutive. Horovod's timelines "
        "have no marks; there it lasts from the first announcement of recurring tensors to the "
        "next one.",
        "step_ms",
    ),
    "busy-time": Quantity(
        "Busy time",
        "ms per step",
        "Time of a step in which a rank does not wait for communication: step time minus "
        "waiting. The busiest rank sets the length of the step.",
        "busy_ms",
    ),
    "waiting": Quantity(
        "Waiting for communication",
        "ms per step",
        "Time in which the script waits for operations: the sum of waiting for ranks, for "
        "negotiation and for buckets. If a trace does not record waits, a script is assumed to "
        "wait from its last announcement in a step to the end of its last collective. For "
        "operations on a GPU it is the time in which the stream of the script's work only waits "
        "for them. If the kernels of every rank's GPU were recorded, it is the time in which a "
        "GPU communicates without computing, or its script waits.",
        "blocked_ms",
    ),
    "waiting-for-ranks": Quantity(
        "Waiting for ranks",
        "ms per step",
        "Part of waiting in which no bucket is in progress and some ranks have not announced "
        "what this rank has announced. If a rank waits for several ranks at once, the time counts "
        "for the one that it waits for longest. Unknown if some ranks of the job are missing from "
        "the trace.",
        "wait_ms",
    ),
    "waiting-for-negotiation": Quantity(
        "Waiting for negotiation",
        "ms per step",
        "Part of waiting in which all ranks have announced and no bucket is in progress yet. "
        "Only hvdtune and Horovod record it: collectives of other programs are in progress once "
        "they have begun on all ranks.",
        "negotiate_ms",
    ),
    "exposed": Quantity(
        "Waiting for buckets",
        "ms per step",
        "Part of waiting in which a bucket is in progress: communication that no computing "
        "hides. If GPU streams wait, early ranks wait for the others here: all ranks have "
        "announced, and the bucket is in progress. In traces of other programs it is known only "
        "if all ranks of the job are in the trace; there a collective is in progress from its "
        "begin on the last rank.",
        "exposed_ms",
    ),
    "communicating": Quantity(
        "Communicating",
        "% of step time",
        "Share of step time in which a bucket is in progress, hidden by computing or not.",
    ),
    "lost-processor-time": Quantity(
        "Without a processor",
        "ms per step",
        "Time of a step in which the script's thread could run but had no processor, as counted "
        "by Linux's scheduler. Traces of other programs do not record it.",
        "no_processor_ms",
    ),
    "share": Quantity(
        "Share of a step",
        "%",
        "A time per step as a percentage of step time; used for findings and for the parts of a "
        "step.",
    ),
    "rank-cost": Quantity(
        "Cost of a rank",
        "ms per step",
        "Reduction of step time (mean) if the rank were busy no longer than the "
        "next one; at most the time that every other rank waits for ranks. Its main cause is "
        "the part of busy time with the largest excess over the next rank; the share of the cost "
        "due to that part is shown. A finding about the rank counts only its own cause.",
    ),
    "finding-cost": Quantity(
        "Cost of a finding",
        "ms per step",
        "Reduction of step time (mean) without the cause of the finding, with a "
        "95 % interval over steps. For a slow rank it is the excess in its typical step, "
        "without the named parts of busy time, but including processor time that the rank lacks "
        "because it computes longer. Costs do not add up: each is the gain from removing this "
        "cause alone.",
    ),
    "noise-floor": Quantity(
        "A/A noise floor",
        "%",
        "95 % bound on the mean difference over N pairs of the default against itself. It "
        "shrinks as N grows, so N is shown next to it.",
    ),
    "slices": Quantity(
        "Slices",
        "count",
        "Contents of a trace: slices with a begin and an end, instants, counter values and "
        "arrow ends. A begin and its end count as one slice; titles of processes and threads do "
        "not count. It is the number of rows of the table `slices`.",
    ),
    "slices-drawn": Quantity(
        "Slices drawn",
        "count",
        "Slices that the lanes of a timeline show in the visible range. Not drawn as slices: "
        "steps, cycles and settings (marks above the lanes), tensors, parts of a bucket except "
        "its copies (the bucket is drawn), clock measurements, counters (curves) and arrows. "
        "Inferred slices count, too: the computing left in a step, and the unnamed time in "
        "traces of other programs.",
    ),
    "events": Quantity(
        "Events",
        "count",
        "Slices of hvdtune's kinds, such as steps, announcements, buckets and collectives, "
        "including those derived from others, such as the announcements in a recording of "
        "torch.profiler. It is the number of rows of the table `events`, and 0 if the program "
        "is unknown.",
    ),
    "tensors": Quantity(
        "Tensors",
        "count",
        "Number of different names of collectives in the trace: reduced gradients, parameters "
        "broadcast before the first step, and everything else that a script communicates. A "
        "tensor `weight+2` packs the small gradients of `weight` and two more, and counts once. "
        "hvdtune's own `layouts.weight`, used by ranks to exchange which gradients are sparse, "
        "counts, too.",
    ),
}


def measure(steps: pd.DataFrame) -> dict[str, float]:
    """The quantities of steps that have a number of their own; NaN: the trace does not tell.

    Args:
        steps: of `breakdown.steady_steps`.
    """
    known = {key: each for key, each in QUANTITIES.items() if each.column}
    if steps.empty:
        return dict.fromkeys([*known, "communicating"], np.nan)
    steps = steps.assign(busy_ms=steps["step_ms"] - steps["blocked_ms"])
    values = {key: float(steps[each.column].mean()) for key, each in known.items()}
    total = float(steps["step_ms"].sum())
    values["communicating"] = 100 * float(steps["communicate_ms"].sum(min_count=1)) / total
    return values


def counts_of(trace: Trace) -> dict[str, float]:
    """The quantities of a trace that are counts; NaN: the trace does not tell."""
    events = trace.events
    are_named = len(events) > 0 and not trace.meta.get("unnamed_tensors")
    names = events["name"][events["kind"].isin(COLLECTIVES)]
    return {
        "slices": trace.slice_count,
        "events": len(events),
        "tensors": names.nunique() if are_named else math.nan,
    }


def in_words(key: str, value: float) -> str:
    """A value with its unit, or that it is not known."""
    if np.isnan(value):
        return "not known"
    unit = QUANTITIES[key].unit
    if unit.startswith("%"):
        return f"{value:.0f} %"
    if unit == "count":
        return f"{value:,.0f}"
    return f"{value:,.2f} ms"


def page() -> str:
    """`docs/quantities.md`."""
    rows = "\n".join(
        f'| <a id="{key}"></a>{each.title} | {each.unit} | {each.definition} |'
        for key, each in QUANTITIES.items()
    )
    return f"""# What numbers mean

Every number about steps and every count about a trace has one definition, on every page of the
dashboard and in every command. This page and the dashboard's page of definitions are made
from `hvdtune/timeline/analysis/quantities.py`. A quantity that the trace does not record is "not
known", not 0.

| quantity | unit | definition |
|---|---|---|
{rows}
"""
