"""What each rank of a training has for itself, and its copies on other ranks.

The *part* of a rank is its values of this kind, packed (`hvdtune.core.elastic.packing`). A commit
has two steps: all ranks send copies of their parts, and each keeps them next to those of the
previous commit (`prepare`); when all have met, each drops the previous ones (`settle`). If a rank
fails in between, all others have the parts of the newest commit that any of them has settled: a
rank that has not settled it can still do so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

import numpy as np

from hvdtune.core.elastic.packing import PickleRefusedError, pack, pickled_names, unpack
from hvdtune.core.rank import collectives, runtime
from hvdtune.core.rank.collectives import complete
from hvdtune.core.rank.numpy_adapter import ADAPTER, Array
from hvdtune.core.rank.objects import allgather_object
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import ArgumentError, StateLostError, UsageError
from hvdtune.plural import counted

FROM_DISK: Final = -1  # for a generation


class PerRank:
    """A value of a State that is different on every rank: a shard, a replay buffer.

    It is given to a State by name as other values are, and `state.NAME` is `value`. No rank's is
    sent to the others in its stead. A commit puts a copy on `copies` other ranks, of other hosts
    where there are some, so that as many ranks may be lost at once.

    Args:
        value: this rank's, at the training's start. It travels as a pickle.
        merge: makes a rank's value, in every later generation, of a list of the last commit's
            values. All ranks together get each value of the generation before once, in its order:
            of 3 values rank 0 of 2 gets the first two, and a rank may get none. All ranks call it
            at the same time, so that it may use collectives.
        copies: at least 0; the most of a State's values counts for all.

    Raises:
        ArgumentError: `copies` is negative or no whole number, or `merge` cannot be called.
    """

    def __init__(self, value: Any, merge: Callable[[list[Any]], Any], copies: int = 1) -> None:
        if not isinstance(copies, int) or copies < 0:
            raise ArgumentError("copies", "must be a whole number of at least 0", copies)
        if not callable(merge):
            raise ArgumentError("merge", "must be a function that takes a list of values", merge)
        self.value, self.merge, self.copies = value, merge, copies


class Version(NamedTuple):
    """Which parts: of a generation's `size` ranks, after so many commits. The greatest is the
    newest."""

    generation: int
    commits: int
    size: int


@dataclass(frozen=True)
class Parts:
    """Some ranks' parts of one version, by their rank, and which was this rank's."""

    version: Version
    rank: int
    held: Mapping[int, bytes]

    def plain(self) -> list[Any]:
        """Return what `from_plain` takes, of plain values."""
        return [list(self.version), self.rank, dict(self.held)]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Parts:
        """Make this again of what `plain` returned."""
        version, rank, held = plain
        return cls(Version(*version), rank, held)

    def has_pickles(self) -> bool:
        """Return whether some part contains an object without a plain form."""
        return any(pickled_names(part) for part in self.held.values())


@dataclass(frozen=True)
class Told:
    """What a rank says: which version counts, as far as it knows, None where it knows of none; and
    the lengths in bytes of the parts that it holds, by version and rank."""

    newest: Version | None
    lengths: Mapping[Version, Mapping[int, int]]


@dataclass(frozen=True)
class Agreement:
    """The version that counts, None where there is none, and what each rank holds."""

    version: Version | None
    told: Sequence[Told]


class PartStore:
    """The parts that this rank holds. Thread rule: one thread."""

    def __init__(self, values: Mapping[str, PerRank]) -> None:
        self._merge = {name: value.merge for name, value in values.items()}
        self._copies = max(value.copies for value in values.values())
        self._newest: Version | None = None  # also where this rank holds nothing of it
        self._settled: Parts | None = None
        self._prepared: Parts | None = None

    @property
    def names(self) -> list[str]:
        return list(self._merge)

    def prepare(self, own: Mapping[str, Any], commits: int) -> Version:
        """Sends copies of this rank's part. When it returns, every rank has noted its copies of
        the version that is returned.

        Raises UsageError on all ranks where one's values cannot be pickled.
        """
        payload, failure = _packed(own)
        place = runtime.cross_rank(), runtime.local_rank()
        told = allgather_object((place, -1 if failure else len(payload)), "elastic.parts")
        failed = [rank for rank, (_, length) in enumerate(told) if length < 0]
        if failed:
            _refuse(failed, failure)
        # Without a launcher that forms the job anew nobody would ever ask for copies.
        copies = 0 if PROCESS.worker is None else min(self._copies, len(told) - 1)
        held = {runtime.rank(): payload} | _copies_from_others(payload, told, copies)
        version = Version(_generation(), commits, len(told))
        self._prepared = Parts(version, runtime.rank(), held)
        if copies:
            collectives.barrier()
        return version

    def settle(self, version: Version | None) -> None:
        """Takes this version for the one that counts, and lets go of what is prepared of others."""
        self._newest = version
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared.version == version:
            self._settled = prepared

    def own(self) -> dict[str, Any] | None:
        """This rank's values of the settled version, None before there is one."""
        if self._settled is None:
            return None
        return _loaded(self._settled.held[self._settled.rank])

    def agree(self) -> Agreement:
        """Return the parts that count: the newest known to a rank. If no rank has trained, those
        that rank 0 has found on the disk."""
        told = allgather_object(self._told(), "elastic.versions")
        newest = max((one.newest for one in told if one.newest is not None), default=None)
        if newest is not None and newest.generation == FROM_DISK:
            newest = told[0].newest
        return Agreement(newest and divided_anew(newest, told), told)

    def divide(self, agreed: Agreement) -> dict[str, Any]:
        """This rank's values of those that were agreed on, merged; none where there are none.

        Raises StateLostError on all ranks where a part is lost.
        """
        if agreed.version is None:
            return {}
        routes, rank = plan_routes(agreed.version, agreed.told), runtime.rank()
        held = self._settled.held if self._settled is not None else {}
        sent: dict[int, bytes] = defaultdict(bytes)
        for route in routes:
            if route.source == rank != route.target:
                sent[route.target] += held[route.part]
        # As they come: by the rank that sends them.
        coming = sorted(
            (route for route in routes if route.target == rank != route.source),
            key=lambda route: (route.source, route.part),
        )
        pieces = _exchange(sent, [route.length for route in coming])
        found = {route.part: piece for route, piece in zip(coming, pieces, strict=True)}
        found |= {r.part: held[r.part] for r in routes if r.target == rank == r.source}
        parts = [_loaded(found[part]) for part in sorted(found)]
        return {name: merge([part[name] for part in parts]) for name, merge in self._merge.items()}

    def gather(self) -> Parts:
        """The settled parts of all ranks on rank 0, for the disk; others get their own."""
        settled = self._settled
        assert settled is not None
        own = settled.held[settled.rank]
        lengths = allgather_object(len(own), "elastic.lengths")
        is_root = settled.rank == 0
        sent = {} if is_root else {0: own}
        received = _exchange(sent, lengths[1:] if is_root else [])
        held = dict(enumerate([own, *received])) if is_root else {settled.rank: own}
        version = settled.version._replace(generation=FROM_DISK)
        return Parts(version, settled.rank, held)

    def adopt(self, found: Parts, *, is_trusted: bool) -> None:
        """Keep parts that were read from a file.

        Raises UsageError for parts of other values, and for a pickle where `is_trusted` is False.
        """
        if not is_trusted:  # other ranks unpack these parts without this check
            for rank, part in found.held.items():
                try:
                    unpack(part, may_unpickle=False)
                except PickleRefusedError as error:
                    raise UsageError(
                        f"Refused to read the commit: {error} of rank {rank} is a pickle, which "
                        "can run any code, and your key did not sign the file."
                    ) from None
        names = sorted(_loaded(found.held[0]))
        if names != sorted(self._merge):
            raise UsageError(
                f"The commit contains the PerRank values {', '.join(names)}; this training's "
                f"state has {', '.join(sorted(self._merge))}."
            )
        self._newest, self._settled, self._prepared = found.version, found, None

    def _told(self) -> Told:
        both = [parts for parts in (self._settled, self._prepared) if parts is not None]
        lengths = {
            parts.version: {rank: len(part) for rank, part in parts.held.items()} for parts in both
        }
        return Told(self._newest, lengths)


