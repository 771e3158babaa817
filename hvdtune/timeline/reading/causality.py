"""What cannot have happened before what, across ranks, and clocks that respect it.

A response comes after the last rank's announcement, and an allreduce ends on no rank before it has
begun on every one. Round trips bound a clock by half of what they take; these pairs, of which there
are thousands, often bound it closer, and no trace should show an effect before its cause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import KIND_NAMES, KINDS, PROCESS_SET_UNIT
from hvdtune.timeline.reading.clock import ClockFit

MOST_ROUNDS = 60
# Times are rounded to whole ns, each by itself.
SAFE_NS, MARGIN_NS = 1.0, 3.0
_NEGOTIATE = KIND_NAMES.index("NEGOTIATE")
_NEEDS_ALL = [index for index, name in enumerate(KIND_NAMES) if KINDS[name].needs_all]

Columns = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]


def align(fits: Mapping[int, ClockFit], columns: Mapping[int, Columns]) -> dict[int, ClockFit]:
    """Move the clocks as little as makes every effect come after its cause.

    Little is measured in what each clock's round trips leave in doubt. Clocks known to be rank 0's
    own stay. A rank whose clock is no straight line keeps some effects before their causes;
    `ClockFit.violation_us` is by how much at most.

    Args:
        fits: of each rank, from its round trips.
        columns: of each rank, with its own times: kind, name, seq, bucket, arg, begin_ns, end_ns.
    """
    free = [rank for rank in sorted(fits) if rank != 0 and not fits[rank].is_exact]
    if not free:
        return dict(fits)
    ranks, places = _places([_links(rank, columns[rank]) for rank in sorted(fits)])
    if len(ranks) < 2:
        return dict(fits)
    clocks = _Clocks(fits, columns, ranks, places)
    cuts: set[_Cut] = set()
    change = np.zeros((len(clocks.ranks), 2))
    for _ in range(MOST_ROUNDS):
        worst = {cut for cut, lacks in clocks.worst(change) if lacks > -SAFE_NS}
        if worst <= cuts:
            break
        found = clocks.solve(sorted(cuts | worst), free)
        if found is None:
            break
        cuts |= worst
        change = found
    return clocks.fits_after(change)


@dataclass(frozen=True, order=True)
class _Cut:
    """A cause that has to come before an effect: rows of `_Clocks.local`, and their ranks."""

    key: int
    cause: int
    effect: int


class _Clocks:
    """Times of causes and effects by key and rank, and how they move with the clocks."""

    def __init__(
        self,
        fits: Mapping[int, ClockFit],
        columns: Mapping[int, Columns],
        ranks: list[int],
        places: NDArray[np.int32],
    ) -> None:
        self.fits = dict(fits)
        self.ranks = ranks
        self._shown, self._since = [], []
        origin = fits[self.ranks[0]].to_rank_0(columns[self.ranks[0]]["begin_ns"]).min()
        for side in ("cause_ns", "effect_ns"):
            shown, since = (np.full(places.shape, np.nan) for _ in range(2))
            for index, rank in enumerate(self.ranks):
                known = places[:, index] >= 0
                rows = places[known, index]
                own = columns[rank]["begin_ns"][rows]
                # Differences are taken before float64 would round them.
                shown[known, index] = fits[rank].to_rank_0(own) - origin
                since[known, index] = own - fits[rank].reference_ns
                if side == "effect_ns":  # an event keeps its duration
                    shown[known, index] += columns[rank]["end_ns"][rows] - own
            self._shown.append(shown)
            self._since.append(since)
        # What a clock may be wrong by, and over which time a tilt of the same size shows.
        self._doubt = np.array([_doubt_ns(fits[rank]) for rank in self.ranks])
        span = np.nanmax(self._since[1], axis=0) - np.nanmin(self._since[0], axis=0)
        spread = np.array([fits[rank].spread_ns for rank in self.ranks])
        self._scale = np.where(spread > 0, spread, np.maximum(10 * span, 1.0))

    def worst(self, change: Floats) -> list[tuple[_Cut, float]]:
        """For each rank's effects, the one that comes most before its cause, and by how much."""
        causes = self._shown[0] + change[:, 0] + change[:, 1] * self._since[0]
        found = []
        for index, (shift, tilt) in enumerate(change):
            own = causes[:, index].copy()
            causes[:, index] = np.nan
            effects = self._shown[1][:, index] + shift + tilt * self._since[1][:, index]
            with np.errstate(invalid="ignore"):
                lacks = np.fmax.reduce(causes, axis=1) - effects
            if not np.isnan(lacks).all():
                key = int(np.nanargmax(lacks))
                cut = _Cut(key, int(np.nanargmax(causes[key])), index)
                found.append((cut, float(lacks[key])))
            causes[:, index] = own
        return found

    def solve(self, cuts: list[_Cut], free: list[int]) -> Floats | None:
        """The least change within the cuts: (ranks, [shift in ns, tilt]); None: there is none."""
        columns = {rank: 2 * k for k, rank in enumerate(free)}
        matrix = np.zeros((len(cuts), 2 * len(free)))
        least = np.zeros(len(cuts))
        for row, cut in enumerate(cuts):
            least[row] = self._shown[0][cut.key, cut.cause] - self._shown[1][cut.key, cut.effect]
            for side, index, sign in ((1, cut.effect, 1.0), (0, cut.cause, -1.0)):
                if (at := columns.get(self.ranks[index])) is None:
                    continue
                tilt = self._since[side][cut.key, index] / self._scale[index]
                matrix[row, at : at + 2] += sign * self._doubt[index] * np.array([1.0, tilt])
        found = _least_distance(matrix, least + MARGIN_NS)
        if found is None:
            return None
        change = np.zeros((len(self.ranks), 2))
        for index, rank in enumerate(self.ranks):
            if (at := columns.get(rank)) is not None:
                shift, tilt = self._doubt[index] * found[at : at + 2]
                change[index] = shift, tilt / self._scale[index]
        return change

    def fits_after(self, change: Floats) -> dict[int, ClockFit]:
        left = {self.ranks[cut.effect]: lacks for cut, lacks in self.worst(change)}
        for index, rank in enumerate(self.ranks):
            fit = self.fits[rank]
            if rank == 0 or fit.is_exact:
                continue
            shift, tilt = change[index]
            self.fits[rank] = replace(
                fit,
                offset_ns=fit.offset_ns + round(float(shift)),
                drift_ppm=fit.drift_ppm + 1e6 * float(tilt),
                violation_us=max(left.get(rank, 0.0), 0.0) / 1000,
            )
        return self.fits


