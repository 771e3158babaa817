"""`hvdtune run --min-np ...`: the options of an elastic job, and what it does not go with."""

from __future__ import annotations

from typing import Final

from hvdtune.cli.cluster.chaos import ChaosOptions
from hvdtune.cli.options import RunOptions
from hvdtune.cli.verify_options import CompareOptions
from hvdtune.errors import UsageError
from hvdtune.launcher.elastic.chaos import ChaosPlan
from hvdtune.launcher.elastic.slots import Cooldown
from hvdtune.launcher.hosts import Host
from hvdtune.launcher.plan import build_command
from hvdtune.workflows.requests import ElasticRequest, SettingRequest

_NEED_ELASTIC: Final = {
    "max_num_proc": "--max-np",
    "elastic_timeout": "--elastic-timeout",
    "reset_limit": "--reset-limit",
    "blacklist_cooldown_range": "--blacklist-cooldown-range",
    "resume": "--resume",
}
# Whoever is struck on purpose is not to blame.
_CHAOS_COOLDOWN: Final = Cooldown(1.0, 1.0)
# Each takes the ranks of a job for fixed.
NOT_ELASTIC: Final = {
    "mode": "--mode",
    "adapter": "--adapter",
    "mpi": "--mpi",
    "storage": "--storage",
    "keep_timelines": "--keep-timelines",
    "thread_affinity": "--thread-affinity",
}


def is_elastic(options: RunOptions) -> bool:
    """Whether ranks may come and go. Raises UsageError for options that only then mean something.

    A timeout may come from HOROVOD_ELASTIC_TIMEOUT, and then asks for nothing.
    """
    if isinstance(options, ChaosOptions):
        return True
    if options.min_num_proc is not None or options.host_discovery_script is not None:
        return True
    for name, option in _NEED_ELASTIC.items():
        if getattr(options, name) not in (None, False) and name != "elastic_timeout":
            raise UsageError(f"{option} needs --min-np or --host-discovery-script")
    return False


def elastic_request(
    options: RunOptions, hosts: tuple[Host, ...], values: SettingRequest, variables: dict[str, str]
) -> ElasticRequest:
    """The elastic job that the options ask for, on these hosts or those that are discovered.

    Raises UsageError for what cannot be.
    """
    if isinstance(options, CompareOptions):
        raise UsageError("settings are compared in a job of fixed size: leave out --min-np")
    for name, option in NOT_ELASTIC.items():
        if getattr(options, name):
            raise UsageError(
                f"{option} cannot be combined with --min-np or --host-discovery-script yet: it "
                "needs a job whose ranks do not change"
            )
    if options.as_json and options.trials is None:
        raise UsageError("--json needs --trials")
    if "exposed_communication" in (options.objective or ()):
        raise UsageError(
            "--objective exposed_communication is read from a timeline for each trial, which a "
            "study of an elastic job does not have"
        )
    if options.resume and options.output_dir is None:
        raise UsageError("--resume needs -o: the folder of the job that is to be taken over")
    script = options.host_discovery_script
    if script is not None and (options.hosts is not None or options.hostfile is not None):
        raise UsageError("give --host-discovery-script or hosts (-H, --hostfile), not both")
    room = None if script is not None else sum(host.slots for host in hosts)
    faults = _chaos_plan(options)
    least = options.min_num_proc or (1 if faults else options.num_proc) or 1
    # As with Horovod, -np is no limit to what a script discovers.
    most = options.max_num_proc or (room and options.num_proc) or room
    _check_sizes(options, least, room)
    cooldown = options.blacklist_cooldown_range
    if cooldown is not None and cooldown[0] > cooldown[1]:
        raise UsageError(
            f"--blacklist-cooldown-range {cooldown[0]} {cooldown[1]}: the first is more than the "
            "most"
        )
    return ElasticRequest(
        words=tuple(options.command),
        command=build_command(options.command),
        hosts=hosts,
        discovery_script=script,
        slots_per_host=options.slots_per_host or 1,
        min_ranks=least,
        max_ranks=most,
        elastic_timeout_s=options.elastic_timeout or 600.0,
        reset_limit=options.reset_limit,
        cooldown=Cooldown(*cooldown) if cooldown else _CHAOS_COOLDOWN if faults else None,
        chaos=faults,
        variables=variables,
        values=values,
        ssh_port=options.ssh_port,
        ssh_identity_file=options.ssh_identity_file,
        resume=options.resume,
        timeline_max_mb=options.timeline_max_mb or 0.0,
        timeline_when_full=options.timeline_when_full or "",
        timeline_steps=options.timeline_steps or "",
    )


def _check_sizes(options: RunOptions, least: int, room: int | None) -> None:
    """Raises UsageError where the numbers of ranks contradict each other, or the hosts' slots."""
    for option, number in (("--max-np", options.max_num_proc), ("-np", options.num_proc)):
        if number is not None and number < least:
            raise UsageError(f"--min-np {least} is more than {option} {number}")
    if (options.num_proc or 0) > (options.max_num_proc or float("inf")):
        raise UsageError(f"-np {options.num_proc} is more than --max-np {options.max_num_proc}")
    if room is not None and room < least:
        raise UsageError(f"--min-np {least} is more than the hosts' slots, {room}")


def _chaos_plan(options: RunOptions) -> ChaosPlan | None:
    if not isinstance(options, ChaosOptions):
        return None
    plan = ChaosPlan(options.kill_every, options.stop_every, options.seed)
    if plan.kill_every_s is None and plan.stop_every_s is None:
        raise UsageError("give --kill-every or --stop-every: how often a rank is to fail")
    return plan
