"""Runs programs on the ranks of a job, disturbs ranks from outside, and judges what they say."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.memory import programs, sanitized
from tests.memory.programs import Program
from tests.memory.rank import STORE_VARIABLE, serve
from tests.parallel.ranks import Job, Server, start

HEARTBEAT_TIMEOUT_S = 0.5
SILENCE_S = 120.0  # of all ranks: they hang
SHORT_STOP_S = 0.03
KERAS_ON_TORCH = Server("hvdtune.keras", KERAS_BACKEND="torch")
# What each rank would otherwise import for itself, which the sanitizer makes slow. An optimizer of
# torch imports torch._dynamo.
_IMPORTED = {
    "torch": "torch._dynamo",
    "tensorflow": "hvdtune.tensorflow",
    "keras": "hvdtune.keras",
    "keras on torch": "hvdtune.keras",
    "distributed": "hvdtune.distributed",
}


def sanitized_server(framework: str) -> Server:
    """Returns a server whose processes have the core of tests.memory.sanitized."""
    variables = sanitized.variables()
    if framework == "keras on torch":
        variables["KERAS_BACKEND"] = "torch"
    return Server(_IMPORTED[framework], first="tests.memory.sanitized_core", **variables)


@dataclass
class Ending:
    """How a program ended: `reports` by rank, of those that sent one, and what is wrong."""

    program: Program
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)

    def kind(self) -> str:
        """In a few words, for counting."""
        errors = Counter(e for report in self.reports.values() for e, _ in report["errors"])
        victim = self.program.victim
        if self.program.disturbance == programs.STOP_LONG and victim in self.dead:
            return "killed by the survivors"
        return " and ".join(sorted(errors)) or "right results"


class Conversation:
    """The controller's side of a program: what ranks have said, and what they are told then."""

    def __init__(self, job: Job, pipes: Sequence[Connection], program: Program) -> None:
        self._job = job
        self._pipes = pipes
        self._program = program
        self._ending = Ending(program)
        self._ready: set[int] = set()
        self._outlive: set[int] = set()
        self._is_disturbed = False
        self._is_over = False
        self._actions: list[tuple[float, int]] = []  # when to send which signal to the victim
        self._is_planned = False

    def hold(self) -> Ending:
        for pipe in self._pipes:
            pipe.send(self._program)
        while self._missing():
            self._act()
            self._answer()
            limit_s = self._actions[0][0] - time.monotonic() if self._actions else SILENCE_S
            waiting = {self._pipes[rank]: rank for rank in self._missing()}
            ends = {self._job.processes[rank].sentinel: rank for rank in self._missing()}
            heard = wait([*waiting, *ends], max(limit_s, 0.0))
            if not heard and not self._actions:
                self._ending.problems.append(f"ranks {sorted(self._missing())} hang")
                break
            for source in heard:
                if source in waiting:
                    self._hear(waiting[source])  # type: ignore[index]
                elif not self._pipes[ends[source]].poll():  # type: ignore[index]
                    self._ending.dead.add(ends[source])  # type: ignore[index]
        if self._program.disturbance == programs.STOP_LONG:
            # A victim that was done before its time came would stay stopped.
            self._actions = [(0.0, signal.SIGCONT)]
        while self._actions:
            self._actions[0] = (0.0, self._actions[0][1])
            self._act()
        return self._ending

    def _missing(self) -> set[int]:
        return set(range(self._program.size)) - set(self._ending.reports) - self._ending.dead

    def _hear(self, rank: int) -> None:
        try:
            what, content = self._pipes[rank].recv()
        except (EOFError, OSError):
            self._job.processes[rank].join(10.0)
            self._ending.dead.add(rank)
            return
        if what == "ended":
            self._ending.reports[rank] = content
        elif what == "ready":
            self._ready.add(rank)
        elif what == "disturbed":
            self._is_disturbed = True
        elif what == "uses its memory again":
            self._outlive.add(rank)
        elif what == "started" and rank == self._program.victim and not self._is_planned:
            self._plan()

    def _plan(self) -> None:
        self._is_planned = True
        at = time.monotonic() + self._program.delay_ms / 1000
        if self._program.disturbance == programs.KILL:
            self._actions = [(at, signal.SIGKILL)]
        else:
            self._actions = [(at, signal.SIGSTOP)]
            if self._program.disturbance == programs.STOP_SHORT:
                self._actions.append((at + SHORT_STOP_S, signal.SIGCONT))

    def _act(self) -> None:
        while self._actions and self._actions[0][0] <= time.monotonic():
            number = self._actions.pop(0)[1]
            process = self._job.processes[self._program.victim]
            if process.is_alive():
                os.kill(process.pid, number)

    def _answer(self) -> None:
        victim = self._program.victim
        others = set(range(self._program.size)) - {victim}
        if self._is_disturbed and self._ready:
            for rank in self._ready:
                self._pipes[rank].send("go")
            self._ready = set()
        quiet = self._outlive | set(self._ending.reports) | self._ending.dead
        if self._program.disturbance == programs.STOP_LONG and others <= quiet:
            self._actions = [(0.0, signal.SIGCONT)] if self._is_planned else []
            self._act()
            self._is_planned = False
        if self._outlive and quiet >= others | {victim} and not self._is_over:
            self._is_over = True
            for rank in self._outlive - self._ending.dead:
                self._pipes[rank].send("over")