@dataclass(frozen=True)
class Route:
    """The part of a rank as it was then, and from which rank to which it goes now."""

    part: int
    source: int
    target: int
    length: int


def divided_anew(newest: Version, told: Sequence[Told]) -> Version:
    """The version that counts where `newest` is not whole any more. Pure.

    Whoever joins with a rank that holds all of a version prepares what that one is divided into,
    the same values after the same commits. If the other has settled that and is lost, this rank has
    all of the new version and nothing of the one that it takes for the newest.
    """
    if newest.generation == FROM_DISK or not _lost(newest, told):
        return newest
    prepared = {version for one in told for version in one.lengths if version > newest}
    whole = [v for v in prepared if v.commits == newest.commits and not _lost(v, told)]
    return max(whole, default=newest)


def _lost(version: Version, told: Sequence[Told]) -> list[int]:
    """The ranks whose parts of a version nobody holds."""
    held = {part for one in told for part in one.lengths.get(version, {})}
    return [part for part in range(version.size) if part not in held]


def plan_routes(version: Version, told: Sequence[Told]) -> list[Route]:
    """Return which rank gives which part to whom, in the order of parts. Pure.

    Args:
        version: the one that counts.
        told: what each rank says.

    Raises:
        StateLostError: nobody holds some part.
    """
    count = version.size
    holders: dict[int, dict[int, int]] = defaultdict(dict)
    from_disk = version.generation == FROM_DISK  # rank 0's, as all that is found there
    for rank, one in enumerate(told[:1] if from_disk else told):
        for part, length in one.lengths.get(version, {}).items():
            holders[part][rank] = length
    if lost := [part for part in range(count) if part not in holders]:
        which = ", ".join(map(str, lost))
        raise StateLostError(
            f"The per-rank state of rank {which} of {count} (commit {version.commits}) is lost: "
            "every rank with a copy failed. Raise copies=..., or resume from a commit on disk"
        )
    routes = []
    for part in range(count):
        target = part if count < len(told) else part * len(told) // count
        able = sorted(holders[part])
        source = target if target in able else able[part % len(able)]
        routes.append(Route(part, source, target, holders[part][source]))
    return routes


