"""The text of a batch script. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hvdtune import __version__
from hvdtune.errors import ArgumentError
from hvdtune.launcher.plan import runs_under_python
from hvdtune.workflows.submit.batch_job import BatchJob, Scheduler
from hvdtune.workflows.submit.lsf import LSF
from hvdtune.workflows.submit.pbs import PBS
from hvdtune.workflows.submit.slurm import SLURM

SCHEDULERS: Final[Mapping[str, Scheduler]] = {"slurm": SLURM, "pbs": PBS, "lsf": LSF}

# No shell removes quotes in a line for the scheduler, and each scheduler has its own rules.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.,:@%/+=^{}-]+")
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_KEY: Final = """\
# The ranks authenticate each other with this key. It stays in the environment, which only your own
# processes and root can read. Never write it on a command line or into a file that others can read.
HVDTUNE_KEY="$(od -An -v -N32 -tx1 /dev/urandom | tr -d ' \\n')"
export HVDTUNE_KEY
"""


def job_name(command: Sequence[str]) -> str:
    """Return a name of letters, digits, `_`, `.` and `-` for a script or program."""
    script = next((word for word in command if word.endswith(".py")), command[0])
    word = script.rpartition("/")[2].removesuffix(".py")
    name = _NOT_IN_A_NAME.sub("-", word).strip("-.")
    return name if name[:1].isalpha() else f"job-{name}".rstrip("-")


def render(job: BatchJob, scheduler: Scheduler) -> str:
    """Return the batch script. Raises UsageError for values that are invalid in its lines."""
    for name in ("name", "queue", "account", "output"):
        _check_plain(name, getattr(job, name), scheduler)
    lines = _lines(job, scheduler)
    parts = [
        "#!/bin/bash\n"
        + "".join(f"{scheduler.prefix} {line}\n" for line in lines)
        + f"# Written by `hvdtune submit` ({__version__}) for {scheduler.title}, whose "
        f"`{scheduler.submit}` reads the lines above.\n",
        *_body(job, scheduler),
    ]
    return "\n".join(part for part in parts if part)


def _body(job: BatchJob, scheduler: Scheduler) -> tuple[str, ...]:
    if job.per_node and scheduler.start_tasks is None:
        return _nodes(job, scheduler)
    by_tasks = scheduler.start_tasks is not None and (job.per_node or not job.run_options)
    start = _tasks(job, scheduler) if by_tasks else _hvdtune_run(job, scheduler)
    return (_enter(job), _setup(job), *start)


def _lines(job: BatchJob, scheduler: Scheduler) -> list[str]:
    """Return the lines for the scheduler. Raises ArgumentError for a contradicting directive."""
    given = frozenset[str]().union(*map(scheduler.options_of, job.directives))
    replaced = given & scheduler.gives_way
    lines = [
        line for line in scheduler.directives(job) if not scheduler.options_of(line) & replaced
    ]
    taken = {option: line for line in lines for option in scheduler.options_of(line)}
    for directive in job.directives:
        if not directive.strip():
            raise ArgumentError("directive", "it is empty")
        if "\n" in directive:
            raise ArgumentError("directive", "it must be one line", directive)
        if not directive.startswith("-"):
            why = f"options of {scheduler.submit} must begin with a dash"
            raise ArgumentError("directive", why, directive)
        for option in scheduler.options_of(directive):
            if taken.setdefault(option, directive) != directive:
                raise ArgumentError(
                    "directive", f"the script already contains {taken[option]}", directive
                )
        lines.append(directive)
    return lines


def _check_plain(name: str, value: str, scheduler: Scheduler) -> None:
    if value and not _PLAIN.fullmatch(value):
        names = {"name": "job_name", "queue": scheduler.queue}
        raise ArgumentError(
            names.get(name, name),
            "only letters, digits and _.,:@%/+=^{}- are allowed in a scheduler's line",
            repr(value),
        )


def _enter(job: BatchJob) -> str:
    return f"set -e -o pipefail\ncd {shlex.quote(job.folder)}\n"


def _setup(job: BatchJob) -> str:
    lines = _setup_lines(job)
    return "\n".join(["# Lines of --setup and --venv", *lines, ""]) if lines else ""


def _setup_lines(job: BatchJob) -> list[str]:
    activate = f"source {shlex.quote(f'{job.venv}/bin/activate')}"
    return [*job.setup, *([activate] if job.venv else [])]


def _tasks(job: BatchJob, scheduler: Scheduler) -> tuple[str, str]:
    assert scheduler.start_tasks is not None
    each = "" if job.ranks == 1 else "each of "
    what, words = f"One task for {each}the {_places(job)}", _command(job)
    if job.per_node:
        what, words = _on_each_node(job), _launcher(job)
    return _KEY, f"# {what}\nexec {shlex.join([*scheduler.start_tasks(job), *words])}\n"


def _on_each_node(job: BatchJob) -> str:
    return f"One `hvdtune run` on each node, together the {_places(job)}"


def _launcher(job: BatchJob) -> tuple[str, ...]:
    return (*job.hvdtune, "run", "-np", str(job.ranks), *job.run_options, "--", *job.command)


def _nodes(job: BatchJob, scheduler: Scheduler) -> tuple[str, str, str]:
    """Return the lines that start one node at a time, without this shell's environment."""
    there = [
        *_enter(job).splitlines(),
        *_setup_lines(job),
        f'export HVDTUNE_NODE="$1" HVDTUNE_NODES={job.nodes}',
        f"exec {shlex.join(_launcher(job))}",
    ]
    end = "END"
    while end in "\n".join(there).splitlines():
        end += "_"
    text = "\n".join(there)
    named = f"# The names of the nodes\n{scheduler.names_nodes}\n" if scheduler.names_nodes else ""
    return (
        "# The script of each node. It gets its number, but not this shell's environment.\n"
        f"read -r -d '' start << '{end}' || true\n{text}\n{end}\n",
        named,
        f"# {_on_each_node(job)}\n"
        "started=()\n"
        f"for ((node = 0; node < {job.nodes}; node++)); do\n"
        f"    {scheduler.start_node} &\n"
        '    started+=("$!")\n'
        "done\n"
        "code=0\n"
        'for each in "${started[@]}"; do wait "$each" || code=$?; done\n'
        'exit "$code"\n',
    )


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
    others = " on the first node" if job.nodes > 1 else ""
    by_ssh = ", by ssh on the others" if job.nodes > 1 else ""
    return hosts, f"# `hvdtune run`{others} starts the {_places(job)}{by_ssh}\nexec {start}\n"


def _command(job: BatchJob) -> tuple[str, ...]:
    return (*job.python, *job.command) if runs_under_python(job.command[0]) else job.command


def _places(job: BatchJob) -> str:
    if job.ranks == 1:
        return "one rank"
    return f"{job.ranks} ranks, {job.ranks_per_node} on {'a' if job.nodes == 1 else 'each'} node"


def with_interpreter(job: BatchJob, executable: str, hvdtune: Sequence[str]) -> BatchJob:
    """Return the job with the Python of this environment unless it sets up another one. Pure."""
    if job.setup or job.venv:
        return job
    return replace(job, python=(executable,), hvdtune=tuple(hvdtune))
