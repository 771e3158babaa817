"""Commits of a training in files: written whole or not at all, the newest few kept.

    commit-NUMBER-TRAINING.hvdtune = MAGIC, pickle, BLAKE2b of both (32 bytes)

TRAINING are eight digits that the commits of one training have in common. The pickle is a dict of
Python objects: `seed` and `state`. Reading one can run any code, so files that others could have
written are refused, and none is ever taken from a connection.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hvdtune.errors import UsageError
from hvdtune.own_files import replacement, require_own

_MAGIC: Final = b"hvdtune commit 1\n"
_DIGEST_BYTES: Final = 32
_NAME: Final = re.compile(r"commit-(?P<number>\d{12})-(?P<training>[0-9a-f]{8})\.hvdtune")


@dataclass(frozen=True)
class FoundCommit:
    """What a file holds: the number of the commit, which training's it is, and its dict."""

    commits: int
    training: str
    content: dict[str, Any]


@dataclass(frozen=True)
class CommitOrder:
    """One commit that is to be written, as the newest of `keep` of its training in the folder.

    Nobody changes `content` from then on.
    """

    folder: Path
    commits: int
    training: str
    content: dict[str, Any]
    keep: int


class CommitWriter:
    """Writes commits on a thread of its own, the newest that there is when it is free.

    Thread rule: one thread calls it. `_changed` guards `_waiting`, `_is_busy` and `_failure`.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: CommitOrder | None = None
        self._is_busy = False
        self._failure: UsageError | None = None
        threading.Thread(target=self._run, name="hvdtune-commits", daemon=True).start()

    def write(self, order: CommitOrder) -> None:
        """Has a commit written.

        Raises UsageError where `keep` is not at least 1, and for an earlier commit that could not
        be written.
        """
        if order.keep < 1:
            raise UsageError(f"keep is {order.keep}, but must be at least 1")
        with self._changed:
            self._raise_failure()
            self._waiting = order
            self._changed.notify_all()

    def flush(self) -> None:
        """Returns when nothing is left to be written. Raises as `write` does."""
        with self._changed:
            while self._waiting is not None or self._is_busy:
                self._changed.wait()
            self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._waiting is None:
                    self._changed.wait()
                order, self._waiting, self._is_busy = self._waiting, None, True
            failure = None
            try:
                write_commit(order)
            except Exception as error:  # an object's own methods may raise anything
                failure = UsageError(
                    f"commit {order.commits} could not be written to {order.folder}: {error}"
                )
            with self._changed:
                # That a later commit succeeds is no reason to keep quiet of this one.
                self._failure, self._is_busy = self._failure or failure, False
                self._changed.notify_all()


def write_commit(order: CommitOrder) -> None:
    """Writes a commit and removes the training's older ones, and those of a course that it has left
    for an earlier commit.

    Raises UsageError for a folder with another training's commits, what the file system raises,
    and what the objects do that are pickled.
    """
    import cloudpickle  # which most trainings never need

    folder = order.folder
    folder.mkdir(parents=True, exist_ok=True)
    for path in _files(folder):
        if _training_of(path) != order.training:
            raise UsageError(f"{path.name} is another training's: resume that, or remove it")
    for part in folder.glob(".*.part"):  # of a process that was killed
        part.unlink(missing_ok=True)
    path = folder / f"commit-{order.commits:012}-{order.training}.hvdtune"
    with replacement(path, mode=0o600) as part, part.open("wb") as file:
        out = _Hashed(file)
        out.write(_MAGIC)
        cloudpickle.dump(order.content, out)
        file.write(out.digest())
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(folder)
    files = _files(folder)
    mine = files.index(path)
    for other in [*files[:mine], *files[mine + order.keep :]]:
        other.unlink(missing_ok=True)


def newest_commit(folder: Path) -> FoundCommit | None:
    """The newest commit of a folder that is whole; None where there is none.

    Raises UsageError for a file that another user could have written, or that cannot be read.
    """
    for path in _files(folder):
        try:
            require_own(path, advice="")
        except PermissionError as error:
            raise UsageError(
                f"a commit can run any code, and {error.strerror}: it is not read; make it yours "
                "alone (chown, chmod 600) if you know that your training wrote it, or resume from "
                "another folder"
            ) from None
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if body.startswith(_MAGIC) and _hash(body).digest() == digest:
            number = int(_parts(path)["number"])
            return FoundCommit(number, _training_of(path), pickle.loads(body[len(_MAGIC) :]))
        warnings.warn(f"{path} is not whole and is passed over", RuntimeWarning, stacklevel=3)
    return None


def _files(folder: Path) -> list[Path]:
    """The commits of a folder, the newest first."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), reverse=True)


def _training_of(path: Path) -> str:
    return _parts(path)["training"]


def _parts(path: Path) -> dict[str, str]:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return match.groupdict()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES)


class _Hashed:
    """A file that is written, and the digest of what was."""

    def __init__(self, file: Any) -> None:
        self._file, self._hash = file, _hash()

    def write(self, data: Any) -> int:
        self._hash.update(data)
        written: int = self._file.write(data)
        return written

    def digest(self) -> bytes:
        found: bytes = self._hash.digest()
        return found
