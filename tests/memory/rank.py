"""A rank that runs programs, disturbs itself where it is the victim, and says what it has found."""

from __future__ import annotations

import atexit
import gc
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from hvdtune.core.config.environment import Config
from hvdtune.core.rank import collectives, runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import CollectiveError, MismatchError, RankLostError, ShutdownError, UsageError
from tests.memory import programs
from tests.memory.programs import Program
from tests.parallel import ranks

# The folder in which the ranks of torch.distributed meet.
STORE_VARIABLE = "HVDTUNE_TEST_STORE"
CHILD_LIMIT_S = 30
MOST_SIGNALS = 6


class Interrupted(Exception):
    """Raised by the signal handler."""


class Interrupter:
    """A signal whose handler raises, a few times, in the functions that `insist` calls."""

    def __init__(self, chance: random.Random, delay_ms: float, *, in_waits_only: bool) -> None:
        self.raised = 0
        self._chance = chance
        self._delay_ms = delay_ms
        self._in_waits_only = in_waits_only
        self._is_armed = False
        self._kind = chance.choice([Interrupted, KeyboardInterrupt])

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self._is_armed and self._in_waits_only and not _is_waiting(frame):
            self._set_off()
        elif self._is_armed:
            self._is_armed = False
            self.raised += 1
            self._set_off()
            raise self._kind

    def _set_off(self) -> None:
        delay_s = self._chance.expovariate(1000 / (self._delay_ms + 0.02))
        rest = self.raised < MOST_SIGNALS
        signal.setitimer(signal.ITIMER_REAL, max(delay_s, 1e-5) if rest else 0.0)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        before = signal.signal(signal.SIGALRM, self._raise)
        self._set_off()
        try:
            yield
        finally:
            self._is_armed = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def insist(self, function: Callable[[], object]) -> None:
        """Calls the function until it returns."""
        while True:
            try:
                self._is_armed = self.raised < MOST_SIGNALS
                function()
                self._is_armed = False
                return
            except (Interrupted, KeyboardInterrupt):
                continue


def _is_waiting(frame: FrameType | None) -> bool:
    """Whether it waits for what it has submitted: submitting first ends what was abandoned."""
    functions = set()
    while frame is not None:
        if frame.f_code.co_filename.endswith("in_flight.py"):
            functions.add(frame.f_code.co_name)
        frame = frame.f_back
    return "finish" in functions and "submit" not in functions


