"""LSF: bsub."""

from __future__ import annotations

import math
import re
from typing import Final

from hvdtune.workflows.submit.batch_job import BatchJob, Scheduler


def _directives(job: BatchJob) -> list[str]:
    # Cores belong to slots, and a program that blaunch starts on a node has those of one slot.
    slots = job.tasks_per_node if job.cpus_per_rank else job.ranks_per_node
    lines = [f"-J {job.name}", f"-n {job.nodes * slots}", f'-R "span[ptile={slots}]"']
    if job.cpus_per_rank:
        lines.append(f'-R "affinity[core({job.cpus_per_task})]"')
    if job.gpus_per_node:
        lines.append(f'-gpu "num={job.gpus_per_node}"')
    if job.time_s:
        minutes = math.ceil(job.time_s / 60)
        lines.append(f"-W {minutes // 60}:{minutes % 60:02}")
    if job.queue:
        lines.append(f"-q {job.queue}")
    if job.account:
        lines.append(f"-P {job.account}")
    # Without a file LSF sends the output by mail.
    return [*lines, f"-o {job.output or f'{job.name}-%J.out'}"]


def _options_of(line: str) -> frozenset[str]:
    option = line.partition(" ")[0]
    if option == "-R":  # may be repeated
        return frozenset(re.findall(r"\b(span|affinity)\[", line))
    return frozenset((option,))


LSF: Final = Scheduler(
    title="LSF",
    submit="bsub",
    prefix="#BSUB",
    directives=_directives,
    hosts='{awk} "$LSB_DJOB_HOSTFILE"',
    options_of=_options_of,
    names_nodes="mapfile -t hosts < <(awk '!seen[$1]++ { print $1 }' \"$LSB_DJOB_HOSTFILE\")",
    # Without -no-shell, a shell there would split the words.
    start_node='blaunch -no-shell "${hosts[node]}" /bin/bash -l -c "$start" hvdtune "$node"',
)
