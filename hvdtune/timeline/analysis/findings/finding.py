"""What a finding is, and what it is made from."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.analysis.metrics import breakdown, stragglers
from hvdtune.timeline.analysis.recorded import is_recorded
from hvdtune.timeline.analysis.replay import (
    CostModel,
    Rules,
    Step,
    exposed_ms,
    fit_costs,
    steps_of,
)
from hvdtune.timeline.model.job_metadata import JobMetadata
from hvdtune.timeline.model.trace import Trace

Confidence = Literal["high", "medium", "low"]

# What ranks do between collectives, and what communication does.
OF_RANKS = frozenset(
    {
        "slow-compute",
        "slow-elsewhere",
        "slow-input",
        "gc-pauses",
        "checkpoint-pauses",
        "pauses",
        "oversubscribed",
        "late-rank",
    }
)
# What hangs, by what ranks said of their collectives: it costs no time per step.
OF_HANGS = frozenset(
    {
        "different-collectives",
        "missing-call",
        "incomplete-collective",
        "rank-gone",
        "communicator-error",
    }
)
# What a model of communication says of the steps with another setting or another network.
BY_MODEL = frozenset(
    {
        "tiny-buckets",
        "small-ddp-buckets",
        "long-cycle",
        "cold-cache",
        "different-order",
        "huge-late-tensor",
        "copy-bound",
        "slow-link",
        "hierarchy-off",
        "channels",
        "network",
    }
)
KINDS = OF_RANKS | OF_HANGS | BY_MODEL | {"exposed-communication", "idle-gpus"}
_MODEL = "computed with a model of communication"

# What a script can do about bytes: with hvdtune's own optimizers, DDP, FSDP2.
SEND_LESS = (
    "send less (hvd.Compression.fp16, fp16_compress_hook of DDP, MixedPrecisionPolicy of FSDP2)"
)
LESS_OFTEN = "less often (backward_passes_per_step, no_sync of DDP)"

# A finding below both is not worth a line.
MIN_PERCENT = 2.0
MIN_STEPS = 3
FEW_STEPS = 8  # with less of them nothing is sure

MOST_BLOCKS = 10  # of steps, whose means an interval is made from
# Student's t at 97.5 %, for 1 degree of freedom and more. Importing SciPy takes longer than to
# answer for a small trace.
T_975 = (
    12.706204736,
    4.302652730,
    3.182446305,
    2.776445105,
    2.570581836,
    2.446911851,
    2.364624252,
    2.306004135,
    2.262157163,
)

MAX_REPLAYED = 60  # steps played again; more of them say little more


@dataclass(frozen=True)
class StepCost:
    """The time by which steps would be shorter.

    Attributes:
        mean: ms per step.
        low, high: its 95 % interval over steps, which does not hold what a model gets wrong.
        percent: the mean, of a step.
    """

    mean: float
    low: float
    high: float
    percent: float

    @property
    def is_known(self) -> bool:
        """Whether it can be told at all: a job that hangs has no steps that could be shorter."""
        return not np.isnan(self.mean)

    @property
    def matters(self) -> bool:
        return self.percent >= MIN_PERCENT and self.low > 0


NOT_PER_STEP = StepCost(np.nan, np.nan, np.nan, np.nan)


@dataclass(frozen=True)
class TraceFinding:
    """One thing that costs time.

    Attributes:
        kind: what it is, one of `KINDS`.
        ranks: who causes it; empty: no rank does.
        cost: by how much a step would be shorter without it; `NOT_PER_STEP` where nothing moves.
        summary: one sentence.
        evidence: what was seen, one sentence each.
        remedy: what to do, a knob with its value or a place to look.
        knob: the knob of the remedy, "" if it has none.
        confidence: "high": seen directly; "medium": computed with a model of communication, or
            likely and not certain; "low": the trace leaves room for other causes, which the
            evidence names.
    """

    kind: str
    ranks: tuple[int, ...]
    cost: StepCost
    summary: str
    evidence: tuple[str, ...]
    remedy: str
    knob: str = ""
    confidence: Confidence = "high"

    @property
    def basis(self) -> str:
        """How it is known, which its confidence follows from."""
        if self.confidence == "medium":
            by_model = self.kind in BY_MODEL
            return _MODEL if by_model else "likely, but not certain"
        return "seen directly" if self.confidence == "high" else "other causes are possible"

    @property
    def why_no_cost(self) -> str:
        """Why no cost is known."""
        hangs = self.kind in OF_HANGS
        return "the job hangs" if hangs else "no time per step: steps are not recorded"

    def row(self) -> dict[str, Any]:
        """For JSON."""
        cost = self.cost
        known = cost.is_known
        return {
            "kind": self.kind,
            "ranks": list(self.ranks),
            "cost_ms_per_step": round(cost.mean, 4) if known else None,
            "interval_ms_per_step": [round(cost.low, 4), round(cost.high, 4)] if known else None,
            "percent": round(cost.percent, 2) if known else None,
            "finding": self.summary,
            "evidence": list(self.evidence),
            "remedy": self.remedy,
            "knob": self.knob,
            "sure": self.confidence,
        }


@dataclass(frozen=True)
class TraceEvidence:
    """A trace as the rules of findings see it; what several of them need is computed once.

    Attributes:
        events: see `schema.Trace`.
        job: what is known of the job.
        steps: `metrics.breakdown`'s table, from wait to wait, without the first steps.
        knows_negotiation: whether the time of negotiation was recorded.
        phases_ms: what `buckets.exposed_phase_ms` has computed.
    """

    events: pd.DataFrame
    job: JobMetadata
    steps: pd.DataFrame = field(repr=False)
    knows_negotiation: bool = True
    phases_ms: dict[tuple[str, ...], NDArray[np.float64]] = field(
        default_factory=dict, init=False, repr=False
    )

    @classmethod
    def of(
        cls, trace: Trace, job: JobMetadata, steps: pd.DataFrame | None = None
    ) -> "TraceEvidence":
        """`steps`, if `breakdown.steady_steps` has been asked for already."""
        steps = breakdown.steady_steps(trace) if steps is None else steps
        return cls(trace.events, job, steps, is_recorded(trace, "negotiation"))

    @property
    def sees_gpus(self) -> bool:
        """Whether the GPUs of all ranks were recorded."""
        return breakdown.sees_gpus(self.steps)

    @cached_property
    def is_of_streams(self) -> bool:
        """Whether it was GPUs' streams that waited, and nothing else of GPUs was recorded."""
        return breakdown.is_only_of_streams(self.events, self.steps)

    @cached_property
    def busy(self) -> pd.DataFrame:
        return stragglers.busy_times(self.steps)

    @cached_property
    def step_ms(self) -> float:
        """Mean duration of a step."""
        return float(self.steps["step_ms"].mean())

    @cached_property
    def blocked(self) -> NDArray[np.float64]:
        """The time of each step that even its slowest rank waited: nothing hides it."""
        result: NDArray[np.float64] = stragglers.part(self.steps, "blocked_ms").min(axis=1)
        return result

    @cached_property
    def replayed(self) -> list[Step]:
        numbers = self.busy.index.to_numpy()
        chosen = numbers[:: max(1, len(numbers) // MAX_REPLAYED)]
        return steps_of(self.events, chosen.tolist())

    @cached_property
    def costs(self) -> CostModel:
        return fit_costs(self.events)

    def saved(
        self,
        steps: Sequence[Step],
        other: Rules | None = None,
        changed: Sequence[Step] = (),
        costs: CostModel | None = None,
    ) -> StepCost:
        """The time that `steps` would save under other rules or costs, or being as `changed`.

        The model says which share of the exposed communication would go; how much there is was
        measured.
        """
        if self.rules is None or not steps:
            return cost_of([], self.step_ms)
        now = exposed_ms(steps, self.rules, self.costs)
        then = [
            replace(after, waits_ms=step.own_ms)  # what ranks do themselves stays
            for step, after in zip(steps, changed or steps, strict=True)
        ]
        saved = now - exposed_ms(then, other or self.rules, costs or self.costs)
        scale = float(self.blocked.mean() / now.mean()) if now.mean() > 0 else 1.0
        most = float(self.blocked.mean())
        saved = saved * min(max(scale, 0.5), 2.0)
        mean = float(saved.mean())
        return cost_of(saved * (most / mean) if mean > most > 0 else saved, self.step_ms)

    def saved_by_shorter(self, share: float) -> StepCost:
        """The time that steps would save if every bucket took this share less of its time.

        Where computing hides a part of communication, what goes first is the part that it does not
        hide. Without the settings, which the model needs, both parts are taken to go alike.
        """
        if self.rules is None:
            return cost_of(self.blocked * share, self.step_ms)
        return self.saved(self.replayed, costs=self.costs.shorter(share))

    @cached_property
    def rules(self) -> Rules | None:
        """None where the trace does not say under which setting it was recorded."""
        setting = self.job.setting
        cycle, threshold = setting.get("cycle_time_ms"), setting.get("fusion_threshold_bytes")
        if not isinstance(cycle, int | float) or not isinstance(threshold, int | float):
            return None
        return Rules(float(cycle), float(threshold))

    def part(self, column: str) -> NDArray[np.float64]:
        """A column of the breakdown: a row per step, a column per rank of `busy`."""
        return stragglers.part(self.steps, column)


def cost_of_pauses(saved: Sequence[float] | NDArray[np.float64], step_ms: float) -> StepCost:
    """Cost of pauses in a few steps; the interval is over how many of them could have been there.

    Over steps their interval holds zero, however long they are: most steps have none. How many
    happen in as many steps is taken to be Poisson's, with its exact interval.

    Args:
        saved: ms, of each step in order.
        step_ms: what a step takes.
    """
    values = np.asarray(saved, np.float64)
    count = int((values > 0).sum())
    if count < 2:  # one could be chance
        return cost_of(values, step_ms)
    from scipy import special

    mean = float(values.mean())
    low = float(special.gammaincinv(count, 0.025)) / count
    high = float(special.gammaincinv(count + 1, 0.975)) / count
    return StepCost(mean, mean * low, mean * high, 100 * mean / step_ms if step_ms else 0.0)


def cost_of(saved: Sequence[float] | NDArray[np.float64], step_ms: float) -> StepCost:
    """Mean and interval of what each step saves, over blocks, since neighbouring steps are alike.

    Args:
        saved: ms, of each step in order.
        step_ms: what a step takes.
    """
    values = np.asarray(saved, np.float64)
    if len(values) == 0:
        return StepCost(0.0, 0.0, 0.0, 0.0)
    mean = float(values.mean())
    blocks = np.array(
        [part.mean() for part in np.array_split(values, min(len(values), MOST_BLOCKS))]
    )
    half = 0.0
    if len(blocks) > 1:
        error = float(blocks.std(ddof=1)) / np.sqrt(len(blocks))
        half = T_975[len(blocks) - 2] * error
    return StepCost(mean, mean - half, mean + half, 100 * mean / step_ms if step_ms else 0.0)
