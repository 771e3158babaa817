"""A rank that two files tell of: counts and times of it would be sums over both."""

from collections.abc import Iterable

from hvdtune.errors import UsageError
from hvdtune.timeline.model.schema import KIND_NAMES
from hvdtune.timeline.model.trace import Trace

# Files of these formats tell different things of a rank: its collectives, and what it computes.
_BESIDE_EACH_OTHER = (["horovod", "kineto"], ["hvdtune", "kineto"], ["hvdtune-json", "kineto"])


def files_of_ranks(trace: Trace) -> list[tuple[int, str, str]]:
    """Ranks with the files that hold events of hvdtune's kinds of theirs.

    Returns:
        Rank, path and format.
    """
    if trace.kept_files_of_ranks:
        return list(trace.kept_files_of_ranks)
    slices = trace.slices[trace.slices["kind"].isin(KIND_NAMES)]
    pairs = slices[["rank", "file"]].drop_duplicates().sort_values(["rank", "file"])
    files = ((int(rank), trace.files[int(file)]) for rank, file in pairs.to_numpy().tolist())
    return [(rank, file.path, file.format) for rank, file in files]


def refuse_two_files_of_a_rank(trace: Trace) -> None:
    """Raises UsageError where two files of a trace tell of one rank; see `refuse_twice`."""
    if len(trace.files) > 1:
        refuse_twice(files_of_ranks(trace))


def refuse_twice(found: Iterable[tuple[int, str, str]]) -> None:
    """Raises UsageError where a rank is in two files: they are of two jobs, or of one twice.

    Args:
        found: see `in_two_files`.
    """
    for text in in_two_files(found):
        raise UsageError(f"{text}: name one trace of each rank, or their merged trace alone")


def in_two_files(found: Iterable[tuple[int, str, str]]) -> list[str]:
    """One sentence where a rank is in several files, else none.

    Args:
        found: ranks with files and their formats; -1 is no rank.
    """
    files: dict[int, list[tuple[str, str]]] = {}
    for rank, path, kind in found:
        if rank >= 0:
            files.setdefault(rank, []).append((path, kind))
    several = [rank for rank, own in sorted(files.items()) if not _are_beside_each_other(own)]
    if not several:
        return []
    paths = [path for path, _ in files[several[0]]]
    count = "two" if len(paths) == 2 else str(len(paths))
    left = len(several) - 1
    more = f"; {left} more rank{'s are' if left > 1 else ' is'} in several files" if left else ""
    return [f"rank {several[0]} is in {count} files: {', '.join(paths[:4])}{more}"]


def _are_beside_each_other(files: list[tuple[str, str]]) -> bool:
    return len(files) == 1 or sorted(kind for _, kind in files) in _BESIDE_EACH_OTHER
