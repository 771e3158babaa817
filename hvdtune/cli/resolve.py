"""From options, configuration file and environment to the requests of the workflows."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hvdtune import parse
from hvdtune.cli.cluster.elastic import elastic_request, is_elastic
from hvdtune.cli.horovod_options import horovod_rows
from hvdtune.cli.normalize import (
    check_restart,
    check_timeline,
    interface,
    normalize,
    notices,
    restarts,
)
from hvdtune.cli.options import RunOptions
from hvdtune.cli.verify_options import CompareOptions, VariantOptions, VerifyOptions
from hvdtune.core.config.dialects import recognise
from hvdtune.core.config.environment import own_environ
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import KNOBS, Sets
from hvdtune.launcher.allocation import Allocation, read_allocation
from hvdtune.launcher.hosts import (
    Host,
    parse_hosts,
    read_hostfile,
    this_host,
)
from hvdtune.launcher.jobs import plan_job, rank_options, require_usable_cores
from hvdtune.launcher.mpirun import MpiJob
from hvdtune.launcher.nodes.slots import slots_of_lone_node
from hvdtune.launcher.plan import Slot, build_command, plan_slots
from hvdtune.launcher.run import JobOptions
from hvdtune.workflows.requests import (
    ComparisonRequest,
    ElasticRequest,
    JobRequest,
    MpiRequest,
    OutputRequest,
    RestartRequest,
    SettingRequest,
    StudyRequest,
    TraceRequest,
)

if TYPE_CHECKING:
    from hvdtune.tuner.space.targets import Adapter

_LOG_LEVEL: Final = ("HVDTUNE_LOG_LEVEL", "HOROVOD_LOG_LEVEL")
_NOT_UNDER_MPI: Final = {
    "trials": "--trials",
    "autotune": "--autotune",
    "as_json": "--json",
    "timeline_filename": "--timeline-filename",
    "output_dir": "--output-dir",
    # Open MPI has an option of this name that means other files in each of its versions.
    "output_filename": "--output-filename",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
}


@dataclass(frozen=True)
class Resolved:
    """What a command line asks for, in the terms of the workflows.

    `workflow` is what is done with a JobRequest where no `comparison` is asked for. With `restart`
    every measurement is a launch of its own, and `launch` runs a command of any runtime. The
    `notices` are what the user should know of: options that do nothing here, hosts that nobody
    named. With `as_json` the
    result is all that stdout gets.
    """

    workflow: Literal["launch", "tune", "autotune"]
    job: JobRequest | MpiRequest | ElasticRequest
    study: StudyRequest
    trace: TraceRequest
    output: OutputRequest
    comparison: ComparisonRequest | None = None
    restart: RestartRequest | None = None
    notices: tuple[str, ...] = ()
    as_json: bool = False

    @property
    def measures(self) -> bool:
        """Whether it is more than a launch, and needs the workbench."""
        return self.comparison is not None or self.workflow != "launch"


def resolve(options: RunOptions) -> Resolved:
    """The requests of a command line. Raises UsageError for what cannot be."""
    options, allocated = _in_allocation(normalize(options), own_environ())
    compares = isinstance(options, CompareOptions)
    values = setting_request(options)
    restart = None
    if restarts(options):
        check_restart(options, by_mpi=options.mpi)
        launch_s = options.launch_time
        restart = RestartRequest(tuple(options.vary or ()), options.metric_regex, launch_s)
    else:
        values.core_setting()
        check_timeline(options, compares=compares)
    return Resolved(
        _workflow(options),
        _request(options, values),
        _study_request(options),
        trace_request(options),
        OutputRequest(
            options.output_dir,
            options.output_filename,
            options.prefix_output_with_timestamp,
            options.verbose,
        ),
        _comparison_request(options),
        restart,
        allocated if restart else (*allocated, *notices(options)),
        options.as_json,
    )


def _request(
    options: RunOptions, values: SettingRequest
) -> JobRequest | MpiRequest | ElasticRequest:
    if is_elastic(options):
        return elastic_request(options, _hosts(options), values, rank_variables(options))
    return _mpi_request(options, values) if options.mpi else _job_request(options, values)


def _in_allocation(
    options: RunOptions, env: Mapping[str, str]
) -> tuple[RunOptions, tuple[str, ...]]:
    """The options with the hosts of the scheduler's allocation, and a sentence that says so.

    On the only host of a platform's job they get the ranks that it is to have.
    As they were where the user has named hosts, where the allocation has no other host (the
    sentence is about its tasks then) or there is no ssh to reach it, and in a task of the
    scheduler's, which is a job of its own. Raises UsageError where there is an allocation, but its
    hosts cannot be read.
    """
    if options.hosts is not None or options.hostfile is not None:
        return options, ()
    asked = options.num_proc or options.slots_per_host
    if not asked and not restarts(options) and (ranks := slots_of_lone_node(env)):
        return dataclasses.replace(options, num_proc=ranks), ()
    if recognise(env) is not None or not shutil.which("ssh"):
        return options, ()
    allocation = read_allocation(env)
    if allocation is None:
        return options, ()
    if len(allocation.hosts) == 1:
        return options, () if asked or allocation.tasks < 2 else (_unused(allocation),)
    slots = options.slots_per_host
    hosts = ",".join(f"{host.name}:{slots or host.slots}" for host in allocation.hosts)
    ranks = options.num_proc or (slots and slots * len(allocation.hosts)) or allocation.tasks or 1
    said = f"the hosts are those of {allocation.source}, {hosts}; -H localhost:N keeps to this one"
    return dataclasses.replace(options, hosts=hosts, num_proc=ranks), (said,)


def _unused(allocation: Allocation) -> str:
    return (
        f"one rank starts, though the allocation of {allocation.hosts[0].name} has "
        f"{allocation.tasks} tasks: -np {allocation.tasks} starts as many"
    )


def _workflow(options: RunOptions) -> Literal["launch", "tune", "autotune"]:
    if options.trials is not None or options.mode == "restart":
        return "tune"
    return "autotune" if options.autotune else "launch"


def _job_request(options: RunOptions, values: SettingRequest) -> JobRequest:
    """The command, the places of its ranks and how they are run. Raises UsageError."""
    login = options.ssh_port, options.ssh_identity_file
    plan = plan_job(options.command, _hosts(options), options.num_proc, *login)
    placement = ["-np", str(options.num_proc)] if options.num_proc else []
    placement += ["-H", options.hosts] if options.hosts else []
    placement += ["--slots-per-host", str(slots)] if (slots := options.slots_per_host) else []
    adapter: Adapter = options.adapter or "hvdtune"
    launch = (
        job_options(options, plan.slots)
        if adapter == "hvdtune"
        else JobOptions(environ=rank_variables(options))
    )
    if options.as_json and not _measures(options):
        raise UsageError("--json needs --trials")
    return JobRequest(tuple(options.command), plan, launch, values, adapter, tuple(placement))


def _measures(options: RunOptions) -> bool:
    return isinstance(options, CompareOptions) or options.trials is not None or restarts(options)


def _mpi_request(options: RunOptions, values: SettingRequest) -> MpiRequest:
    if isinstance(options, CompareOptions):
        raise UsageError("settings are compared under hvdtune's own launcher: leave out --mpi")
    for name, option in _NOT_UNDER_MPI.items():
        if getattr(options, name):
            raise UsageError(f"{option} needs hvdtune's own launcher: leave out --mpi")
    hosts = _hosts(options)
    job = MpiJob(
        command=build_command(options.command),
        hosts=hosts,
        processes=len(place_ranks(options, hosts)),
        arguments=options.mpi_args or "",
        binding=options.binding_args or "",
        tcp=options.tcp,
        ssh_port=options.ssh_port,
        ssh_identity_file=options.ssh_identity_file,
    )
    return MpiRequest(job, rank_variables(options), values)


def _study_request(options: RunOptions) -> StudyRequest:
    autotunes = options.autotune and options.trials is None
    return StudyRequest(
        trials=options.autotune_bayes_opt_max_samples if autotunes else options.trials,
        time_budget_s=options.time_budget,
        seed=options.seed,
        knobs=options.knobs,
        space=options.space,
        objectives=tuple(options.objective or ["step_time"]),
        sampler=options.sampler,
        step_budget=options.step_budget,
        train_steps=options.train_steps,
        watch_drift=not options.no_drift,
        probe_share=options.probe_share,
        use_earlier=not options.ignore_earlier,
        keep_timelines=options.keep_timelines,
        storage=options.storage,
        name=options.study_name,
        log_file=options.autotune_log_file,
        launch_s=options.launch_time,
    )


def _comparison_request(options: RunOptions) -> ComparisonRequest | None:
    if not isinstance(options, CompareOptions):
        return None
    a, b = (options.a, options.b) if isinstance(options, VerifyOptions) else (None, None)
    variant = options.variant if isinstance(options, VariantOptions) else None
    return ComparisonRequest(a, b, variant, options.pairs, options.time_budget, options.seed)


def trace_request(options: RunOptions) -> TraceRequest:
    """The trace that the options of a run ask for."""
    is_horovod = options.timeline_format == "horovod"
    return TraceRequest(options.timeline_filename, is_horovod, bool(options.timeline_mark_cycles))


def place_ranks(options: RunOptions, hosts: tuple[Host, ...]) -> tuple[Slot, ...]:
    """The slots of the job's ranks on these hosts. Raises UsageError."""
    return plan_slots(hosts, options.num_proc or sum(host.slots for host in hosts))


