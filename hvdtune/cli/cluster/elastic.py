"""The elastic job of `hvdtune run --min-np ...`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hvdtune.cli.cluster.chaos import ChaosOptions
from hvdtune.errors import UsageError
from hvdtune.launcher.elastic.chaos import ChaosPlan
from hvdtune.launcher.elastic.membership import ElasticLimits
from hvdtune.launcher.elastic.slots import Cooldown
from hvdtune.launcher.plan import build_command
from hvdtune.launcher.ranks import JobOptions, JobPlan
from hvdtune.workflows.requests import ElasticRequest, JobRequest, SettingRequest

if TYPE_CHECKING:
    from hvdtune.cli.options import ElasticOptions, RunOptions
    from hvdtune.cli.placement import ChosenHosts

# A process that is killed on purpose is not at fault.
_CHAOS_COOLDOWN: Final = Cooldown(1.0, 1.0)


def elastic_request(
    options: RunOptions, place: ChosenHosts, values: SettingRequest, variables: Mapping[str, str]
) -> JobRequest:
    """Return the elastic job on the hosts of the placement, or on discovered ones.

    Raises UsageError for numbers of ranks that contradict each other.
    """
    elastic, timeline = options.elastic, options.timeline
    script, cooldown = elastic.host_discovery_script, elastic.blacklist_cooldown_range
    room = None if script is not None else sum(host.slots for host in place.hosts)
    faults = _chaos_plan(options)
    least = elastic.min_num_proc or (1 if faults else place.ranks) or 1
    _check_sizes(elastic, place.ranks, least, room)
    limits = ElasticLimits(
        min_ranks=least,
        # As with Horovod, -np is no limit for a discovery script.
        max_ranks=elastic.max_num_proc or (room and place.ranks) or room or sys.maxsize,
        elastic_timeout_s=elastic.elastic_timeout or ElasticLimits.elastic_timeout_s,
        reset_limit=elastic.reset_limit,
        cooldown=Cooldown(*cooldown) if cooldown else _CHAOS_COOLDOWN if faults else None,
    )
    job_options = JobOptions(
        environ=variables,
        timeline_max_mb=timeline.timeline_max_mb or 0.0,
        timeline_when_full=timeline.timeline_when_full or "",
        timeline_steps=timeline.timeline_steps or "",
    )
    plan = JobPlan(build_command(options.command), (), options.command[0])
    login = options.placement.ssh_port, options.placement.ssh_identity_file
    slots = options.placement.slots_per_host or 1
    ranks = ElasticRequest(place.hosts, script, slots, limits, login, faults, elastic.resume)
    return JobRequest(tuple(options.command), plan, job_options, values, elastic=ranks)


def _check_sizes(elastic: ElasticOptions, ranks: int | None, least: int, room: int | None) -> None:
    """Raises UsageError if the numbers of ranks contradict each other, or the hosts' slots."""
    most = elastic.max_num_proc
    for option, number in (("--max-np", most), ("-np", ranks)):
        if number is not None and number < least:
            raise UsageError(f"--min-np {least} is more than {option} {number}")
    if ranks is not None and most is not None and ranks > most:
        raise UsageError(f"-np {ranks} is more than --max-np {most}")
    if room is not None and room < least:
        raise UsageError(f"--min-np {least} is more than the hosts' slots, {room}")


def _chaos_plan(options: RunOptions) -> ChaosPlan | None:
    if not isinstance(options, ChaosOptions):
        return None
    plan = ChaosPlan(options.kill_every, options.stop_every, options.seed)
    if plan.kill_every_s is None and plan.stop_every_s is None:
        raise UsageError("set --kill-every or --stop-every to choose how often a rank fails")
    return plan