def copy_ranks(rank: int, places: Sequence[tuple[int, int]], copies: int) -> list[int]:
    """The ranks that hold copies of a rank's part, those of other hosts first. Pure.

    Args:
        places: the host and the local rank of each rank.
        copies: how many, where there are so many others.
    """
    order = sorted(range(len(places)), key=lambda one: (places[one][1], places[one][0]))
    at = order.index(rank)
    others = order[at + 1 :] + order[:at]
    others.sort(key=lambda one: places[one][0] == places[rank][0])
    return others[:copies]


def _copies_from_others(
    payload: bytes, told: Sequence[tuple[tuple[int, int], int]], copies: int
) -> dict[int, bytes]:
    """Sends this rank's part to others, and returns the parts of those for whom it holds copies.

    Args:
        told: the place of each rank and the length of its part in bytes.
    """
    if not copies:
        return {}
    targets = [copy_ranks(rank, [place for place, _ in told], copies) for rank in range(len(told))]
    sources = [rank for rank, holders in enumerate(targets) if runtime.rank() in holders]
    sent = dict.fromkeys(targets[runtime.rank()], payload)
    return dict(zip(sources, _exchange(sent, [told[rank][1] for rank in sources]), strict=True))


def _exchange(sent: Mapping[int, bytes], lengths: Sequence[int]) -> list[bytes]:
    """Sends bytes to ranks, and returns those that come, cut into pieces of these lengths."""
    splits = [len(sent.get(rank, b"")) for rank in range(runtime.size())]
    payload = np.frombuffer(b"".join(sent[rank] for rank in sorted(sent)), np.uint8)
    handle = collectives.alltoall_async(ADAPTER, payload, splits, "elastic.exchange")
    received, _ = cast(tuple[Array, list[int]], complete(handle))
    pieces = np.split(received, np.cumsum(lengths)[:-1]) if lengths else []
    return [piece.tobytes() for piece in pieces]


def _generation() -> int:
    worker = PROCESS.worker
    if worker is None or worker.place is None:
        return PROCESS.generation
    return worker.place.generation


def _packed(values: Mapping[str, Any]) -> tuple[bytes, Exception | None]:
    try:
        return pack(dict(values)).joined(), None
    except UsageError as error:  # for _refuse
        return b"", error


def _loaded(part: bytes) -> dict[str, Any]:
    """The values in a part, which comes from a rank of this job or was checked by `adopt`."""
    values: dict[str, Any] = unpack(part, may_unpickle=True)
    return values


def _refuse(ranks: Sequence[int], failure: Exception | None) -> None:
    where = f"{counted(len(ranks), 'rank')} ({', '.join(map(str, ranks))})"
    why = f": {failure}" if failure else ""
    raise UsageError(f"a PerRank value cannot be pickled on {where}{why}") from failure