def judge(ending: Ending, *, tells_in_time: bool) -> None:
    """Adds what is wrong with what the ranks said, all together.

    `tells_in_time`: nobody is given up without hearing of it before it reports success.
    """
    program, reports = ending.program, ending.reports
    for rank, report in reports.items():
        ending.problems += [f"rank {rank}: {problem}" for problem in report["problems"]]
    digests = {str(r["digest"]) for r in reports.values() if r["digest"] is not None}
    if len(digests) > 1:
        ending.problems.append(f"ranks have other results: {sorted(digests)}")
    if program.disturbance == programs.STOP_LONG and program.victim in reports and tells_in_time:
        mine = reports[program.victim]["succeeded"]
        theirs = min(r["succeeded"] for rank, r in reports.items() if rank != program.victim)
        if mine > theirs:
            ending.problems.append(f"the rank given up reports {mine} successes, not {theirs}")
    allowed = {programs.KILL, programs.STOP_LONG}
    for rank in ending.dead:
        if rank != program.victim or program.disturbance not in allowed:
            ending.problems.append(f"rank {rank} died")


def run_job(todo: Sequence[Program], *, transport: str = "auto", **options: Any) -> list[Ending]:
    """The endings of programs of one framework and size, run one after the other by one job.

    After one that ends the job the rest is left out.
    """
    first = todo[0]
    if "forked_from" in options:
        pass
    elif first.framework == "keras on torch":
        options["forked_from"] = KERAS_ON_TORCH
    elif first.framework in ("tensorflow", "keras"):
        options["tensorflow"] = True
    ends = [multiprocessing.Pipe() for _ in range(first.size)]
    pipes, theirs = [end for end, _ in ends], [end for _, end in ends]
    endings: list[Ending] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as store,
        start(
            serve,
            first.size,
            theirs,
            transport=transport,
            heartbeat_s=HEARTBEAT_TIMEOUT_S,
            variables=[{STORE_VARIABLE: store}] * first.size,
            **options,
        ) as job,
    ):
        for end in theirs:
            end.close()
        for program in todo:
            ending = Conversation(job, pipes, program).hold()
            endings.append(ending)
            in_job = [report["is in the job"] for report in ending.reports.values()]
            judge(ending, tells_in_time=transport == "auto" and not options.get("hosts"))
            if ending.problems or ending.dead or not all(in_job):
                break
        _end_job(job, pipes, endings[-1])
    for pipe in pipes:
        pipe.close()
    return endings


def _end_job(job: Job, pipes: Sequence[Connection], ending: Ending) -> None:
    if any("hang" in problem for problem in ending.problems):
        return
    for rank, pipe in enumerate(pipes):
        report = ending.reports.get(rank)
        if report is not None and report["is in the job"]:
            pipe.send(None)
    try:
        outcomes = job.outcomes()
    except AssertionError as error:  # a rank hangs
        ending.problems.append(f"at the end of the job, {error}")
        return
    for outcome in outcomes:
        process = job.processes[outcome.rank]
        was_killed = outcome.rank in ending.dead and process.exitcode == -signal.SIGKILL
        if outcome.error is not None:
            ending.problems.append(f"rank {outcome.rank}:\n{outcome.trace}")
        elif process.exitcode != 0 and not was_killed:
            ending.problems.append(f"rank {outcome.rank} ended with code {process.exitcode}")
        elif outcome.value and not was_killed:
            ending.problems.append(f"rank {outcome.rank}: {outcome.value} batches are in flight")
