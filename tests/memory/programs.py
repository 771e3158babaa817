"""Random programs of operations in flight, each with one disturbance: how they are drawn.

A program says what all ranks do and what happens to one of them, the victim, between the start of
its operations and their end. Where it is `held`, the other ranks start theirs only when the victim
has been disturbed, so that they are in flight for certain; else both happen at once.
"""

from __future__ import annotations

import dataclasses
import random

# What is done by the victim itself between submission and completion.
DROP = "drop"  # every reference to the tensors, or to model and optimizer, goes
CHANGE = "change"  # the tensors are given other memory: set_, data, resize_
FORK = "fork"  # a child uses hvdtune and ends
FORK_EXEC = "fork and exec"
RAISE = "raise"  # a signal handler raises while it starts and waits
FORGET = "forget"  # nobody waits
COLLECT = "collect garbage"  # Works lie in reference cycles, and the collector runs all the time
MISMATCH = "mismatch"  # one operation fails on all ranks, and they go on
SHUTDOWN = "shutdown"  # it leaves the job, and all ranks form it anew
EXIT = "exit"  # it returns from its main function
# What is done to it.
STOP_SHORT = "stop briefly"  # not long enough to be given up
STOP_LONG = "stop until given up"
KILL = "kill"
NOTHING = "nothing"

FROM_OUTSIDE = (STOP_SHORT, STOP_LONG, KILL)
ENDS_THE_JOB = (STOP_LONG, KILL, EXIT)  # and with it what a job of several programs can run

# What ranks do, by framework. An optimizer's options are its keyword arguments.
KINDS = {
    "torch": ("handles", "handles", "optimizer", "optimizer", "blocking"),
    "tensorflow": ("eager", "graph", "tape"),
    "keras": ("fit",),
    "keras on torch": ("fit",),
    "distributed": ("works",),
}
OPTIMIZERS = ("plain", "groups", "fp16", "sparse", "adasum", "kept gradients", "two passes")
DISTURBANCES = {
    "handles": (
        DROP, CHANGE, FORK, FORK_EXEC, RAISE, FORGET, MISMATCH, SHUTDOWN, EXIT, *FROM_OUTSIDE,
    ),
    "optimizer": (DROP, CHANGE, FORK, FORK_EXEC, RAISE, SHUTDOWN, EXIT, *FROM_OUTSIDE),
    "blocking": (RAISE, NOTHING, *FROM_OUTSIDE),
    "eager": (DROP, RAISE, MISMATCH, SHUTDOWN, *FROM_OUTSIDE),
    "graph": (DROP, RAISE, MISMATCH, SHUTDOWN, *FROM_OUTSIDE),
    "tape": (DROP, RAISE, SHUTDOWN, *FROM_OUTSIDE),
    "fit": (RAISE, NOTHING, *FROM_OUTSIDE),
    "works": (
        DROP, CHANGE, FORK, FORK_EXEC, RAISE, FORGET, COLLECT, MISMATCH, SHUTDOWN, EXIT,
        *FROM_OUTSIDE,
    ),
}  # fmt: skip
WEIGHTS = {STOP_LONG: 0.25, KILL: 0.5, STOP_SHORT: 0.7, EXIT: 0.5, SHUTDOWN: 0.5}

DTYPES = ("float32", "float32", "float64", "float16", "bfloat16", "int64", "uint8")
COUNTS = (1, 37, 4_000, 33_000, 270_000)  # elements; by size tensors take other ways
LARGE = 1_200_000
COLLECTIVES = (
    "allreduce_", "allreduce_", "allreduce", "grouped_allreduce_", "broadcast_", "allgather",
    "alltoall", "reducescatter",
)  # fmt: skip
# With torch.distributed. Of a message a signal handler that raises leaves no trace of whether the
# receipt was there already, except between two ranks.
WITH_WORKS = ("allreduce_", "allreduce_", "broadcast_", "allgather", "alltoall", "message")
MESSAGES = ("any source", "to oneself")
WITH_SENDERS = ("any source", "message")


@dataclasses.dataclass(frozen=True)
class Call:
    """One operation. `shared`: its tensor lies in memory that the ranks of a host share."""

    collective: str
    dtype: str
    count: int
    root: int = 0
    shared: bool = False

    @property
    def is_in_place(self) -> bool:
        return self.collective.endswith("_")


@dataclasses.dataclass(frozen=True)
class Program:
    framework: str
    kind: str
    size: int
    disturbance: str
    victim: int
    held: bool
    calls: tuple[Call, ...]
    options: str  # of an optimizer
    repeats: int  # of what it does
    delay_ms: float  # until what is done from outside, or between signals
    seed: int

    def __str__(self) -> str:
        how = "held" if self.held else "free"
        what = f"{self.framework} {self.kind} {self.options}".strip()
        return f"{what}, {self.disturbance} rank {self.victim} of {self.size} ({how}, {self.seed})"


def draw(seed: int, framework: str, size: int, *, lethal: bool) -> Program:
    """The program of this number; with `lethal` one after which the job cannot go on."""
    chance = random.Random(f"{seed} {framework} {size} {lethal}")
    while True:
        kind = chance.choice(KINDS[framework])
        disturbance = _disturbance(chance, kind)
        options = chance.choice(OPTIMIZERS) if kind == "optimizer" else ""
        # With Adasum a step waits as other functions do: what was interrupted cannot be repeated.
        if (disturbance in ENDS_THE_JOB) == lethal and (options, disturbance) != ("adasum", RAISE):
            break
    from_outside = disturbance in FROM_OUTSIDE
    return Program(
        framework=framework,
        kind=kind,
        size=size,
        disturbance=disturbance,
        victim=chance.randrange(size),
        held=not from_outside
        and kind in ("handles", "optimizer", "works")
        and chance.random() < 0.6,
        calls=tuple(_call(chance, kind, size, disturbance) for _ in range(chance.randint(1, 5))),
        options=options,
        repeats=30 if disturbance in (STOP_LONG, KILL) else 4 if from_outside else 1,
        delay_ms=chance.expovariate(1 / 4.0),
        seed=seed,
    )


def _disturbance(chance: random.Random, kind: str) -> str:
    choices = DISTURBANCES[kind]
    return chance.choices(choices, [WEIGHTS.get(choice, 1.0) for choice in choices])[0]


def _call(chance: random.Random, kind: str, size: int, disturbance: str) -> Call:
    collective = chance.choice(COLLECTIVES)
    if kind == "works":
        collective = chance.choice(WITH_WORKS + MESSAGES * (disturbance != RAISE))
        # Where a rank has left, others may wait for one that has heard of it and will not send.
        if size > 2 and disturbance in (*ENDS_THE_JOB, SHUTDOWN) and collective in WITH_SENDERS:
            collective = "to oneself"
    if kind in ("eager", "graph"):
        collective = collective.rstrip("_").removeprefix("grouped_")
    count = LARGE if chance.random() < 0.06 else chance.choice(COUNTS)
    return Call(
        collective,
        chance.choice(DTYPES),
        count,
        root=chance.randrange(size),
        shared=kind == "handles" and collective.endswith("_") and chance.random() < 0.25,
    )
