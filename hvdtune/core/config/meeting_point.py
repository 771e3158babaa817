"""The meeting point of a job that a scheduler or another launcher has started."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hvdtune import parse
from hvdtune.core.config.dialect import LauncherPlace
from hvdtune.core.config.key_source import users_key
from hvdtune.errors import UsageError

# Below the ports that the kernel hands out (from 32768), and without torch's 29500.
FIRST_PORT: Final = 20_000
PORTS: Final = 9_000
_A_PORT: Final = "Set a port from 1024 to 65535, or unset it to derive one from the job"
_OF_OTHERS: Final = ("MASTER_PORT", "PET_MASTER_PORT")


@dataclasses.dataclass(frozen=True)
class MeetingPoint:
    """The place where the ranks of such a job find each other.

    Attributes:
        place: place of this process.
        job: name that all processes of one start share, and no others, "" if not set.
        folder: folder of the file with rank 0's address, if there is no key.
        is_folder_chosen: whether the user has set the folder, so that it is not made.
        key: the user's key, b"" for none.
        host: host on which rank 0 listens, "" if not set.
        port: its port, 0 to derive one from `job`.
        taken: ports of other programs.
    """

    place: LauncherPlace
    job: str
    folder: Path
    is_folder_chosen: bool = False
    key: bytes = dataclasses.field(default=b"", repr=False)
    host: str = ""
    port: int = 0
    taken: tuple[int, ...] = ()

    @property
    def is_by_port(self) -> bool:
        """True if the ranks meet at a host and a port, without a file."""
        return bool(self.key) and (bool(self.host) or self.place.is_on_one_host)

    def port_of(self, job: str) -> int:
        """Return the port of a job: `port`, else one from 20000 to 28999 that is not `taken`."""
        if self.port:
            return self.port
        first = zlib.crc32(job.encode()) % PORTS
        numbers = (FIRST_PORT + (first + step) % PORTS for step in range(PORTS))
        return next(number for number in numbers if number not in self.taken)


def read_meeting_point(env: Mapping[str, str], place: LauncherPlace, cache: Path) -> MeetingPoint:
    """Read the meeting point of a process at this place.

    Args:
        cache: parent of the default folder.

    Raises:
        UsageError: a wrong value, or a port without a key.
    """
    key = users_key(env)
    port = chosen_port(env)
    if port and not key:
        raise UsageError(
            f"HVDTUNE_RENDEZVOUS_PORT={port} needs a key. Set HVDTUNE_KEY_FILE or HVDTUNE_KEY to "
            "the same key on all ranks"
        )
    hosts = place.hosts or _hosts_of_file(place.hosts_file)
    return MeetingPoint(
        dataclasses.replace(place, hosts=hosts),
        job=env.get("HVDTUNE_JOB_ID") or place.job,
        folder=Path(env.get("HVDTUNE_SHARED_FOLDER") or cache / "jobs").expanduser(),
        is_folder_chosen=bool(env.get("HVDTUNE_SHARED_FOLDER")),
        key=key,
        host=env.get("HVDTUNE_RENDEZVOUS_HOST") or next(iter(hosts), ""),
        port=port,
        taken=tuple(int(env[name]) for name in _OF_OTHERS if env.get(name, "").isdigit()),
    )


def chosen_port(env: Mapping[str, str]) -> int:
    """Return HVDTUNE_RENDEZVOUS_PORT, 0 if it is not set. Raises UsageError."""
    text = env.get("HVDTUNE_RENDEZVOUS_PORT", "")
    if not text:
        return 0
    try:
        port = parse.count(text)
    except ValueError as error:
        raise UsageError(f"HVDTUNE_RENDEZVOUS_PORT={text} {error}. {_A_PORT}") from None
    if port > 65535:
        raise UsageError(f"HVDTUNE_RENDEZVOUS_PORT={text} is not a port. {_A_PORT}")
    return port


def _hosts_of_file(path: str) -> tuple[str, ...]:
    """Return the different hosts of a file with one per line, () for an unreadable file."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split() if path else []
    except (OSError, UnicodeDecodeError):
        return ()
    first = {name.lower(): name for name in reversed(lines)}  # however each is spelled
    return tuple(first[name] for name in dict.fromkeys(map(str.lower, lines)))
