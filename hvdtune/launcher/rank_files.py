"""The output of each rank in files of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

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
            raise _unwritable(folder, error) from None

        def write(_: str, text: bytes) -> None:
            prefix = _prefix_of(text)
            files[prefix].write(_without(prefix, text))

        yield write


@contextlib.contextmanager
def worker_files(folder: Path) -> Iterator[Writer]:
    """As `rank_files`, for the workers of an elastic job: in FOLDER/worker.N/stdout and stderr,
    which are made when worker N first writes.

    Raises UsageError when the folder cannot be made; the writer raises OSError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    with contextlib.ExitStack() as stack:
        files: dict[bytes, BinaryIO] = {}

        def write(stream: str, text: bytes) -> None:
            prefix = _prefix_of(text)
            if prefix not in files:
                of_worker = folder / f"worker.{int(prefix[1 : prefix.index(b']')])}"
                of_worker.mkdir(exist_ok=True)
                files[prefix] = stack.enter_context((of_worker / stream).open("wb", buffering=0))
            files[prefix].write(_without(prefix, text))

        yield write


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"output folder {folder}: {error.strerror}")


def _prefix_of(text: bytes) -> bytes:
    return text[: text.index(b":") + 1]


def _without(prefix: bytes, text: bytes) -> bytes:
    return b"".join(line.removeprefix(prefix) for line in text.splitlines(keepends=True))
