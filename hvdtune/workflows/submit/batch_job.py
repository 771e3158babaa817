"""What a batch script is written from, and what a scheduler is to the one who writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchJob:
    """A job for a scheduler.

    `command` is the script or program with its arguments, started in `folder`; `run_options` are
    options of `hvdtune run`, which is then what starts the ranks. `python` and `hvdtune` are the
    words that start these two there. With `per_node` the scheduler starts one `hvdtune run` on each
    node, and no ssh is needed. `setup` are lines of shell, `venv` the folder of a virtual
    environment, `directives` further options of the scheduler. Texts that are "" and numbers that
    are 0 stand for nothing.
    """

    command: tuple[str, ...]
    folder: str
    name: str
    python: tuple[str, ...] = ("python",)
    hvdtune: tuple[str, ...] = ("hvdtune",)
    run_options: tuple[str, ...] = ()
    nodes: int = 1
    ranks_per_node: int = 1
    gpus_per_node: int = 0
    cpus_per_rank: int = 0
    time_s: float = 0.0
    queue: str = ""
    account: str = ""
    output: str = ""
    setup: tuple[str, ...] = ()
    venv: str = ""
    directives: tuple[str, ...] = ()
    per_node: bool = False

    @property
    def tasks_per_node(self) -> int:
        """How many processes the scheduler starts on each node."""
        return 1 if self.per_node else self.ranks_per_node

    @property
    def cpus_per_task(self) -> int:
        """How many processors each of them has, 0 where that is left to the scheduler."""
        if not self.per_node:
            return self.cpus_per_rank
        # What a task does not ask for its ranks cannot use.
        return self.ranks_per_node * (self.cpus_per_rank or 1)

    @property
    def ranks(self) -> int:
        """How many ranks the job has."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True)
class Scheduler:
    """A row of the table.

    `submit` is the program that takes a batch script on its stdin, `prefix` what begins a line for
    the scheduler in it, and `directives` makes these lines. `hosts` is a shell command in which
    `{awk}` reads the nodes of a job, each once or several times. `start_tasks` makes the words that
    start the tasks of a job, None where schedulers of this kind have no such program everywhere.
    `start_node` is a shell command that starts what `$start` holds on the node of number `$node`,
    "" where `start_tasks` does that; `names_nodes` is one that makes `hosts` the array of their
    names, where it needs them. `options_of` has the names of the scheduler's options in
    one of its lines, each under one spelling, of which no two lines may set the same; a line with
    one of `gives_way` is left out where the user has one. `queue` is what a queue is called.
    """

    title: str
    submit: str
    prefix: str
    directives: Callable[[BatchJob], list[str]]
    hosts: str
    options_of: Callable[[str], frozenset[str]]
    start_tasks: Callable[[BatchJob], list[str]] | None = None
    start_node: str = ""
    names_nodes: str = ""
    gives_way: frozenset[str] = frozenset()
    queue: str = "queue"


def hours_minutes_seconds(seconds: float) -> str:
    """A time limit, as in 36:30:00; a part of a second counts as one."""
    whole = int(-(-seconds // 1))
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
