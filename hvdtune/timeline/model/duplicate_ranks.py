"""A rank that two files tell of: counts and times of it would be sums over both."""

from collections.abc import Iterable

from hvdtune.timeline.model.schema import KIND_NAMES
from hvdtune.timeline.model.trace import Trace


def files_of_ranks(trace: Trace) -> list[tuple[int, str]]:
    """Ranks with the files, if there are several, that hold events of hvdtune's kinds of theirs."""
    if len(trace.files) < 2:
        return []
    slices = trace.slices[trace.slices["kind"].isin(KIND_NAMES)]
    pairs = slices[["rank", "file"]].drop_duplicates().sort_values(["rank", "file"])
    return [
        (int(rank), trace.files[int(file)].path)
        for rank, file in zip(pairs["rank"], pairs["file"], strict=True)
    ]


def in_two_files(found: Iterable[tuple[int, str]]) -> list[str]:
    """One sentence where a rank is in several files, else none.

    Args:
        found: ranks with files; -1 is no rank.
    """
    files: dict[int, list[str]] = {}
    for rank, path in found:
        if rank >= 0:
            files.setdefault(rank, []).append(path)
    several = [rank for rank, paths in sorted(files.items()) if len(paths) > 1]
    if not several:
        return []
    paths = files[several[0]]
    count = "two" if len(paths) == 2 else str(len(paths))
    left = len(several) - 1
    more = f"; {left} more rank{'s are' if left > 1 else ' is'} in several files" if left else ""
    return [f"rank {several[0]} is in {count} files: {', '.join(paths[:4])}{more}"]
