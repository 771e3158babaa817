"""Commits of a training in files: written whole or not at all, the newest few kept.

    commit-NUMBER-TRAINING.hvdtune = MAGIC, packed content, digest, proof (32 bytes each)

TRAINING are eight digits that the commits of one training have in common. The content is a dict,
packed by `hvdtune.core.elastic.packing`: pickles are in it only for objects without a plain form.
A pickle can run any code when it is read. So it is read only if the proof was made with this
user's key: a file that was copied from someone else belongs to this user, but has no such proof.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import re
import secrets
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hvdtune.core.elastic.packing import PickleRefusedError, pack, unpack
from hvdtune.errors import UsageError
from hvdtune.own_files import add, make_own_folder, open_own_folder, read_own, replacement

_MAGIC: Final = b"hvdtune commit 2\n"
_ANY_MAGIC: Final = b"hvdtune commit "
_DIGEST_BYTES: Final = 32
_NO_PROOF: Final = bytes(_DIGEST_BYTES)
_PURPOSE: Final = b"hvdtune commit"
_NAME: Final = re.compile(r"commit-(?P<number>\d{12})-(?P<training>[0-9a-f]{8})\.hvdtune")


@dataclass(frozen=True)
class FoundCommit:
    """The content of a commit's file.

    Attributes:
        commits: its number.
        is_proved: whether this user has written it, so that pickles in it may be read.
    """

    commits: int
    training: str
    content: dict[str, Any]
    is_proved: bool


@dataclass(frozen=True)
class CommitOrder:
    """One commit that is to be written, as the newest of `keep` of its training in the folder.

    `content` must not change from then on. `has_pickles` has to be set for content with bytes that
    are unpickled after reading.
    """

    folder: Path
    commits: int
    training: str
    content: dict[str, Any]
    keep: int
    has_pickles: bool = False


class CommitWriter:
    """Writes commits on a thread of its own, the newest that there is when it is free.

    A commit that cannot be written costs the training nothing: the first of a row of failures is a
    warning, and `flush` raises it.

    Thread rule: one thread calls it. `_changed` guards all attributes.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: CommitOrder | None = None
        self._is_busy = False
        self._failure: UsageError | None = None  # for `flush`
        self._remark = ""  # for a warning
        self._is_failing = False
        threading.Thread(target=self._run, name="hvdtune-commits", daemon=True).start()

    def write(self, order: CommitOrder) -> None:
        """Has a commit written. Warns of an earlier one that could not be written.

        Raises UsageError where `keep` is not at least 1.
        """
        if order.keep < 1:
            raise UsageError(f"keep is {order.keep}, but must be at least 1")
        with self._changed:
            self._waiting = order
            self._changed.notify_all()
        self._warn()

    def finish(self) -> None:
        """Returns when nothing is left to be written. Warns as `write` does."""
        self._await_written()
        self._warn()

    def flush(self) -> None:
        """Returns when nothing is left to be written.

        Raises UsageError for a commit since the last `flush` that could not be written.
        """
        self._await_written()
        failure, self._failure = self._failure, None
        if failure is not None:
            self._remark = ""
            raise failure

    def _await_written(self) -> None:
        with self._changed:
            while self._waiting is not None or self._is_busy:
                self._changed.wait()

    def _warn(self) -> None:
        with self._changed:
            remark, self._remark = self._remark, ""
        if remark:
            warnings.warn(
                f"{remark}. Training continues with its commits in memory. state.flush() will "
                "raise this error",
                RuntimeWarning,
                stacklevel=5,  # of who calls commit()
            )

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
                why = getattr(error, "strerror", None) or error
                failure = UsageError(
                    f"commit {order.commits} could not be written to {order.folder}: {why}"
                )
            with self._changed:
                if failure is not None and not self._is_failing:
                    self._remark = str(failure)
                self._is_failing = failure is not None
                # That a later commit succeeds is no reason to keep quiet of this one.
                self._failure, self._is_busy = self._failure or failure, False
                self._changed.notify_all()


def write_commit(order: CommitOrder) -> None:
    """Writes a commit and removes the training's older ones, and those of a course that it has left
    for an earlier commit.

    Raises UsageError for a folder with another training's commits or in which other users can
    write, and for an object that cannot be pickled; and what the file system raises.
    """
    folder = order.folder
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _own(folder) as descriptor:
        names = _names(descriptor)
        for name in names:
            if _training_of(name) != order.training:
                raise UsageError(
                    f"{name} belongs to another training. Resume that training, or remove the file."
                )
        _remove_parts(folder, descriptor, order.training)
        path = folder / f"commit-{order.commits:012}-{order.training}.hvdtune"
        packed = pack(order.content)
        key = commit_key(make=True) if packed.pickled or order.has_pickles else None
        with (
            replacement(path, 0o600, prefix=_prefix(order.training)) as part,
            part.open("wb") as file,
        ):
            digest = _hash()
            for piece in (_MAGIC, *packed.pieces):
                digest.update(piece)
                file.write(piece)
            file.write(digest.digest())
            file.write(_NO_PROOF if key is None else _proof(key, path.name, digest.digest()))
            file.flush()
            os.fsync(file.fileno())
        os.fsync(descriptor)
        names = _names(descriptor)
        mine = names.index(path.name)
        for name in [*names[:mine], *names[mine + order.keep :]]:
            (folder / name).unlink(missing_ok=True)


