"""A Slurm of the test's own: its daemons run as long as the block, in a folder of their own."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.parallel.netns import Host

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scontrol")
_CPUS = 16
# The nodes know each other by name.
_WITH_NAMES = 'mount --bind "$0" /etc/hosts && exec "$@"'
_START_S = 60.0


def why_not() -> str:
    """Why there can be no Slurm here, "" if there can."""
    if os.geteuid() != 0:
        return "starting Slurm's daemons needs root"
    missing = [name for name in _PROGRAMS if not _program(name)]
    return f"not installed: {', '.join(missing)} (of slurm-wlm and munge)" if missing else ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


class Cluster:
    """Some hosts of tests.parallel.netns, or this machine as the only node of a cluster."""

    def __init__(self, folder: Path, hosts: Sequence[Host], lost_after_s: int) -> None:
        self.folder, self.hosts = folder, hosts
        self._lost_after_s = lost_after_s
        self.environ = {"SLURM_CONF": str(folder / "slurm.conf")}
        self.nodes = [(host.name, host.address) for host in hosts]
        self.nodes = self.nodes or [(socket.gethostname().partition(".")[0], "127.0.0.1")]

    @property
    def _names(self) -> Path:
        return self.folder / "hosts"

    def on(self, number: int, *command: str) -> list[str]:
        """The command, on a node."""
        if not self.hosts:
            return list(command)
        where = ["nsenter", "-t", str(self.hosts[number].pid), "--net", "--uts"]
        return [*where, "unshare", "--mount", "sh", "-c", _WITH_NAMES, str(self._names), *command]

    def write(self) -> None:
        """Writes the configuration and a key for munge."""
        folder = self.folder
        control, node = _free_ports(2)
        first, address = self.nodes[0]
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={address} CPUs={_CPUS} State=UNKNOWN"
            for name, address in self.nodes
        )
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in self.nodes)]
        self._names.write_text("\n".join(lines) + "\n")
        for part in ("state", "spool"):
            (folder / part).mkdir()
        key = folder / "munge.key"
        key.touch(0o400)
        key.write_bytes(os.urandom(1024))
        (folder / "slurm.conf").write_text(
            f"""
ClusterName=test
SlurmctldHost={first}({address})
SlurmctldPort={control}
SlurmdPort={node}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=2
SlurmdTimeout={self._lost_after_s}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
        )

    def processes(self, number: int) -> list[int]:
        """All processes on a host, but for the one that holds its namespaces."""
        holder = self.hosts[number].pid
        network = os.readlink(f"/proc/{holder}/ns/net")
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):  # it has ended
                if folder.name.isdigit() and os.readlink(folder / "ns/net") == network:
                    found.append(int(folder.name))
        return [pid for pid in found if pid != holder]

    def clear(self, number: int) -> None:
        """Kills what daemons that were killed themselves have left on a host."""
        for pid in self.processes(number):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, *command: str, **options) -> subprocess.CompletedProcess:
        """The finished process of one of Slurm's commands."""
        environ = options.pop("env", os.environ) | self.environ
        return subprocess.run(
            self.on(0, *command),
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **options,
        )


def _free_ports(count: int) -> Sequence[int]:
    with ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in servers]


@contextmanager
def cluster(folder: Path, hosts: Sequence[Host] = (), lost_after_s: int = 300) -> Iterator[Cluster]:
    """A cluster whose nodes take jobs, its controller on the first.

    A node that does not answer is taken for lost after `lost_after_s`.
    """
    made = Cluster(folder, hosts, lost_after_s)
    made.write()
    with ExitStack() as stack:
        for number in range(len(hosts)):
            stack.callback(made.clear, number)

        def start(name: str, *words: str, on: int = 0) -> None:
            log = stack.enter_context((folder / f"{name}-{on}.out").open("wb"))
            daemon = subprocess.Popen(
                made.on(on, _program(name), *words),
                env=os.environ | made.environ,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(daemon.wait)
            stack.callback(daemon.terminate)

        start(
            *("munged", "--foreground", "--force", f"--key-file={folder}/munge.key"),
            *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"),
            *(f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"),
        )
        _wait_for(lambda: (folder / "munge.socket").exists(), "munged")
        start("slurmctld", "-D", "-c")
        for number in range(len(made.nodes)):
            start("slurmd", "-D", on=number)
        idle = f"{len(made.nodes)} idle"
        _wait_for(lambda: idle in made.run("sinfo", "-h", "-o", "%D %T").stdout, "slurmd")
        yield made


def _wait_for(condition, what: str) -> None:
    deadline_s = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{what} has not started in {_START_S:g} s")
        time.sleep(0.1)
