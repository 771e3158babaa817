"""What it costs a process to be initialised while nothing is communicated.

    python studies/bench/idle.py

Two ranks of a job (A) and two processes of no job (B) stand by. First the ranks' processor time is
taken over some seconds in which nothing is asked of them. Then the same computation, one thread per
process, runs on A and on B in turn, as A B B A and B A A B; who is not running is stopped, the
launcher with the ranks. Each group gives one log ratio of the slower process's times. Wants two
cores and a quiet machine.
"""

import argparse
import hashlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import psutil
from paired import percent_with_interval

SETTLE_S = 0.02


def work(command: dict[str, Any]) -> float:
    """Seconds: of processor time while asleep, or that a fixed computation took."""
    if command["what"] == "sleep":
        begin = time.process_time()
        time.sleep(command["seconds"])
        return time.process_time() - begin
    block = bytes(1 << 20)
    begin = time.perf_counter()
    for _ in range(command["blocks"]):
        hashlib.sha256(block).digest()
    return time.perf_counter() - begin


def worker(port: int, *, initialise: bool) -> None:
    import hvdtune.torch as hvd

    if initialise:
        hvd.init()
        hvd.barrier()
    with socket.create_connection(("127.0.0.1", port)) as peer, peer.makefile("rw") as stream:
        print("A" if initialise else "B", os.getpid(), file=stream, flush=True)
        for line in stream:
            print(work(json.loads(line)), file=stream, flush=True)


class Side:
    """Two workers, stopped unless they are asked."""

    def __init__(self, command: list[str], copies: int, server: socket.socket) -> None:
        port = str(server.getsockname()[1])
        self.started = [subprocess.Popen([*command, port]) for _ in range(copies)]
        self.streams = [server.accept()[0].makefile("rw") for _ in range(2)]
        self.pids = [int(stream.readline().split()[1]) for stream in self.streams]

    def signal(self, number: int) -> None:
        for process in map(psutil.Process, [child.pid for child in self.started]):
            for one in [process, *process.children(recursive=True)]:
                one.send_signal(number)

    def ask(self, **command: Any) -> list[float]:
        self.signal(signal.SIGCONT)
        time.sleep(SETTLE_S)
        for stream in self.streams:
            print(json.dumps(command), file=stream, flush=True)
        answers = [float(stream.readline()) for stream in self.streams]
        self.signal(signal.SIGSTOP)
        return answers

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        for stream in self.streams:
            stream.close()
        for child in self.started:
            child.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--groups", type=int, default=80)
    parser.add_argument("--blocks", type=int, default=150, help="MiB hashed per measurement")
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--worker", choices=("A", "B"))
    parser.add_argument("port", type=int, nargs="?")
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments.port, initialise=arguments.worker == "A")
    launch = [sys.executable, "-m", "hvdtune", "run", "-np", "2", __file__, "--worker", "A"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        sides = {
            "A": Side(launch, 1, server),
            "B": Side([sys.executable, __file__, "--worker", "B"], 2, server),
        }
    try:
        for side in sides.values():
            side.ask(what="compute", blocks=arguments.blocks)
        idle = sides["A"].ask(what="sleep", seconds=arguments.idle_seconds)
        ratios = []
        for group in range(arguments.groups):
            logs = {"A": 0.0, "B": 0.0}
            for letter in "ABBA" if group % 2 == 0 else "BAAB":
                taken = max(sides[letter].ask(what="compute", blocks=arguments.blocks))
                logs[letter] += math.log(taken) / 2
            ratios.append(logs["A"] - logs["B"])
    finally:
        for side in sides.values():
            side.end()
    report(idle, ratios, arguments)


def report(idle: list[float], ratios: list[float], arguments: argparse.Namespace) -> None:
    share = max(100 * one / arguments.idle_seconds for one in idle)
    print(
        f"an initialised, idle process uses {share:.3f} % of a core "
        f"(the higher of {len(idle)} over {arguments.idle_seconds:g} s)"
    )
    print(
        f"being initialised slows a computation on both cores by {percent_with_interval(ratios)}, "
        f"{len(ratios)} groups of 4 measurements"
    )


if __name__ == "__main__":
    main()