def newest_commit(folder: Path) -> FoundCommit | None:
    """The newest commit of a folder that is whole; None where there is none.

    Raises UsageError for a folder or a file that another user could have written, that cannot be
    read, or that has a pickle that this user has not written.
    """
    if not folder.is_dir():
        return None
    with _own(folder) as descriptor:
        for name in _names(descriptor):
            try:
                data = read_own(folder / name, descriptor)
            except PermissionError as error:
                raise UsageError(
                    f"Refused to read a commit: {error.strerror}. If your training wrote it, make "
                    "it private (chown, chmod 600); else resume from another folder."
                ) from None
            except OSError as error:
                raise UsageError(f"{folder / name}: {error.strerror}") from None
            found = _read(name, data, folder / name)
            if found is not None:
                return found
            warnings.warn(
                f"Ignored the incomplete commit {folder / name}.", RuntimeWarning, stacklevel=3
            )
    return None


def commit_key(*, make: bool) -> bytes:
    """Return the key with which this user's commits are signed.

    Args:
        make: makes it if it is missing.

    Raises OSError where it is missing or cannot be kept, or others can read it.
    """
    path = _key_path()
    if make and not path.exists():
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        make_own_folder(path.parent)
        with (
            contextlib.suppress(FileExistsError),  # another process made one
            replacement(path, 0o600, add) as part,
        ):
            part.write_bytes(secrets.token_bytes(_DIGEST_BYTES))
    if path.stat().st_mode & 0o077:
        raise PermissionError(errno.EPERM, f"Other users can read {path}. Remove it.", str(path))
    key = read_own(path)
    if len(key) != _DIGEST_BYTES:
        raise OSError(errno.EINVAL, f"{path} is not a key of {_DIGEST_BYTES} bytes. Remove it.")
    return key


def _key_path() -> Path:
    from hvdtune.core.config.environment import config_folder

    try:
        return config_folder() / "commit-key"
    except RuntimeError as error:  # a user without a home
        raise OSError(errno.ENOENT, f"Found no folder for the commit key: {error}") from None


@contextlib.contextmanager
def _own(folder: Path) -> Any:
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(open_own_folder(folder))
        except PermissionError as error:
            raise UsageError(
                f"Refused to write commits to {folder}: {error.strerror}. Use a folder that only "
                "you can write (chmod go-w); the training creates it if it is missing."
            ) from None
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror}") from None
        yield descriptor


def _read(name: str, data: bytes, path: Path) -> FoundCommit | None:
    """The commit in a file, None if it is not whole."""
    view = memoryview(data)
    ends = len(data) - 2 * _DIGEST_BYTES
    if data.startswith(_ANY_MAGIC) and not data.startswith(_MAGIC):
        raise UsageError(
            f"{path} was written by another version of hvdtune. Resume with that version."
        )
    body, digest, proof = view[:ends], view[ends : ends + _DIGEST_BYTES], view[-_DIGEST_BYTES:]
    if ends < len(_MAGIC) or not data.startswith(_MAGIC) or _hash(body).digest() != digest:
        return None
    is_proved = False
    if proof != _NO_PROOF:
        with contextlib.suppress(OSError):
            is_proved = hmac.compare_digest(
                _proof(commit_key(make=False), name, bytes(digest)), proof
            )
    try:
        content = unpack(body[len(_MAGIC) :], may_unpickle=is_proved)
    except PickleRefusedError as error:
        raise _unproved(str(error), path) from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    return FoundCommit(_number_of(name), _training_of(name), content, is_proved)


def _unproved(what: str, path: Path) -> UsageError:
    """The error for a pickle in a file without this user's proof."""
    return UsageError(
        f"Refused to read {path}: {what} in it is a pickle, which can run any code, and your key "
        "(~/.config/hvdtune/commit-key) did not sign it. If you trust the file, copy the key from "
        "the account that wrote it."
    )


def _names(folder: int) -> list[str]:
    """The names of a folder's commits, the newest first."""
    return sorted((name for name in os.listdir(folder) if _NAME.fullmatch(name)), reverse=True)


def _prefix(training: str) -> str:
    return f"hvdtune-commit-{training}-"


def _remove_parts(folder: Path, descriptor: int, training: str) -> None:
    """Removes what a killed process of this training has left."""
    pattern = re.compile(rf"\.{_prefix(training)}[0-9a-f]{{16}}\.part")
    for name in os.listdir(descriptor):
        if pattern.fullmatch(name):
            (folder / name).unlink(missing_ok=True)


def _training_of(name: str) -> str:
    return _parts(name)["training"]


def _number_of(name: str) -> int:
    return int(_parts(name)["number"])


def _parts(name: str) -> dict[str, str]:
    match = _NAME.fullmatch(name)
    assert match is not None
    return match.groupdict()


def _proof(key: bytes, name: str, digest: bytes) -> bytes:
    return hashlib.blake2b(
        name.encode() + digest, digest_size=_DIGEST_BYTES, key=key, person=_PURPOSE
    ).digest()


def _hash(data: bytes | memoryview = b"") -> Any:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES)
