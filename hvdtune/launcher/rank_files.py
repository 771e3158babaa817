"""The output of each rank in files of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from hvdtune.errors import UsageError
from hvdtune.launcher.output import Writer


@contextlib.contextmanager
def rank_files(folder: Path, ranks: int) -> Iterator[Writer]:
    """A writer that keeps lines, without their prefix, in FOLDER/rank.N/stdout and stderr.

    N has leading zeros, so that the names sort by rank. Raises UsageError when a file cannot be
    written.
    """
    with contextlib.ExitStack() as stack:
        files = {}
        try:
            for rank in range(ranks):
                of_rank = folder / f"rank.{rank:0{len(str(ranks - 1))}}"
                of_rank.mkdir(parents=True, exist_ok=True)
                for stream in ("stdout", "stderr"):
                    file = stack.enter_context((of_rank / stream).open("wb", buffering=0))
                    files[f"[{rank}]<{stream}>:".encode()] = file
        except OSError as error:
            raise UsageError(f"output folder {folder}: {error.strerror}") from None

        def write(_: str, text: bytes) -> None:
            prefix = text[: text.index(b":") + 1]
            lines = text.splitlines(keepends=True)
            files[prefix].write(b"".join(line.removeprefix(prefix) for line in lines))

        yield write
