"""From the options of a command line to the request of the workflows, in one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hvdtune import parse
from hvdtune.cli.checks import given, interface, is_elastic, restarts
from hvdtune.cli.cluster.elastic import elastic_request
from hvdtune.cli.parameters import values_of
from hvdtune.cli.run_command import horovod_rows
from hvdtune.cli.verify_options import CompareOptions, VariantOptions, VerifyOptions
from hvdtune.core.config.environment import own_environ
from hvdtune.core.config.script_knobs import is_of_script
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import KNOBS, Idle, Sets
from hvdtune.launcher.jobs import plan_job, rank_options, require_usable_cores
from hvdtune.launcher.mpirun import MpiJob
from hvdtune.launcher.plan import build_command, plan_slots, starts_its_own_ranks
from hvdtune.launcher.ranks import JobOptions
from hvdtune.workflows.requests import (
    ComparisonRequest,
    JobRequest,
    MpiRequest,
    OutputRequest,
    RestartRequest,
    SettingRequest,
    StudyRequest,
    TraceRequest,
)

if TYPE_CHECKING:
    from hvdtune.cli.options import KnobOptions, OutputOptions, RunOptions, TraceOptions
    from hvdtune.cli.placement import ChosenHosts

_LOG_LEVEL: Final = ("HVDTUNE_LOG_LEVEL", "HOROVOD_LOG_LEVEL")
_OF_MPI: Final = ("mpi_args", "tcp", "binding_args")
_OF_AUTOTUNE: Final = ("autotune_log_file", "autotune_bayes_opt_max_samples")


def tunes_communication(options: RunOptions) -> bool:
    """Return whether a study with --trials searches knobs of hvdtune's own ranks."""
    names = options.study.knobs or ()
    is_own = options.restart.adapter in (None, "hvdtune")
    of_script = names and all(is_of_script(name) for name in names)
    return options.study.trials is not None and is_own and not of_script


def job_of(
    options: RunOptions, place: ChosenHosts, variables: Mapping[str, str]
) -> JobRequest | MpiRequest:
    """Return the command and its ranks at this placement, with these variables.

    Raises UsageError for a job that cannot run.
    """
    values, restart, asked = setting_of(options.knobs), options.restart, options.placement
    if is_elastic(options):
        return elastic_request(options, place, values, variables)
    login = asked.ssh_port, asked.ssh_identity_file
    if options.mpi.mpi:
        ranks = place.ranks or sum(host.slots for host in place.hosts)
        job = MpiJob(
            command=build_command(options.command),
            hosts=place.hosts,
            processes=len(plan_slots(place.hosts, ranks)),
            arguments=options.mpi.mpi_args or "",
            binding=options.mpi.binding_args or "",
            tcp=options.mpi.tcp,
            ssh_port=asked.ssh_port,
            ssh_identity_file=asked.ssh_identity_file,
        )
        return MpiRequest(job, variables, values)
    adapter = restart.adapter or "hvdtune"
    starts_own = adapter in ("horovod", "command") or (
        adapter == "ddp" and starts_its_own_ranks(options.command)
    )
    if starts_own and (asked.num_proc or asked.hosts or asked.hostfile):
        raise UsageError(
            f"with --adapter {adapter} the command starts its own ranks: set their number in "
            "the command, as in `torchrun --nproc-per-node 2 ...` or `horovodrun -np 2 ...`"
        )
    plan = plan_job(options.command, place.hosts, place.ranks, *login)
    if place.ways:
        plan = replace(plan, nodes=place.ways, remote=tuple(place.ways))
    launch, timeline = JobOptions(environ=dict(variables)), options.timeline
    if adapter == "hvdtune":
        if (cores := options.ranks.thread_affinity) is not None:
            require_usable_cores(parse.wholes(cores), plan.slots, f"--thread-affinity {cores}")
        launch = rank_options(
            plan.slots,
            variables,
            timeline.timeline_max_mb or 0.0,
            timeline.timeline_when_full or "",
            timeline.timeline_steps or "",
        )
    request = JobRequest(tuple(options.command), plan, launch, values, adapter, place.words)
    if restarts(options):
        by = RestartRequest(restart.vary, restart.metric_regex, restart.launch_time)
        return replace(request, restart=by)
    values.core_setting()
    return request


