"""The text of a batch script. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hvdtune import __version__
from hvdtune.errors import ArgumentError, UsageError
from hvdtune.launcher.plan import is_script
from hvdtune.workflows.submit.batch_job import BatchJob, Scheduler
from hvdtune.workflows.submit.lsf import LSF
from hvdtune.workflows.submit.pbs import PBS
from hvdtune.workflows.submit.slurm import SLURM

SCHEDULERS: Final[Mapping[str, Scheduler]] = {"slurm": SLURM, "pbs": PBS, "lsf": LSF}

# In a line for the scheduler no shell takes quotes away, and each has rules of its own for them.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:@%/+=^{}-]+")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_KEY: Final = """\
# The ranks know each other by this key. It stays in the environment, which only your own processes
# and root can read: never write it into a command line or a file that others can read.
HVDTUNE_KEY="$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \\n')"
export HVDTUNE_KEY
"""


def job_name(command: Sequence[str]) -> str:
    """The name of a job after its script or program: of letters, digits, `_`, `.` and `-`."""
    word = command[0].rpartition("/")[2].removesuffix(".py")
    name = _NOT_IN_A_NAME.sub("-", word).strip("-.")
    return name if name[:1].isalpha() else f"job-{name}".rstrip("-")


def render(job: BatchJob, scheduler: Scheduler) -> str:
    """The batch script. Raises UsageError for values that a line for the scheduler cannot have."""
    for name in ("name", "queue", "account", "output"):
        _check_plain(name, getattr(job, name))
    for directive in job.directives:
        if "\n" in directive:
            raise ArgumentError("directive", "it must be one line", directive)
    if job.per_node and scheduler.start_tasks is None:
        raise UsageError(
            f"--per-node: {scheduler.title} has no program that every site has and that tells "
            "processes their place: write the script by hand, with your site's mpiexec in it "
            "(docs/schedulers.md)"
        )
    lines = [*scheduler.directives(job), *job.directives]
    parts = [
        "#!/bin/bash\n"
        + "".join(f"{scheduler.prefix} {line}\n" for line in lines)
        + f"# Written by `hvdtune submit` ({__version__}) for {scheduler.title}, whose "
        f"`{scheduler.submit}` reads the lines above.\n",
        f"set -e -o pipefail\ncd {shlex.quote(job.folder)}\n",
        _setup(job),
        *(_tasks(job, scheduler) if _by_tasks(job, scheduler) else _hvdtune_run(job, scheduler)),
    ]
    return "\n".join(part for part in parts if part)


def _check_plain(name: str, value: str) -> None:
    if value and not _PLAIN.fullmatch(value):
        names = {"name": "job_name"}
        raise ArgumentError(
            names.get(name, name),
            "a scheduler's line cannot hold it: use letters, digits and _.,:@%/+=^{}- only",
            repr(value),
        )


def _by_tasks(job: BatchJob, scheduler: Scheduler) -> bool:
    return scheduler.start_tasks is not None and (job.per_node or not job.run_options)


def _setup(job: BatchJob) -> str:
    lines = list(job.setup)
    if job.venv:
        lines.append(f"source {shlex.quote(f'{job.venv}/bin/activate')}")
    return "\n".join(["# What --setup and --venv ask for", *lines, ""]) if lines else ""


def _tasks(job: BatchJob, scheduler: Scheduler) -> tuple[str, str]:
    assert scheduler.start_tasks is not None
    what, words = f"One task for each of the {_places(job)}", _command(job)
    if job.per_node:
        what = f"One `hvdtune run` on each node, together the {_places(job)}"
        options = ("run", "-np", str(job.ranks), *job.run_options)
        words = (*job.hvdtune, *options, "--", *job.command)
    return _KEY, f"# {what}\nexec {shlex.join([*scheduler.start_tasks(job), *words])}\n"


def _hvdtune_run(job: BatchJob, scheduler: Scheduler) -> tuple[str, str]:
    # Nodes come once or once for each slot.
    listed = '!seen[$1]++ { printf "%s%s:{ranks}", (n++ ? "," : ""), $1 }'
    awk = f"awk '{listed.replace('{ranks}', str(job.ranks_per_node))}'"
    hosts = (
        f"# The nodes of this job with their ranks, as in a:{job.ranks_per_node},"
        f"b:{job.ranks_per_node}\n"
        f'hosts="$({scheduler.hosts.format(awk=awk)})"\n'
    )
    # Behind `--` every word is the script's.
    words = shlex.join([*job.run_options, "--", *job.command])
    start = f'{shlex.join(job.hvdtune)} run -H "$hosts" {words}'
    return hosts, (
        f"# `hvdtune run` on the first node starts the {_places(job)}, by ssh on the others\n"
        f"exec {start}\n"
    )


def _command(job: BatchJob) -> tuple[str, ...]:
    return (*job.python, *job.command) if is_script(job.command[0]) else job.command


def _places(job: BatchJob) -> str:
    ranks = "1 rank" if job.ranks == 1 else f"{job.ranks} ranks"
    return f"{ranks}, {job.ranks_per_node} on {'a' if job.nodes == 1 else 'each'} node"


def with_interpreter(job: BatchJob, executable: str, hvdtune: Sequence[str]) -> BatchJob:
    """The job with the Python of this environment, unless it sets up another one. Pure."""
    if job.setup or job.venv:
        return job
    return replace(job, python=(executable,), hvdtune=tuple(hvdtune))
