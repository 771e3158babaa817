"""What cannot have happened before what, across ranks, and clocks that respect it.

A response comes after the last rank's announcement, and an allreduce ends on no rank before it has
begun on every one. Round trips bound a clock by half of what they take; these pairs, of which there
are thousands, often bound it closer, and no trace should show an effect before its cause.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
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
    ranks, places = _places([(rank, _links(columns[rank])) for rank in sorted(fits)])
    if len(ranks) < 2:
        return dict(fits)
    clocks = _Clocks(fits, columns, ranks, places)
    cuts: set[_Cut] = set()
    change = np.zeros((len(clocks.ranks), 2))
    lacking = clocks.worst(change)
    for _ in range(MOST_ROUNDS):
        worst = {cut for cut, lacks in lacking if lacks > -SAFE_NS}
        if worst <= cuts:
            break
        found = clocks.solve(sorted(cuts | worst), free)
        if found is None:
            break
        cuts |= worst
        change = found
        lacking = clocks.worst(change)
    return clocks.fits_after(change, lacking)


@dataclass(frozen=True, order=True)
class _Cut:
    """A cause that has to come before an effect: rows of `_Clocks.local`, and their ranks."""

    key: int
    cause: int
    effect: int


class _Clocks:
    """Times of causes and effects by key and rank, and how they move with the clocks.

    They are computed a rank at a time from its events: of all ranks they are many.
    """

    def __init__(
        self,
        fits: Mapping[int, ClockFit],
        columns: Mapping[int, Columns],
        ranks: list[int],
        places: NDArray[np.int32],
    ) -> None:
        self.fits = dict(fits)
        self.ranks = ranks
        self._columns, self._places = columns, places
        self._origin = fits[self.ranks[0]].to_rank_0(columns[self.ranks[0]]["begin_ns"]).min()
        # What a clock may be wrong by, and over which time a tilt of the same size shows.
        self._doubt = np.array([_doubt_ns(fits[rank]) for rank in self.ranks])
        since = [self._times(index)[2] for index in range(len(ranks))]
        span = np.array([np.nanmax(values) - np.nanmin(values) for values in since])
        spread = np.array([fits[rank].spread_ns for rank in self.ranks])
        self._scale = np.where(spread > 0, spread, np.maximum(10 * span, 1.0))

    def _times(self, index: int, keys: slice = slice(None)) -> tuple[Floats, Floats, Floats]:
        """When a rank's causes and effects are shown, and for how long its clock has run; in ns.

        Those of a key that the rank does not have are NaN.
        """
        fit, columns = self.fits[self.ranks[index]], self._columns[self.ranks[index]]
        rows = self._places[index, keys]
        begin = columns["begin_ns"][rows]
        # Differences are taken before float64 would round them.
        cause = (fit.to_rank_0(begin) - self._origin).astype(np.float64)
        effect = cause + (columns["end_ns"][rows] - begin)  # an event keeps its duration
        since = (begin - fit.reference_ns).astype(np.float64)
        for values in (cause, effect, since):
            values[rows < 0] = np.nan
        return cause, effect, since

    def worst(self, change: Floats) -> list[tuple[_Cut, float]]:
        """For each rank's effects, the one that comes most before its cause, and by how much."""
        last, before_last, who = self._last_causes(change)
        found = []
        for index, (shift, tilt) in enumerate(change):
            _, effects, since = self._times(index)
            lacks = np.where(who == index, before_last, last) - (effects + shift + tilt * since)
            if np.isnan(lacks).all():
                continue
            key = int(np.nanargmax(lacks))
            cause = int(who[key]) if who[key] != index else self._other_cause(key, index, change)
            found.append((_Cut(key, cause, index), float(lacks[key])))
        return found

    def _last_causes(self, change: Floats) -> tuple[Floats, Floats, NDArray[np.int32]]:
        """Of each key, when its last cause is, the last of all other ranks, and whose the last is;
        NaN: there is none."""
        last, before_last = (np.full(self._places.shape[1], np.nan) for _ in range(2))
        who = np.full(self._places.shape[1], -1, np.int32)
        for index, (shift, tilt) in enumerate(change):
            causes, _, since = self._times(index)
            causes = causes + shift + tilt * since
            later = (causes > last) | (np.isnan(last) & ~np.isnan(causes))
            before_last = np.where(later, last, np.fmax(before_last, causes))
            last[later] = causes[later]
            who[later] = index
        return last, before_last, who

    def _other_cause(self, key: int, but: int, change: Floats) -> int:
        """The index of the rank with the last cause of a key, but for one rank."""
        causes = np.full(len(self.ranks), np.nan)
        for index, (shift, tilt) in enumerate(change):
            if index != but:
                cause, _, since = self._times(index, slice(key, key + 1))
                causes[index] = float(cause[0] + shift + tilt * since[0])
        return int(np.nanargmax(causes))

    def solve(self, cuts: list[_Cut], free: list[int]) -> Floats | None:
        """The least change within the cuts: (ranks, [shift in ns, tilt]); None: there is none."""
        columns = {rank: 2 * k for k, rank in enumerate(free)}
        matrix = np.zeros((len(cuts), 2 * len(free)))
        least = np.zeros(len(cuts))
        for row, cut in enumerate(cuts):
            at_key = slice(cut.key, cut.key + 1)
            cause, _, of_cause = self._times(cut.cause, at_key)
            _, effect, of_effect = self._times(cut.effect, at_key)
            least[row] = cause[0] - effect[0]
            sides = (cut.effect, of_effect, 1.0), (cut.cause, of_cause, -1.0)
            for index, since, sign in sides:
                if (at := columns.get(self.ranks[index])) is None:
                    continue
                tilt = since[0] / self._scale[index]
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

    def fits_after(self, change: Floats, lacking: list[tuple[_Cut, float]]) -> dict[int, ClockFit]:
        """The clocks after a change, and what `worst` says of it."""
        left = {self.ranks[cut.effect]: lacks for cut, lacks in lacking}
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


