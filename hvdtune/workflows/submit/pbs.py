"""PBS: qsub of OpenPBS and PBS Professional."""

from __future__ import annotations

import re
from typing import Final

from hvdtune.workflows.submit.batch_job import BatchJob, Scheduler, hours_minutes_seconds


def _directives(job: BatchJob) -> list[str]:
    processors = job.ranks_per_node * (job.cpus_per_rank or 1)
    chunk = f"select={job.nodes}:ncpus={processors}:mpiprocs={job.tasks_per_node}"
    if job.gpus_per_node:
        chunk += f":ngpus={job.gpus_per_node}"
    lines = [f"-N {job.name}", f"-l {chunk}", "-l place=scatter"]
    if job.time_s:
        lines.append(f"-l walltime={hours_minutes_seconds(job.time_s)}")
    if job.queue:
        lines.append(f"-q {job.queue}")
    if job.account:
        lines.append(f"-A {job.account}")
    lines.append("-j oe")
    return [*lines, f"-o {job.output}"] if job.output else lines


def _options_of(line: str) -> frozenset[str]:
    """Return the options of a line: `-l` and `-W` have several; `nodes` counts as `select`."""
    option, _, rest = line.partition(" ")
    if option not in ("-l", "-W"):
        return frozenset((line[:2],))
    names = re.findall(r"(?:^|,)\s*([a-z_]+)=", rest)
    return frozenset("select" if name == "nodes" else name for name in names)


PBS: Final = Scheduler(
    title="PBS",
    submit="qsub",
    prefix="#PBS",
    directives=_directives,
    hosts='{awk} "$PBS_NODEFILE"',
    options_of=_options_of,
    gives_way=frozenset({"place", "-j"}),
    start_node='pbsdsh -n "$node" -- /bin/bash -l -c "$start" hvdtune "$node"',
)
