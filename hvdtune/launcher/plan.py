"""Which rank runs where, and what its process is told. Pure: nothing is started here."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune.core.config.dialect import MOST_RANKS
from hvdtune.core.config.launched import TORCH_PLACE, place_variables
from hvdtune.core.job.child_command import of_ranks
from hvdtune.errors import ArgumentError, UsageError
from hvdtune.launcher.hosts import Host
from hvdtune.plural import counted

_HEAD_BYTES: Final = 256  # the longest first line that the system reads


@dataclass(frozen=True)
class Slot:
    """The place of one rank.

    `cross_rank` counts the hosts that have this local rank, in the order of the host list, and
    `cross_size` is their number.
    """

    rank: int
    host: str
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


def plan_slots(hosts: Sequence[Host], processes: int) -> tuple[Slot, ...]:
    """Fills the hosts in the order given. Raises UsageError when `processes` do not fit."""
    if processes < 1:
        raise ArgumentError("ranks", "a job needs at least one process", processes)
    room = sum(host.slots for host in hosts)
    if processes > MOST_RANKS:
        raise ArgumentError("ranks", f"a job has at most {MOST_RANKS:,} ranks", processes)
    if processes > room:
        raise ArgumentError("ranks", f"the hosts have only {counted(room, 'slot')}", processes)
    sizes: list[int] = []
    for host in hosts:
        sizes.append(min(host.slots, processes - sum(sizes)))
    slots: list[Slot] = []
    for index, (host, size) in enumerate(zip(hosts, sizes, strict=True)):
        for local_rank in range(size):
            peers = [place for place, other in enumerate(sizes) if other > local_rank]
            slots.append(
                Slot(len(slots), host.name, local_rank, size, peers.index(index), len(peers))
            )
    return tuple(slots)


def slot_of(hosts: Sequence[str], rank: int) -> Slot:
    """The place of a rank, by the hosts of all ranks in the order of the ranks."""
    host, sizes = hosts[rank], Counter(hosts)
    local_rank = hosts[:rank].count(host)
    peers = [each for each, size in sizes.items() if size > local_rank]
    return Slot(rank, host, local_rank, sizes[host], peers.index(host), len(peers))


def is_script(word: str) -> bool:
    """Whether a command word is a Python script by its name, to be run by this interpreter."""
    return word.endswith(".py")


def runs_under_python(word: str) -> bool:
    """Return whether a command word is run by this interpreter, as `python WORD` runs it.

    Those are `*.py`, archives (`*.pyz`), and folders and files that are not programs.
    """
    if is_script(word) or word.endswith(".pyz"):
        return True
    return shutil.which(word) is None and Path(word).exists()


def _require_python(path: Path) -> None:
    """Raises UsageError for a folder that Python cannot run, and for a program without its x bit.

    That is a script of another interpreter, or a compiled program.
    """
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise UsageError(f"{path} is a folder without __main__.py: name a script in it")
        return
    if is_script(path.name):
        return
    with contextlib.suppress(OSError), path.open("rb") as file:
        head = file.readline(_HEAD_BYTES)
        is_of_another = head.startswith(b"#!") and b"python" not in head
        if is_of_another or head.startswith(b"\x7fELF"):
            raise UsageError(f"{path} is not executable: chmod +x {path}")


def build_command(words: Sequence[str]) -> tuple[str, ...]:
    """The argument vector of every rank for `train.py ...` or any command.

    Raises UsageError when the script or the program is not there.
    """
    if not words:
        raise UsageError("nothing to run: give a script, as in `hvdtune run -np 2 train.py`")
    if runs_under_python(words[0]):
        if not Path(words[0]).exists():
            raise UsageError(f"there is no script {words[0]}")
        _require_python(Path(words[0]))
        return (of_ranks().executable, *words)
    if shutil.which(words[0]) is None:
        raise UsageError(f"there is no program {words[0]}")
    return tuple(words)


def slot_environ(slot: Slot, size: int) -> dict[str, str]:
    """The variables that tell a process its place: under hvdtune's names, Horovod's and torch's.

    Those of torch do not say where its ranks meet: hvdtune.distributed does (`launched.py`).
    """
    return elastic_environ(slot, size) | _torch_place(slot, size)


def elastic_environ(slot: Slot, size: int) -> dict[str, str]:
    """The variables of a rank whose place may change, which groups of torch.distributed cannot
    follow: those of `slot_environ` except torch's."""
    variables = {"HVDTUNE_HOST": slot.host, "HOROVOD_HOSTNAME": slot.host}
    # Scripts read these as Horovod's launcher sets them; to hvdtune they say that MPI has no part.
    variables |= {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo"}
    place = (slot.local_rank, slot.local_size, slot.cross_rank, slot.cross_size)
    return variables | place_variables(slot.rank, size, *place)


def _torch_place(slot: Slot, size: int) -> dict[str, str]:
    told = (slot.rank, size, slot.local_rank, slot.local_size)
    return dict(zip(TORCH_PLACE, map(str, told), strict=True))


def torch_environ(slot: Slot, size: int, address: str, port: int) -> dict[str, str]:
    """The variables by which `torch.distributed.init_process_group` finds its place, as torchrun
    sets them; rank 0 listens at the address."""
    return _torch_place(slot, size) | {
        "GROUP_RANK": str(slot.cross_rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


def starts_its_own_ranks(words: Sequence[str]) -> bool:
    """Whether the command is torch's launcher."""
    return Path(words[0]).name == "torchrun" or any(
        word in ("torch.distributed.run", "torch.distributed.launch") for word in words[1:3]
    )