def measurement_of(options: RunOptions) -> StudyRequest | ComparisonRequest | None:
    """Return the study or the comparison; None for a launch."""
    study, autotune = options.study, options.autotune
    if isinstance(options, CompareOptions):
        a, b = (options.a, options.b) if isinstance(options, VerifyOptions) else (None, None)
        variant = options.variant if isinstance(options, VariantOptions) else None
        return ComparisonRequest(a, b, variant, options.pairs, study.time_budget_s, study.seed)
    in_background = bool(autotune.autotune) and study.trials is None
    if not in_background and study.trials is None and options.restart.mode != "restart":
        return None
    trials = autotune.autotune_bayes_opt_max_samples if in_background else study.trials
    return replace(
        study,
        trials=trials,
        log_file=autotune.autotune_log_file,
        launch_s=options.restart.launch_time,
        in_background=in_background,
    )


def output_of(output: OutputOptions, timeline: TraceOptions) -> OutputRequest:
    """Return the files and messages of a run."""
    return OutputRequest(
        output.output_dir,
        output.output_filename,
        output.prefix_output_with_timestamp,
        output.verbose,
        TraceRequest(
            timeline.timeline_filename,
            timeline.timeline_format == "horovod",
            bool(timeline.timeline_mark_cycles),
        ),
    )


def setting_of(knobs: KnobOptions) -> SettingRequest:
    """Return the values of knobs by --profile, by their own options and by --fix."""
    named = {
        term.knob: term.to_knob(value)
        for term in KNOBS
        if term.option and (value := getattr(knobs, term.option)) is not None
    }
    return SettingRequest(knobs.profile, named, knobs.fix)


def rank_variables(options: RunOptions) -> dict[str, str]:
    """Return the variables of the ranks that the options set, without those of knobs."""
    values, ranks = values_of(options), options.ranks
    sent: dict[str, Any] = {
        effect.variable: values[name]
        for name, (_, effect) in horovod_rows().items()
        if isinstance(effect, Sets)
    }
    for variable, value in (
        ("HVDTUNE_START_TIMEOUT_S", ranks.start_timeout),
        ("HVDTUNE_HEARTBEAT_TIMEOUT_S", ranks.heartbeat_timeout),
        ("HVDTUNE_TRANSPORT", ranks.transport),
        ("HVDTUNE_INTERFACE", interface(ranks)),
        ("HVDTUNE_TIMELINE_STEPS", options.timeline.timeline_steps),
    ):
        if value is not None:
            sent[variable] = value
    if ranks.stall_check is not None:
        sent["HOROVOD_STALL_CHECK_DISABLE"] = not ranks.stall_check
    if ranks.stall_check is False:
        sent["HVDTUNE_HANG_WARNING_S"] = 0
    variables = {name: _text(value) for name, value in sent.items() if value is not None}
    if options.output.verbose and not any(own_environ().get(name) for name in _LOG_LEVEL):
        variables.setdefault(_LOG_LEVEL[0], "info")  # ranks then report their processors
    return variables


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def notices(options: RunOptions) -> Iterator[str]:
    """Yield a sentence for each option that has no effect here."""
    for option, effect, name in given(options):
        is_autotune = name.startswith("autotune_")
        if (
            isinstance(effect, Idle)
            and effect.said
            and (options.autotune.autotune or not is_autotune)
        ):
            yield f"{option} has no effect: {effect.why}"
        elif name in _OF_MPI and not options.mpi.mpi:
            yield f"{option} has no effect without --mpi"
        elif name in _OF_AUTOTUNE and not options.autotune.autotune:
            yield f"{option} has no effect without --autotune"
    if "," in (options.ranks.network_interfaces or ""):
        yield f"only the first network interface is used: {interface(options.ranks)}"
