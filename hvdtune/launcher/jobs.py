"""A job from its words: which rank runs where, and how the ranks are run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hvdtune.core.config.environment import launch_defaults, thread_cores
from hvdtune.core.rank.affinity import require_usable
from hvdtune.errors import UsageError
from hvdtune.launcher.hosts import Host, address_for, checked_ssh_args, is_local, remote_hosts
from hvdtune.launcher.plan import Slot, build_command, plan_slots
from hvdtune.launcher.ranks import JobOptions, JobPlan


def plan_job(
    words: Sequence[str],
    hosts: Sequence[Host],
    ranks: int | None,
    ssh_port: int | None = None,
    ssh_identity_file: str | None = None,
) -> JobPlan:
    """The command and the places of its ranks (None: all slots). Raises UsageError."""
    room = sum(host.slots for host in hosts)
    slots = plan_slots(hosts, room if ranks is None else ranks)
    return reached(JobPlan(build_command(words), slots, words[0]), ssh_port, ssh_identity_file)


def reached(plan: JobPlan, ssh_port: int | None, ssh_identity_file: str | None) -> JobPlan:
    """The plan with how its other hosts are reached. Raises UsageError for what cannot be."""
    remote = remote_hosts(slot.host for slot in plan.slots)
    return replace(plan, remote=remote, ssh=checked_ssh_args(remote, ssh_port, ssh_identity_file))


def check_variables(env: object) -> None:
    """Raises UsageError for what cannot be variables of a process; None stands for none."""
    if env is None or (isinstance(env, Mapping) and all(map(_is_variable, env.items()))):
        return
    raise UsageError(
        f"env is {env!r}, but must be a dict of strings. No name may be empty or contain '=', and "
        "no string may contain NUL or a lone surrogate."
    )


def _is_variable(item: tuple[object, object]) -> bool:
    name, text = item
    if not isinstance(name, str) or not isinstance(text, str):
        return False
    return name != "" and "=" not in name and is_for_a_process(name) and is_for_a_process(text)


def is_for_a_process(text: str) -> bool:
    """Whether the system takes it as a path, a word of a command or a variable's value."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # a lone surrogate
        return False


def rank_options(
    slots: Sequence[Slot],
    variables: Mapping[str, str],
    timeline_max_mb: float = 0.0,
    timeline_when_full: str = "",
    timeline_steps: str = "",
) -> JobOptions:
    """How hvdtune's own ranks are run: by these variables first, then by the environment.

    Raises UsageError for every value that the ranks would refuse.
    """
    told = dict(variables)
    local_size = max(slot.local_size for slot in slots)
    config = launch_defaults(variables=told, local_size=local_size)
    source, cores = thread_cores(told)
    require_usable_cores(cores, slots, source)
    if config.mpi.cpu_operations == "mpi":
        raise UsageError(
            "collectives by MPI need a job that mpirun starts: use `hvdtune run --mpi`"
        )
    if config.mpi.controller == "mpi":
        told["HVDTUNE_CONTROLLER"] = "hvdtune"
    remote = remote_hosts(slot.host for slot in slots)
    own_address = config.rendezvous.own_address
    address = address_for(remote, own_address) if remote else own_address
    if address != own_address:
        told["HVDTUNE_ADDRESS"] = address
    return JobOptions(
        start_timeout_s=config.timeouts.start_s,
        heartbeat_timeout_s=config.timeouts.heartbeat_s,
        transport=config.data_path.transport,
        address=address or JobOptions.address,
        timeline_max_mb=timeline_max_mb,
        timeline_when_full=timeline_when_full,
        timeline_steps=timeline_steps,
        environ=told,
    )


def require_usable_cores(cores: Sequence[int], slots: Sequence[Slot], source: str) -> None:
    """Raises UsageError for a core that a rank of this host is to have and this process has not.

    Args:
        source: what has named the cores.
    """
    local_size = max((slot.local_size for slot in slots if is_local(slot.host)), default=0)
    for core in cores[:local_size]:
        require_usable(core, source)
