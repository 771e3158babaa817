"""The file by which rank 0 tells the ranks of its job where it listens, and the job's key."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune import own_files, parse
from hvdtune.errors import HvdtuneError, UsageError

_MOST_BYTES: Final = 4096
_NONCE_BYTES: Final = 16
# Whoever has left a file listens, so it answers in a round trip.
_CONNECT_S: Final = 2.0
# No job takes so long to form; what is older is of one that was killed.
_FORGOTTEN_S: Final = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Offer:
    """Where rank 0 listens. `nonce` tells two files of one name apart; `key` may be b""."""

    address: str
    key: bytes
    nonce: str

    def __repr__(self) -> str:
        return f"Offer({self.address})"

    def is_answered(self) -> bool:
        """Whether somebody listens there, so that the job has not ended."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(parse.endpoint(self.address), timeout=_CONNECT_S),
        ):
            return True
        return False


class OfferedError(Exception):
    """Another process has left the file of this job, and listens where it says."""

    def __init__(self, offer: Offer) -> None:
        super().__init__(offer)
        self.offer = offer


class JobFile:
    """The file of one job in a folder of the user's own that the hosts share.

    Args:
        makes_folder: whether rank 0 makes the folder if it is not there.
    """

    def __init__(self, folder: Path, job: str, *, makes_folder: bool = True) -> None:
        digest = hashlib.blake2b(job.encode(), digest_size=8).hexdigest()
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", job)[:40].strip("-.")
        self._folder, self._makes_folder = folder, makes_folder
        self.path = folder / f"{readable}-{digest}.json"

    @contextlib.contextmanager
    def offered(self, address: str, key: bytes) -> Iterator[None]:
        """The file is there in the block, complete from its first moment, for this user only.

        Raises UsageError where it cannot be written, OfferedError as it says.
        """
        nonce = secrets.token_hex(_NONCE_BYTES)
        text = json.dumps({"address": address, "key": key.hex(), "nonce": nonce})
        try:
            if self._makes_folder:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.require_folder()
            self._forget_old_ones()
            self._add(text)
        except OSError as error:
            raise self._not_left(error) from None
        try:
            yield
        finally:
            # Not another one's that has taken the place since.
            if (there := self.read()) is not None and there.nonce == nonce:
                self.path.unlink(missing_ok=True)

    def require_folder(self) -> None:
        """Raises UsageError for a folder that is a link or open to others, or that is not there
        though nobody makes it."""
        try:
            if self.has_folder or not self._makes_folder:
                own_files.require_own(self._folder, advice="")
        except OSError as error:
            raise self._not_left(error) from None

    def _not_left(self, error: OSError) -> UsageError:
        return UsageError(
            f"rank 0 cannot leave a file for the other ranks in {self._folder}: "
            f"{error.strerror or error}; set HVDTUNE_SHARED_FOLDER to a folder of your own that "
            "the hosts share, or HVDTUNE_KEY to the same key everywhere"
        )

    def _add(self, text: str) -> None:
        while True:
            try:
                with own_files.replacement(self.path, 0o600, own_files.add) as part:
                    part.write_text(text)
                return
            except FileExistsError:
                there = self.read()
                if there is not None and there.is_answered():
                    raise OfferedError(there) from None
                self._remove(there)

    def _remove(self, left: Offer | None) -> None:
        """Removes the file unless it is another than `left` by now."""
        aside = self.path.with_name(f".{secrets.token_hex(_NONCE_BYTES)}.part")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            if _read(aside) != left:
                with contextlib.suppress(FileExistsError):
                    own_files.add(aside, self.path)
            aside.unlink()

    @property
    def has_folder(self) -> bool:
        """Whether the folder is there."""
        return self._folder.is_dir()

    def read(self) -> Offer | None:
        """What rank 0 has left, None if nothing. Raises HvdtuneError for what others can know."""
        return _read(self.path)

    def refresh(self) -> None:
        """Makes this host ask the file server again.

        A client of NFS remembers for up to a minute that a file is not there, unless it changes
        the folder itself.
        """
        with contextlib.suppress(OSError):
            probe = self._folder / f".{secrets.token_hex(_NONCE_BYTES)}.probe"
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            probe.unlink(missing_ok=True)

    def _forget_old_ones(self) -> None:
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _FORGOTTEN_S:
                    path.unlink()


def _read(path: Path) -> Offer | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            raise HvdtuneError(f"{path} belongs to another user or can be read by one: remove it")
        text = file.read(_MOST_BYTES)
    try:
        found = json.loads(text)
        return Offer(str(found["address"]), bytes.fromhex(found["key"]), str(found["nonce"]))
    except (ValueError, KeyError, TypeError):
        return None  # of another version, or damaged: not rank 0's of this job