def in_a_child(body: Callable[[], list[str]]) -> list[str]:
    """Runs `body` in a child of fork; returns what it finds, or that the child was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_LIMIT_S)
        status = 1
        try:
            os.write(write, "\n".join(body()).encode())
            atexit._run_exitfuncs()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    ended = os.waitpid(child, 0)[1]
    return [line for line in text.split("\n") if line] + [f"a child ended by {ended}"] * bool(ended)


def exec_in_a_child() -> list[str]:
    child = os.fork()
    if child == 0:
        os.execv("/bin/true", ["true"])
    ended = os.waitpid(child, 0)[1]
    return [f"a child ended by {ended}"] * bool(ended)


def make_work(program: Program, chance: random.Random) -> Any:
    if program.framework == "torch":
        from tests.memory import torch_work as module
    elif program.framework == "tensorflow":
        from tests.memory import tensorflow_work as module  # type: ignore[no-redef]
    elif program.framework == "distributed":
        from tests.memory import distributed_work as module  # type: ignore[no-redef]
    else:
        from tests.memory import keras_work as module  # type: ignore[no-redef]
    return module.KINDS[program.kind](program, chance)


class Run:
    """One rank's way through a program.

    `forgotten` are the handles that programs of this process have left behind on purpose.
    """

    def __init__(
        self, program: Program, pipe: Connection, config: Config, forgotten: set[int]
    ) -> None:
        self._program = program
        self._pipe = pipe
        self._config = config
        self._forgotten = forgotten
        self._is_victim = runtime.rank() == program.victim
        chance = random.Random(f"{program.seed} {runtime.rank()}")
        self._interrupter = Interrupter(
            chance, program.delay_ms, in_waits_only=program.kind == "blocking"
        )
        self._work = make_work(program, chance)
        self._problems: list[str] = []
        self._errors: list[Exception] = []
        self._succeeded = 0
        self._digest: Any = None

    def run(self) -> dict[str, Any]:
        try:
            with self._interrupter.at_work() if self._raises else nullcontext():
                self._repeat()
        except CollectiveError as error:  # of an operation that could not be started any more
            self._errors.append(error.with_traceback(None))
            self._work.finish()
        self._errors += self._work.errors()
        if self._program.disturbance == programs.SHUTDOWN:
            self._form_anew()
        elif runtime.is_initialized():  # else it has left for good
            try:
                if not any(isinstance(error, RankLostError) for error in self._errors):
                    self._end()
            except CollectiveError as error:
                self._errors.append(error.with_traceback(None))
            if any(isinstance(error, RankLostError) for error in self._errors):
                self._outlive()
        self._problems += [f"raised {e!r}" for e in self._errors if not self._may_raise(e)]
        return {
            "problems": self._problems,
            "succeeded": self._succeeded,
            "errors": [(type(e).__name__, getattr(e, "rank", -1)) for e in self._errors],
            "digest": self._digest,
            "interrupted": self._interrupter.raised,
            "is in the job": runtime.is_initialized(),
        }

    @property
    def _raises(self) -> bool:
        return self._program.disturbance == programs.RAISE and self._is_victim

    def _repeat(self) -> None:
        for _ in range(self._program.repeats):
            self._do_once()
            if self._work.errors():
                break
            self._succeeded += 1

    def _do_once(self) -> None:
        insist = self._interrupter.insist if self._raises else _call
        self._work.prepare()
        if self._program.held and not self._is_victim:
            self._say("ready")
            self._await("go")
        if self._program.disturbance == programs.MISMATCH:
            self._work.start_odd(self._is_victim)
        # What was half done can be started again if it is in flight for certain.
        (insist if self._program.held else _call)(self._work.start)
        if self._program.disturbance in programs.FROM_OUTSIDE:
            self._say("started")
        if self._program.disturbance == programs.COLLECT and not self._is_victim:
            self._work.stay_in_step()
        if self._is_victim:
            self._disturb()
            if self._program.held:
                self._say("disturbed")
        if not (self._is_victim and self._program.disturbance in (programs.FORGET, programs.EXIT)):
            insist(self._work.finish)
            self._problems += self._work.problems()

    def _disturb(self) -> None:
        what = self._program.disturbance
        if what == programs.DROP:
            self._work.drop()
        elif what == programs.CHANGE:
            self._work.change()
        elif what == programs.FORK:
            self._problems += in_a_child(self._work.in_child)
        elif what == programs.FORK_EXEC:
            self._problems += exec_in_a_child()
        elif what == programs.COLLECT:
            self._work.collect()
        elif what == programs.SHUTDOWN:
            leave(self._program)
        elif what == programs.EXIT:
            atexit._run_exitfuncs()

    def _may_raise(self, error: Exception) -> bool:
        what, victim = self._program.disturbance, self._program.victim
        if what == programs.MISMATCH:
            return isinstance(error, MismatchError)
        if what == programs.CHANGE and self._is_victim:
            return isinstance(error, UsageError)
        if what == programs.SHUTDOWN and self._is_victim and "not been initialized" in str(error):
            return True  # of what it had not started before
        if what in (programs.SHUTDOWN, programs.EXIT):
            return isinstance(error, ShutdownError | RankLostError)
        if what in programs.FROM_OUTSIDE and isinstance(error, RankLostError):
            return self._is_victim or error.rank == victim
        return False

    def _end(self) -> None:
        """All have ended: nothing is in flight, and nothing is held any more."""
        collectives.barrier()
        self._digest = self._work.digest()
        memories = self._work.forget()
        collectives.barrier()
        if self._program.disturbance in (programs.FORGET, programs.RAISE) and self._is_victim:
            # A signal handler may have taken the only copy of a handle with it.
            self._forgotten |= set(PROCESS.pending)
        left = set(PROCESS.pending) - self._forgotten
        if left:
            self._problems.append(f"{len(left)} handles are left")
        self._check_nothing_is_held(memories)

    def _check_nothing_is_held(self, memories: list[Any]) -> None:
        gc.collect()
        rows = PROCESS.pending.items()
        kept = {pending.batch for handle, pending in rows if handle in self._forgotten}
        if PROCESS.in_flight - kept:
            self._problems.append(f"{len(PROCESS.in_flight - kept)} batches are in flight")
        held = sum(memory() is not None for memory in memories)
        if held and not set(PROCESS.pending) & self._forgotten:
            self._problems.append(f"the memory of {held} tensors is held")

    def _form_anew(self) -> None:
        """After the victim has left the job, all form another one."""
        leave(self._program)
        self._work.use_again()
        runtime.init(config=self._config)
        collectives.barrier()
        self._problems += self._work.problems_of_memory()
        self._end()

    def _outlive(self) -> None:
        """The job has failed: what this rank has lent is its own again, whatever the others do."""
        self._work.use_again()
        self._say("uses its memory again")
        self._await("over")
        self._problems += self._work.problems_of_memory()
        leave(self._program)
        self._check_nothing_is_held(self._work.forget())
        runtime.init(config=Config())
        collectives.barrier()
        runtime.shutdown()

    def _say(self, what: str) -> None:
        self._pipe.send((what, time.monotonic_ns()))

    def _await(self, what: str) -> None:
        heard = self._pipe.recv()
        assert heard == what, f"{heard} instead of {what}"


def leave(program: Program | None) -> None:
    if program is not None and program.framework == "distributed":
        from tests.memory import distributed_work

        distributed_work.leave()
    runtime.shutdown()


def _call(function: Callable[[], object]) -> None:
    function()


def serve(pipes: list[Connection]) -> int:
    """Runs the programs that come until None does, or this rank is out of the job.

    Returns how many batches are in flight after the end.
    """
    pipe = pipes[runtime.rank()]
    for other in pipes:
        if other is not pipe:
            other.close()
    forgotten: set[int] = set()
    is_in_the_job = True
    last = None
    while is_in_the_job and (program := pipe.recv()) is not None:
        last = program
        report = Run(program, pipe, ranks.CONFIGS[0], forgotten).run()
        pipe.send(("ended", report))
        is_in_the_job = report["is in the job"]
    leave(last)
    gc.collect()
    return len(PROCESS.in_flight)
