"""Puts the clocks of all ranks on rank 0's, from the round trips they measured.

`causality` then moves them so that no effect comes before its cause.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import Ints

MAX_DRIFT = 500e-6  # adjtimex(2) never slews faster; a steeper line is noise
MIN_SPAN_NS = 1_000_000_000  # over less time, drift is below what round trips can show
MIN_SAMPLES_FOR_DRIFT = 4


@dataclass(frozen=True)
class ClockFit:
    """How to turn times of a rank into rank 0's.

    Attributes:
        offset_ns: what to add at reference_ns, a time of this rank's clock.
        drift_ppm: by how much offset_ns grows, in ns per ms of this rank's time.
        residual_us: weighted root mean square distance of the measurements from the line.
        round_trip_us: the shortest one; the offset can be wrong by half of it at most.
        samples: measurements used. 0: the clocks were not measured.
        spread_ns: how far in time they are apart (weighted root mean square).
        is_exact: it is rank 0's own clock.
        violation_us: by how much some effect still comes before its cause, see `causality.align`.
    """

    offset_ns: int = 0
    reference_ns: int = 0
    drift_ppm: float = 0.0
    residual_us: float = 0.0
    round_trip_us: float = 0.0
    samples: int = 0
    spread_ns: float = 0.0
    is_exact: bool = False
    violation_us: float = 0.0

    def to_rank_0(self, at_ns: Ints) -> Ints:
        """Times on rank 0's clock, from times on this rank's."""
        if self.drift_ppm == 0.0:
            return at_ns + self.offset_ns
        elapsed = (at_ns - self.reference_ns).astype(np.float64)
        drift: Ints = np.rint(elapsed * (self.drift_ppm * 1e-6)).astype(np.int64)
        return at_ns + self.offset_ns + drift


def fit_clock(at_ns: Ints, offset_ns: Ints, round_trip_ns: Ints) -> ClockFit:
    """Fit a line through clock measurements, weighted towards short round trips.

    A reply is at worst delayed on one way only, so a measurement is wrong by at most half of what
    its round trip took longer than the shortest (as in NTP's clock filter, RFC 5905 section 10).

    Args:
        at_ns: when, on this rank's clock.
        offset_ns: what was to be added then.
        round_trip_ns: how long the measurement took.
    """
    if len(at_ns) == 0:
        return ClockFit()
    shortest = int(round_trip_ns.min())
    doubt = (round_trip_ns - shortest) / 2 + max(shortest / 8, 100.0)
    weight = 1.0 / doubt**2
    weight /= weight.sum()
    # Relative to the first, so that float64 holds them exactly.
    base_at, base_offset = int(at_ns[0]), int(offset_ns[0])
    x = (at_ns - base_at).astype(np.float64)
    y = (offset_ns - base_offset).astype(np.float64)
    center, level = float(weight @ x), float(weight @ y)
    slope = _slope(x - center, y - level, weight)
    residual = y - level - slope * (x - center)
    return ClockFit(
        offset_ns=base_offset + round(level),
        reference_ns=base_at + round(center),
        drift_ppm=slope * 1e6,
        residual_us=float(np.sqrt(weight @ residual**2)) / 1000,
        round_trip_us=shortest / 1000,
        samples=len(at_ns),
        spread_ns=float(np.sqrt(weight @ (x - center) ** 2)),
    )


def _slope(x: NDArray[np.float64], y: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    if len(x) < MIN_SAMPLES_FOR_DRIFT or float(np.ptp(x)) < MIN_SPAN_NS:
        return 0.0
    spread = float(weight @ x**2)
    slope = float(weight @ (x * y)) / spread if spread > 0 else 0.0
    return slope if abs(slope) <= MAX_DRIFT else 0.0


def clock_table(clocks: Mapping[int, Mapping[str, Any]]) -> pd.DataFrame:
    """One row per rank.

    Args:
        clocks: "clock" of `schema.Trace`'s meta.

    Returns:
        Columns rank, offset_ms, drift_ppm, residual_us, round_trip_us, samples, violation_us; see
        `ClockFit`.
    """
    shown = ("drift_ppm", "residual_us", "round_trip_us", "samples", "violation_us")
    rows = [
        {"rank": rank, "offset_ms": fit.get("offset_ns", 0) / 1e6}
        | {key: fit.get(key, 0) for key in shown}
        for rank, fit in sorted(clocks.items())
    ]
    return pd.DataFrame(rows, columns=["rank", "offset_ms", *shown])
