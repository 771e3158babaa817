"""A batch job, and the properties of a scheduler that its script depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchJob:
    """A job for a scheduler. An empty text or a 0 is an option that is not set.

    Attributes:
        command: the script or program with its arguments.
        folder: where the command starts.
        python: the words that start Python there.
        hvdtune: the words that start hvdtune there.
        run_options: options of `hvdtune run`, which then starts the ranks.
        setup: lines of shell.
        venv: the folder of a virtual environment.
        directives: further options of the scheduler.
        per_node: the scheduler starts one `hvdtune run` on each node; no ssh is needed.
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
        """Return the number of processes that the scheduler starts on each node."""
        return 1 if self.per_node else self.ranks_per_node

    @property
    def cpus_per_task(self) -> int:
        """Return the number of processors of each; 0 if the scheduler chooses it."""
        if not self.per_node:
            return self.cpus_per_rank
        # The ranks of a task can use only the processors of the task.
        return self.ranks_per_node * (self.cpus_per_rank or 1)

    @property
    def ranks(self) -> int:
        """Return the number of ranks."""
        return self.nodes * self.ranks_per_node


@dataclass(frozen=True)
class Scheduler:
    """The properties of a scheduler.

    Attributes:
        submit: the program that reads a batch script from stdin.
        prefix: the beginning of a line for the scheduler.
        directives: makes these lines.
        hosts: a shell command in which `{awk}` reads the nodes of a job, each at least once.
        options_of: returns the options of a line in one spelling; two lines cannot set the same.
        start_tasks: makes the words that start the tasks of a job; None if not every scheduler of
            this kind has such a program.
        start_node: without `start_tasks`, a shell command that starts the content of `$start` on
            the node with number `$node`.
        names_nodes: a shell command that sets the array `hosts` to the nodes' names, if
            `start_node` needs it.
        gives_way: options whose lines are omitted if the user sets them.
        queue: the scheduler's word for a queue.
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
    """Return a time limit, as in 36:30:00; a part of a second counts as one."""
    whole = int(-(-seconds // 1))
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
