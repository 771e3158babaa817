"""Collectives that are not complete, by the Flight Recorder's dumps of a job's ranks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hvdtune.plural import counted
from hvdtune.timeline.analysis.findings.finding import NOT_PER_STEP, TraceFinding
from hvdtune.timeline.model.trace import Trace

KEY = "flight_recorder"  # among what is known of a rank
MOST_NAMED = 8
# Inputs of these are as large on all ranks.
_EQUAL = ("all_reduce", "allreduce", "broadcast", "all_gather", "allgather", "reduce_scatter")

# By rank.
Dumps = Mapping[int, Mapping[str, Any]]
Entry = Mapping[str, Any]


@dataclass(frozen=True)
class GroupView:
    """What ranks said of one process group.

    Attributes:
        name: for sentences.
        ranks: its members, as far as they are known.
        entries: its collectives by rank and number, of the ranks that have dumps.
    """

    name: str
    ranks: tuple[int, ...]
    entries: Mapping[int, Mapping[int, Entry]]

    def first_incomplete(self) -> int | None:
        """The first number that is not complete on all ranks; None: all that was called is."""
        for number in sorted({number for own in self.entries.values() for number in own}):
            for own in self.entries.values():
                entry = own.get(number)
                if entry is None:
                    # Older ones than a rank still remembers were completed.
                    if not own or number > max(own):
                        return number
                elif entry["state"] != "completed":
                    return number
        return None


def dumps_of(trace: Trace) -> Dumps:
    """The dumps of a trace by rank; empty: it has none."""
    known = trace.meta.get("ranks", {})
    return {
        max(int(rank), 0): said[KEY]
        for rank, said in sorted(known.items())
        if isinstance(said, dict) and isinstance(said.get(KEY), dict)
    }


def find(dumps: Dumps) -> list[TraceFinding]:
    """What hangs, the group whose collective was called first before others."""
    found = []
    for group in _groups(dumps):
        different = next(_different(group), None)
        number = group.first_incomplete()
        if different is not None and (number is None or different[0] <= number):
            found.append((_called_ns(group, different[0]), different[1]))
        elif number is not None:
            found.append((_called_ns(group, number), _incomplete(group, number, dumps)))
    return [finding for _, finding in sorted(found, key=lambda pair: pair[0])]


def notes(dumps: Dumps) -> Iterator[str]:
    """What limits the answer."""
    waiting = [
        f"{_operation(entry)} of rank {rank} is {entry['state']}"
        for rank, dump in sorted(dumps.items())
        for entry in dump["entries"]
        if entry["p2p"] and entry["state"] != "completed"
    ]
    if waiting:
        more = len(waiting) - 3
        yield (
            "incomplete sends and receives: "
            + "; ".join(waiting[:3])
            + (f"; {more} more" if more > 0 else "")
        )
    yield "a dump holds only a rank's last collectives; earlier ones are missing"
    yield "no times are shown because the hosts' clocks differ"


def scope(dumps: Dumps, found: Sequence[TraceFinding]) -> str:
    """A sentence on what was looked at."""
    whole = f"Flight Recorder dumps of {counted(len(dumps), 'rank')}"
    if found:
        return f"{whole}: {counted(len(found), 'process group')} with a hanging collective"
    return f"{whole}: every collective is complete on every rank that called it"


def _groups(dumps: Dumps) -> list[GroupView]:
    members: dict[str, set[int]] = {}
    names: dict[str, str] = {}
    entries: dict[str, dict[int, dict[int, Entry]]] = {}
    for rank, dump in dumps.items():
        for name, said in dump["groups"].items():
            members.setdefault(name, set()).update(said["ranks"])
            about = said["description"]
            names[name] = f"{name} ({about})" if about and about != "undefined" else name
        for entry in dump["entries"]:
            if not entry["p2p"]:
                of_rank = entries.setdefault(entry["group"], {}).setdefault(rank, {})
                of_rank[entry["seq"]] = entry
    views = []
    for name, own in sorted(entries.items()):
        ranks = members.get(name) or {*own}
        present = {rank: own.get(rank, {}) for rank in sorted(ranks & {*dumps})}
        views.append(GroupView(names.get(name, name), tuple(sorted(ranks)), present))
    return views


def _called_ns(group: GroupView, number: int) -> int:
    """When the first rank called it."""
    times = [own[number]["created_ns"] for own in group.entries.values() if number in own]
    return int(min(times))


def _different(group: GroupView) -> Iterator[tuple[int, TraceFinding]]:
    """Collectives that are not the same on all ranks that called them."""
    for number in sorted({number for own in group.entries.values() for number in own}):
        called = {rank: own[number] for rank, own in group.entries.items() if number in own}
        for what, of in (("operations", _name), ("sizes", _size), ("dtypes", _dtypes)):
            values = {rank: of(entry) for rank, entry in called.items()}
            counts = Counter(values.values())
            if len(counts) < 2:
                continue
            usual = counts.most_common(1)[0][0]
            odd = tuple(rank for rank, value in values.items() if value != usual)
            others = [rank for rank, value in values.items() if value == usual]
            # Of two ranks neither is the odd one.
            accused = odd if len(others) > len(odd) else ()
            yield (
                number,
                TraceFinding(
                    kind="different-collectives",
                    ranks=accused,
                    cost=NOT_PER_STEP,
                    summary=(
                        f"ranks of group {group.name} call collective {number} "
                        f"with different {what}"
                    ),
                    evidence=(
                        f"{ranks_named(others)}: {_described(called[others[0]])}",
                        *(f"rank {rank}: {_described(called[rank])}" for rank in odd[:MOST_NAMED]),
                    ),
                    remedy=(
                        "make all ranks of the group call the same collectives in the same order, "
                        "with tensors of the same sizes and dtypes"
                    ),
                ),
            )
            break


def _incomplete(group: GroupView, number: int, dumps: Dumps) -> TraceFinding:
    called = {rank: own[number] for rank, own in group.entries.items() if number in own}
    absent = tuple(rank for rank in group.entries if rank not in called)
    silent = tuple(rank for rank in group.ranks if rank not in dumps)
    example = next(iter(called.values()))
    operation = f"{_operation(example)}, number {number} of group {group.name}"
    states = {
        state: [rank for rank, entry in called.items() if entry["state"] == state]
        for state in ("completed", "started", "scheduled")
    }
    seen = [f"it is {state} on {ranks_named(ranks)}" for state, ranks in states.items() if ranks]
    seen.append(f"it is {_described(example)}")
    seen += [f"rank {rank} {_last_of(rank, dumps)}" for rank in absent[:MOST_NAMED]]
    if silent:
        seen.append(f"{ranks_named(silent)} left no dump: exited, or could not write one")
    if absent or silent:
        guilty = absent or silent
        does = "has" if len(guilty) == 1 else "have"
        verb = "not called" if absent else "left no dump and may not have called"
        return TraceFinding(
            kind="missing-call",
            ranks=guilty,
            cost=NOT_PER_STEP,
            summary=f"{ranks_named(guilty)} {does} {verb} {operation}"
            if absent
            else f"{ranks_named(guilty)} {verb} {operation}",
            evidence=tuple(seen),
            remedy=(
                f"check the log and the stack (py-spy dump) of {ranks_named(guilty)} for an error, "
                "a branch that only some ranks take, or data that ran out"
            ),
            confidence="high" if absent else "low",
        )
    return TraceFinding(
        kind="incomplete-collective",
        ranks=(),
        cost=NOT_PER_STEP,
        summary=f"all ranks have called {operation}, but it is not complete",
        evidence=tuple(seen),
        remedy=(
            "check links and devices: NCCL_DEBUG=INFO, ncclras, the kernel's log; a device may "
            "still be busy with earlier kernels"
        ),
        confidence="medium",
    )


def _last_of(rank: int, dumps: Dumps) -> str:
    """What a rank does that has not called."""
    entries = [entry for entry in dumps[rank]["entries"] if not entry["p2p"]]
    if not entries:
        return "has called no collective"
    waits = [entry for entry in entries if entry["state"] != "completed"]
    entry = waits[0] if waits else max(entries, key=lambda entry: entry["created_ns"])
    what = f"{_operation(entry)}, number {entry['seq']} of group {entry['group']}"
    at = f", called at {entry['called_at']}" if entry["called_at"] else ""
    if waits:
        return f"waits in {what} ({entry['state']}){at}"
    return f"last called {what}, which is complete{at}"


def _name(entry: Entry) -> str:
    return str(entry["op"])


def _size(entry: Entry) -> Any:
    if not _operation(entry).lstrip("_").startswith(_EQUAL):
        return None
    return tuple(map(tuple, entry["input"]))


def _dtypes(entry: Entry) -> Any:
    return tuple(entry["dtypes"])


def _operation(entry: Entry) -> str:
    return str(entry["op"]).partition(":")[2] or str(entry["op"])


def _described(entry: Entry) -> str:
    tensors = [
        f"{dtype}{size}"
        for dtype, size in zip(
            [*entry["dtypes"], *[""] * len(entry["input"])], entry["input"], strict=False
        )
    ]
    at = f", called at {entry['called_at']}" if entry["called_at"] else ""
    return f"{_operation(entry)} of {', '.join(tensors[:4]) or 'no tensor'}{at}"


def ranks_named(ranks: Sequence[int]) -> str:
    """Ranks for a sentence: "rank 3", "ranks 1, 2"."""
    named = ", ".join(map(str, ranks[:MOST_NAMED]))
    more = len(ranks) - MOST_NAMED
    return f"rank{'s' * (len(ranks) > 1)} {named}" + (f" and {more} more" if more > 0 else "")