def _hosts(options: RunOptions) -> tuple[Host, ...]:
    """The hosts of -H or --hostfile, else this machine with --slots-per-host or for all ranks."""
    slots = options.slots_per_host or 1
    if options.hosts is not None and options.hostfile is not None:
        raise UsageError("give -H or --hostfile, not both")
    if options.hostfile is not None:
        return read_hostfile(options.hostfile, slots)
    if options.hosts is not None:
        return parse_hosts(options.hosts, slots)
    if options.slots_per_host is not None:
        return (Host("localhost", slots),)
    return this_host(options.num_proc or 1)


def setting_request(options: RunOptions) -> SettingRequest:
    """The knobs named by --profile, by their own options and by --fix."""
    given = {
        term.knob: term.to_knob(value)
        for term in KNOBS
        if term.option and (value := getattr(options, term.option)) is not None
    }
    return SettingRequest(options.profile, given, tuple(options.fix or ()))


def rank_variables(options: RunOptions) -> dict[str, str]:
    """The variables that the options, not the environment, give the ranks beside their knobs."""
    variables: dict[str, str] = {}
    for name, (_, effect) in horovod_rows().items():
        value = getattr(options, name)
        if isinstance(effect, Sets) and value is not None:
            variables[effect.variable] = _text(value)
    for variable, value in (
        ("HVDTUNE_START_TIMEOUT_S", options.start_timeout),
        ("HVDTUNE_HEARTBEAT_TIMEOUT_S", options.heartbeat_timeout),
        ("HVDTUNE_TRANSPORT", options.transport),
        ("HVDTUNE_INTERFACE", interface(options)),
        ("HVDTUNE_TIMELINE_STEPS", options.timeline_steps),
    ):
        if value is not None:
            variables[variable] = _text(value)
    if options.verbose and not any(own_environ().get(name) for name in _LOG_LEVEL):
        variables.setdefault(_LOG_LEVEL[0], "info")  # ranks then tell their processors
    if options.stall_check is not None:
        variables["HOROVOD_STALL_CHECK_DISABLE"] = _text(not options.stall_check)
    if options.stall_check is False:
        variables["HVDTUNE_HANG_WARNING_S"] = "0"
    return variables


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def job_options(options: RunOptions, slots: Sequence[Slot]) -> JobOptions:
    """Command line first, then the environment, then the defaults. Raises UsageError."""
    if options.thread_affinity is not None:
        cores = parse.wholes(options.thread_affinity)
        require_usable_cores(cores, slots, f"--thread-affinity {options.thread_affinity}")
    return rank_options(
        slots,
        rank_variables(options),
        options.timeline_max_mb or 0.0,
        options.timeline_when_full or "",
        options.timeline_steps or "",
    )
