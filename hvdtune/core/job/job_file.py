"""The file with rank 0's offer: its address, and the job's key."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hvdtune import own_files
from hvdtune.core.job.rendezvous import Offer, TakenError
from hvdtune.errors import HvdtuneError, UsageError

_MOST_BYTES: Final = 4096
_NONCE_BYTES: Final = 16
# An older file is that of a killed job.
_FORGOTTEN_S: Final = 7 * 24 * 3600.0


class JobFile:
    """The file of one job in a folder that only the user can write to and that the hosts share.

    Args:
        makes_folder: whether rank 0 makes the folder if it is missing.
    """

    def __init__(self, folder: Path, job: str, *, makes_folder: bool = True) -> None:
        digest = hashlib.blake2b(job.encode(), digest_size=8).hexdigest()
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", job)[:40].strip("-.")
        self._folder, self._makes_folder = folder, makes_folder
        self.path = folder / f"{readable}-{digest}.json"

    @contextlib.contextmanager
    def offered(self, address: str, key: bytes) -> Iterator[None]:
        """Keep the file while the block runs. It is never incomplete; only this user can read it.

        Raises UsageError if it cannot be written, and TakenError.
        """
        nonce = secrets.token_hex(_NONCE_BYTES)
        text = Offer(address, key, nonce).to_json()
        try:
            if self._makes_folder:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.require_folder()
            self._forget_old_ones()
            self._add(text)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            yield
        finally:
            # Another process may have replaced the file.
            if (there := self.read()) is not None and there.nonce == nonce:
                self.path.unlink(missing_ok=True)

    def require_folder(self) -> None:
        """Raises UsageError for a folder that is a link, is open to others, or is missing and not
        made."""
        try:
            if self.has_folder or not self._makes_folder:
                own_files.require_own(self._folder, advice="")
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(
            f"Rank 0 cannot write a file for the other ranks in {self._folder}: "
            f"{error.strerror or error}. Set HVDTUNE_SHARED_FOLDER to a folder of your own that "
            "the hosts share, or HVDTUNE_KEY to the same key on all ranks"
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
                    raise TakenError(
                        f"Another process of this job listens on {there.address} ({self.path})"
                    ) from None
                self._remove(there)

    def _remove(self, left: Offer | None) -> None:
        """Remove the file unless its content is no longer `left`."""
        aside = self.path.with_name(f".{secrets.token_hex(_NONCE_BYTES)}.part")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            if _read(aside) != left:
                with contextlib.suppress(FileExistsError):
                    own_files.add(aside, self.path)
            aside.unlink()

    @property
    def has_folder(self) -> bool:
        """Return whether the folder exists."""
        return self._folder.is_dir()

    def read(self) -> Offer | None:
        """Return rank 0's offer, if any. Raises HvdtuneError if other users can read the file."""
        return _read(self.path)

    def refresh(self) -> None:
        """Make this host ask the file server again.

        A client of NFS remembers for up to a minute that a file is missing, unless it changes the
        folder itself.
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
            raise HvdtuneError(
                f"{path} belongs to another user, or other users can read it. Remove it"
            )
        text = file.read(_MOST_BYTES)
    try:
        return Offer.from_json(text)
    except (ValueError, KeyError, TypeError):
        return None  # of another version, or damaged