def _links(columns: Columns) -> dict[str, NDArray[Any]]:
    """Rows of events that begin with a cause and end with an effect; other ranks share the key."""
    kind = columns["kind"]
    asked = np.flatnonzero(kind == _NEGOTIATE)
    done = np.flatnonzero(np.isin(kind, _NEEDS_ALL))
    # A collective does not tell its process set, but its announcement does.
    same = _numbered(
        [columns[key][np.concatenate((asked, done))] for key in ("bucket", "name", "seq")]
    )
    first = np.full(int(same.max(initial=-1)) + 1, -1, np.int32)
    first[same[: len(asked)][::-1]] = asked[::-1]  # backwards, so that what comes first stays
    announcement = first[same[len(asked) :]]
    done, announcement = done[announcement >= 0], announcement[announcement >= 0]
    row, of = np.concatenate((asked, done)), np.concatenate((asked, announcement))
    links = {
        "phase": np.repeat([0, 1], [len(asked), len(done)]),
        "process_set": columns["arg"][of] // PROCESS_SET_UNIT,
        "name": columns["name"][row],
        "seq": columns["seq"][row],
        "row": row,
    }
    return {key: links[key].astype(dtype) for key, dtype in _LINK.items()}


# Of all ranks these are many: no column is wider than it must be.
_LINK = {
    "phase": np.int8,
    "process_set": np.int32,
    "name": np.int32,
    "seq": np.int64,
    "row": np.int32,
}
_KEY = ("phase", "process_set", "name", "seq")


def _places(
    parts: Sequence[tuple[int, dict[str, NDArray[Any]]]],
) -> tuple[list[int], NDArray[np.int32]]:
    """The ranks that have links, and for each of them a row, for each key a column.

    It has the first event of the key on this rank; -1: none. The parts' columns are taken.
    """
    ranks = [rank for rank, part in parts if len(part["row"])]
    if len(ranks) < 2:
        return ranks, np.empty((len(ranks), 0), np.int32)
    lengths = [len(part["row"]) for _, part in parts if len(part["row"])]
    table = {key: np.concatenate([part.pop(key) for _, part in parts]) for key in _LINK}
    key = _numbered([table.pop(name) for name in _KEY])
    places = np.full((len(ranks), int(key.max()) + 1), -1, np.int32)
    ends = np.cumsum(lengths)
    for own, last, length in zip(places, ends, lengths, strict=True):
        part = slice(last - length, last)
        # Backwards, so that what comes first stays.
        own[key[part][::-1]] = table["row"][part][::-1]
    return ranks, places


def _numbered(columns: Sequence[NDArray[Any]]) -> NDArray[np.int32]:
    """A number for each row, from 0: the same for rows that are equal in all columns."""
    numbers = np.zeros(len(columns[0]), np.int32)
    if len(numbers) == 0:
        return numbers
    key = _one_key(columns)
    order = (np.lexsort(columns) if key is None else np.argsort(key, kind="stable")).astype(
        np.int32
    )
    changes = np.zeros(len(order) - 1, bool)
    for values in columns if key is None else (key,):
        ordered = values[order]
        changes |= ordered[1:] != ordered[:-1]
    numbers[order[1:]] = np.cumsum(changes, dtype=np.int32)
    return numbers


def _one_key(columns: Sequence[NDArray[Any]]) -> NDArray[np.int64] | None:
    """One number instead of several, which is sorted several times as fast; None: too large."""
    key = np.zeros(len(columns[0]), np.int64)
    room = 1
    for values in columns:
        low, high = int(values.min()), int(values.max())
        room *= high - low + 1
        if room >= 2**62:
            return None
        key *= high - low + 1
        key += values.astype(np.int64) - low
    return key


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
