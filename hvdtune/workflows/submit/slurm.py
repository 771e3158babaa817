"""Slurm: sbatch and srun."""

from __future__ import annotations

import re
from typing import Final

from hvdtune.workflows.submit.batch_job import BatchJob, Scheduler, hours_minutes_seconds

# The number of tasks on each node sets that of all tasks.
_SPELLINGS: Final = {
    "-J": "--job-name",
    "-N": "--nodes",
    "-n": "--ntasks-per-node",
    "--ntasks": "--ntasks-per-node",
    "-c": "--cpus-per-task",
    "-t": "--time",
    "-p": "--partition",
    "-A": "--account",
    "-o": "--output",
}


def _directives(job: BatchJob) -> list[str]:
    lines = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.tasks_per_node}",
    ]
    if job.cpus_per_task:
        lines.append(f"--cpus-per-task={job.cpus_per_task}")
    if job.gpus_per_node:
        lines.append(f"--gpus-per-node={job.gpus_per_node}")
    if job.time_s:
        lines.append(f"--time={hours_minutes_seconds(job.time_s)}")
    if job.queue:
        lines.append(f"--partition={job.queue}")
    if job.account:
        lines.append(f"--account={job.account}")
    return [*lines, f"--output={job.output or f'{job.name}-%j.out'}"]


def _options_of(line: str) -> frozenset[str]:
    found = re.match(r"--[a-z-]+|-[A-Za-z]", line)
    return frozenset({_SPELLINGS.get(found[0], found[0])} if found else ())


def _start_tasks(job: BatchJob) -> list[str]:
    tasks = job.nodes * job.tasks_per_node
    words = ["srun", f"--ntasks={tasks}", f"--ntasks-per-node={job.tasks_per_node}"]
    # Since 22.05 srun no longer takes this from sbatch.
    return [*words, f"--cpus-per-task={job.cpus_per_task}"] if job.cpus_per_task else words


SLURM: Final = Scheduler(
    title="Slurm",
    submit="sbatch",
    prefix="#SBATCH",
    directives=_directives,
    hosts='scontrol show hostnames "$SLURM_JOB_NODELIST" | {awk}',
    options_of=_options_of,
    start_tasks=_start_tasks,
    queue="partition",
)
