"""What the launcher of an elastic job notes, so that another one can take the job over.

The ranks end with their launcher, so no process is taken over, but what is known of the job is: the
numbers of its workers and generations, how often it was formed anew, which slots have failed, who
was in it when, and how far it was committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.elastic.history import Stay
from hvdtune.launcher.elastic.membership import Former
from hvdtune.own_files import replacement

FILE_NAME: Final = "journal.json"
_VERSION: Final = 1
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# The guard of a launcher that is killed ends its processes at once.
_END_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02


class ProcessMark(msgspec.Struct, frozen=True):
    """A process of this machine, by which no other one can be meant: its number, when it was
    started (in ticks of the kernel's) and the machine's start before that."""

    pid: int
    started: int
    boot: str


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job. Times are in seconds since its first launcher began, at
    `began_unix`; `at_s` is when this was noted. `exit_code` is None while the job runs."""

    v: int = _VERSION
    began_unix: float
    at_s: float
    former: Former
    commits: int
    stays: list[Stay]
    processes: list[ProcessMark]
    exit_code: int | None = None


def write_journal(path: Path, journal: Journal) -> None:
    """Puts it in the place of the one that is there. Raises OSError."""
    with replacement(path) as part:
        part.write_bytes(msgspec.json.encode(journal))


def read_journal(path: Path) -> Journal:
    """The journal of a job that can be taken over.

    Raises UsageError where there is none, or the job has ended well.
    """
    try:
        journal = msgspec.json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        raise UsageError(
            f"--resume: there is no {path}: no elastic job was run with this folder"
        ) from None
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"--resume: {path} cannot be read: {error}") from None
    if journal.v != _VERSION:
        raise UsageError(
            f"--resume: {path} has version {journal.v}, which this hvdtune cannot read"
        )
    if journal.exit_code == 0:
        raise UsageError(f"--resume: the job of {path.parent} has ended, with exit code 0")
    return journal


def mark_of(pid: int) -> ProcessMark | None:
    """The mark of a process that runs, None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return ProcessMark(pid, int(fields[19]), _BOOT_ID.read_text().strip())
    except OSError:
        return None


def await_end(processes: Sequence[ProcessMark]) -> None:
    """Returns when none of them runs, so that none can write its files any more.

    Raises LaunchError naming one that does not end.
    """
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    for process in processes:
        while _runs(process):
            if time.monotonic() > deadline_s:
                raise LaunchError(
                    f"process {process.pid}, a rank of the former launcher, still runs: end it, "
                    "then resume the job"
                )
            time.sleep(_POLL_S)


def _runs(process: ProcessMark) -> bool:
    return process.pid != os.getpid() and mark_of(process.pid) == process
