"""Where the processes of a job meet that a scheduler or another launcher has started."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hvdtune import parse
from hvdtune.core.config.dialect import ToldPlace
from hvdtune.core.config.key_source import users_key
from hvdtune.errors import UsageError

# Below the ports that the kernel hands out (from 32768), and without torch's 29500.
FIRST_PORT: Final = 20_000
PORTS: Final = 9_000
_A_PORT: Final = "name one from 1024 to 65535, or unset it for one that follows from the job"
_OF_OTHERS: Final = ("MASTER_PORT", "PET_MASTER_PORT")


@dataclasses.dataclass(frozen=True)
class MeetingPoint:
    """What the environment says about it.

    Attributes:
        place: of this process, as its launcher tells it.
        job: the same for all processes that were started together and for no others, "" where
            that is not told.
        folder: where rank 0 leaves a file for the others, if no key was given.
        is_folder_chosen: whether the user has named the folder, which is not made then.
        key: the user's, b"" for none.
        host: the one at which rank 0 listens, "" where that is not told.
        port: at which rank 0 listens on it, 0 for one that follows from `job`.
        taken: ports that belong to others.
    """

    place: ToldPlace
    job: str
    folder: Path
    is_folder_chosen: bool = False
    key: bytes = dataclasses.field(default=b"", repr=False)
    host: str = ""
    port: int = 0
    taken: tuple[int, ...] = ()

    @property
    def is_by_port(self) -> bool:
        """Whether the ranks meet at a host and a port, without a file."""
        return bool(self.key) and (bool(self.host) or self.place.is_on_one_host)

    def port_of(self, job: str) -> int:
        """The port of a job, from 20000 to 28999 and none of `taken`, unless one was given."""
        if self.port:
            return self.port
        first = zlib.crc32(job.encode()) % PORTS
        numbers = (FIRST_PORT + (first + step) % PORTS for step in range(PORTS))
        return next(number for number in numbers if number not in self.taken)


def read_meeting_point(env: Mapping[str, str], place: ToldPlace, cache: Path) -> MeetingPoint:
    """The meeting point of a process that was told this place.

    Args:
        cache: the folder in which the default folder lies.

    Raises:
        UsageError: a value that cannot be, or a port without a key.
    """
    key = users_key(env)
    port = chosen_port(env)
    if port and not key:
        raise UsageError(
            f"HVDTUNE_RENDEZVOUS_PORT={port} needs a key by which the ranks know each other: set "
            "HVDTUNE_KEY_FILE or HVDTUNE_KEY"
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
    """HVDTUNE_RENDEZVOUS_PORT, 0 where it is not set. Raises UsageError for what is no port."""
    text = env.get("HVDTUNE_RENDEZVOUS_PORT", "")
    if not text:
        return 0
    try:
        port = parse.count(text)
    except ValueError as error:
        raise UsageError(f"HVDTUNE_RENDEZVOUS_PORT={text} {error}: {_A_PORT}") from None
    if port > 65535:
        raise UsageError(f"HVDTUNE_RENDEZVOUS_PORT={text} is no port: {_A_PORT}")
    return port


def _hosts_of_file(path: str) -> tuple[str, ...]:
    """The hosts of a file that has one on each line, each once; none where it cannot be read."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split() if path else []
    except (OSError, UnicodeDecodeError):
        return ()
    first = {name.lower(): name for name in reversed(lines)}  # however each is spelled
    return tuple(first[name] for name in dict.fromkeys(map(str.lower, lines)))