def _doubt_ns(fit: ClockFit) -> float:
    if fit.samples == 0:
        return 1e9
    return 1000 * max(fit.residual_us, fit.round_trip_us / 4, 1.0)


def _links(rank: int, columns: Columns) -> dict[str, NDArray[Any]]:
    """Rows of events that begin with a cause and end with an effect; other ranks share the key."""
    same = ["bucket", "name", "seq"]
    rows = pd.DataFrame({column: columns[column] for column in ("kind", *same)})
    asked = rows[rows["kind"] == _NEGOTIATE].drop(columns="kind")
    asked["process_set"] = columns["arg"][asked.index.to_numpy()] // PROCESS_SET_UNIT
    # A collective does not tell its process set, but its announcement does.
    done = rows[rows["kind"].isin(_NEEDS_ALL)].drop(columns="kind").reset_index(names="row")
    done = done.merge(asked.drop_duplicates(same), on=same)
    links = pd.concat(
        [
            asked.reset_index(names="row").assign(phase=0),
            done.assign(phase=1),
        ]
    )
    return {
        "rank": np.full(len(links), rank, np.int32),
        **{key: links[key].to_numpy(dtype) for key, dtype in _LINK.items()},
    }


# Of all ranks these are many: no column is wider than it must be.
_LINK = {
    "phase": np.int8,
    "process_set": np.int32,
    "name": np.int32,
    "seq": np.int64,
    "row": np.int32,
}
_KEY = ("phase", "process_set", "name", "seq")


def _places(parts: Sequence[dict[str, NDArray[Any]]]) -> tuple[list[int], NDArray[np.int32]]:
    """The ranks that have links, and for each key a row, for each of them a column.

    It has the first event of the key on this rank; -1: none. The parts' columns are taken.
    """
    table = {key: np.concatenate([part.pop(key) for part in parts]) for key in ("rank", *_LINK)}
    ranks, column = np.unique(table.pop("rank"), return_inverse=True)
    column = column.astype(np.int16 if len(ranks) < 1 << 15 else np.int32)
    if len(ranks) < 2:
        return ranks.tolist(), np.empty((0, len(ranks)), np.int32)
    keys = [table[name] for name in _KEY]
    order = np.lexsort(keys)
    changes = np.zeros(max(len(order) - 1, 0), bool)
    for values in keys:
        changes |= np.diff(values[order]) != 0
    key = np.empty(len(order), np.int32)
    key[order] = np.concatenate((np.zeros(1, np.int32), np.cumsum(changes, dtype=np.int32)))
    places = np.full((int(key.max()) + 1, len(ranks)), -1, np.int32)
    # Backwards, so that what comes first stays.
    places[key[::-1], column[::-1]] = table["row"][::-1]
    return ranks.tolist(), places


def _least_distance(matrix: Floats, least: Floats) -> Floats | None:
    """The shortest x with matrix @ x >= least; None: there is none.

    Lawson and Hanson, Solving Least Squares Problems, chapter 23, problem LDP.
    """
    from scipy.optimize import nnls

    # Rows of length 1, so that none is lost beside others in rounding.
    size = np.linalg.norm(matrix, axis=1)
    if (size == 0).any():
        return None
    rows, bounds = matrix / size[:, None], least / size
    unit = max(float(np.abs(bounds).max()), 1e-9)
    stacked = np.concatenate((rows.T, bounds[None] / unit))
    goal = np.zeros(len(stacked))
    goal[-1] = 1.0
    solution, distance = nnls(stacked, goal)
    residual = stacked @ solution - goal
    if distance < 1e-7 or residual[-1] > -1e-14:
        return None
    result: Floats = -residual[:-1] / residual[-1] * unit
    return result
