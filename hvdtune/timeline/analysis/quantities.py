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
        "How long a step lasts: the mean over all ranks and all steps that every rank has, without "
        "the first ones. A step is cut where its last wait for operations ends, since ranks meet "
        "there, or where the script marks it if steps do not follow one another. In Horovod's "
        "timelines, which mark none, it lasts from the first announcement of tensors that recur to "
        "the same in the next.",
        "step_ms",
    ),
    "busy-time": Quantity(
        "Busy time",
        "ms per step",
        "The time of a step in which a rank does not wait for communication: step time without "
        "waiting. The rank that is busy longest sets the length of the step.",
        "busy_ms",
    ),
    "waiting": Quantity(
        "Waiting for communication",
        "ms per step",
        "The time in which the script waits for operations. It is the sum of waiting for ranks, "
        "waiting for negotiation and waiting for buckets. Where a trace does not record it, a "
        "script is taken to wait from its last announcement in a step to the end of its last "
        "collective. For operations on a GPU it is the time in which the stream of the script's "
        "work has nothing else to do until they are done. Where the kernels of every rank's GPU "
        "were recorded, it is the time in which a GPU computes nothing and communicates, or its "
        "script waits: what a script launches runs later.",
        "blocked_ms",
    ),
    "waiting-for-ranks": Quantity(
        "Waiting for ranks",
        "ms per step",
        "The part of waiting in which no bucket is under way and not all ranks have announced what "
        "this rank has. Who waits for whom shares it out: where a rank waits for several at once, "
        "the time counts for the one that it waits for longest. Where not all ranks of the job are "
        "in a trace, it is not known.",
        "wait_ms",
    ),
    "waiting-for-negotiation": Quantity(
        "Waiting for negotiation",
        "ms per step",
        "The part of waiting in which all ranks have announced and no bucket is under way yet. "
        "Programs other than hvdtune and Horovod do not record it: where their collectives have "
        "begun on all ranks, they are under way.",
        "negotiate_ms",
    ),
    "exposed": Quantity(
        "Waiting for buckets",
        "ms per step",
        "The part of waiting in which a bucket is under way: communication that no computing "
        "hides. Where it is the streams of GPUs that wait, those of ranks that are early wait for "
        "the others here: all ranks have announced, and the bucket is under way. Of traces of "
        "other programs it is known only where all ranks of the job are in them: there a "
        "collective is under way from its begin on the last rank.",
        "exposed_ms",
    ),
    "communicating": Quantity(
        "Communicating",
        "% of step time",
        "The share of step time in which a bucket is under way, hidden by computing or not.",
    ),
    "lost-processor-time": Quantity(
        "Without a processor",
        "ms per step",
        "The time of a step in which the script's thread could run and had no processor, as "
        "Linux's scheduler counts it. Traces of other programs do not record it.",
        "no_processor_ms",
    ),
    "share": Quantity(
        "Share of a step",
        "%",
        "A time per step, of the step time. The cost of a finding and the parts of a step are told "
        "so.",
    ),
    "rank-cost": Quantity(
        "Cost of a rank",
        "ms per step",
        "By how much steps would be shorter (mean) were the rank busy no longer than the next one, "
        "and no more than what every other rank waits for ranks. The part of busy time in "
        "which it exceeds the next one most is its main cause, with its part of the cost. A "
        "finding about the rank counts only what it names.",
    ),
    "finding-cost": Quantity(
        "Cost of a finding",
        "ms per step",
        "By how much steps would be shorter (mean) without what the finding names, with an "
        "interval of 95 % over steps. Of a rank that is slow it is what is so in a typical step, "
        "without parts of its busy time that have a name of their own, but with the processor time "
        "that it lacks because it computes for longer. Costs do not add up: each is what would be "
        "gained if it alone went.",
    ),
    "noise-floor": Quantity(
        "A/A noise floor",
        "%",
        "By how much the mean of so many pairs of the default against itself differs from 0 by "
        "chance. The more pairs, the lower it is, so their number stands beside it.",
    ),
    "slices": Quantity(
        "Slices",
        "count",
        "What a trace holds: slices with a begin and an end, instants, values of counters and ends "
        "of arrows. A begin and its end are one slice; titles of processes and threads are none. "
        "It is the number of rows of the table `slices`.",
    ),
    "slices-drawn": Quantity(
        "Slices drawn",
        "count",
        "What the lanes of a timeline show in the part of it that is in view. Without slices of "
        "their own are steps, cycles and settings (they are marks above the lanes), the tensors "
        "and the parts of a bucket but for its copies (the bucket is drawn), measurements of "
        "clocks, counters (curves) and arrows. Stretches that are inferred are counted, too: what "
        "of a step is left for computing, and what a trace of another program does not name.",
    ),
    "events": Quantity(
        "Events",
        "count",
        "What hvdtune understands of a trace: its slices of hvdtune's kinds, such as steps, "
        "announcements, buckets and collectives, with those that follow from others, such as the "
        "announcements of a recording of torch.profiler's. It is the number of rows of the table "
        "`events`, and 0 where hvdtune does not know the program.",
    ),
    "tensors": Quantity(
        "Tensors",
        "count",
        "How many different names collectives in the trace have: of gradients that are reduced, of "
        "parameters that are broadcast before the first step, of all else that a script "
        "communicates. A tensor `weight+2` holds several small gradients, that of `weight` and two "
        "more, packed into one, and counts once. `layouts.weight` is hvdtune's own and counts, "
        "too: with it ranks tell each other which gradients are sparse.",
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

Every number about steps, and every count of what a trace holds, has one definition, on every page
of the dashboard and in every command. This page and the dashboard's page of definitions are made
from `hvdtune/timeline/analysis/quantities.py`. What a trace does not tell is called not known, not
0.

| quantity | unit | definition |
|---|---|---|
{rows}
"""
