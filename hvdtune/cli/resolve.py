"""From options, configuration file and environment to what is to be run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from hvdtune.cli.horovod_options import horovod_rows
from hvdtune.cli.options import RunOptions
from hvdtune.core.config.environment import Config, launch_defaults, launcher_values
from hvdtune.core.config.knobs import Value, parse_assignments, validate
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import KNOBS, LAUNCHER_OPTIONS, Effect, Idle, Refused, Sets
from hvdtune.launch.hosts import (
    Host,
    address_for,
    far_hosts,
    login_words,
    parse_hosts,
    read_hostfile,
)
from hvdtune.launch.plan import Slot, build_command, plan_slots
from hvdtune.launch.run import JobOptions, JobPlan

_OF_MPI: Final = ("mpi_args", "tcp", "binding_args")
_OF_AUTOTUNE: Final = ("autotune_log_file", "autotune_bayes_opt_max_samples")

Options = TypeVar("Options", bound=RunOptions)


def settle(options: Options) -> Options:
    """With what Horovod's variables ask of the launcher where no option says it.

    Raises UsageError for what cannot be, options that contradict each other included.
    """
    variables = launcher_values()
    if controller(options, launch_defaults()) == "mpi":
        # Its launcher merges no traces: the ranks do what the variables ask for.
        variables = {name: variables[name] for name in variables if "TIMELINE" not in name}
    named: dict[str, Any] = {LAUNCHER_OPTIONS[name]: value for name, value in variables.items()}
    unsaid = {name: value for name, value in named.items() if getattr(options, name) is None}
    for name in ("timeline_filename", "autotune_log_file"):
        if name in unsaid:
            unsaid[name] = Path(unsaid[name])
    if "timeline_filename" in unsaid and options.timeline_format is None:
        unsaid["timeline_format"] = "horovod"
    options = replace(options, **unsaid)
    _check_modes(options)
    _check_needs(options)
    return options


def _check_modes(options: Options) -> None:
    """Raises UsageError for ways to run that exclude each other."""
    for option, effect, _ in _given(options):
        if isinstance(effect, Refused):
            raise UsageError(effect.sentence(option))
    if options.gloo and options.mpi:
        raise UsageError("give --gloo or --mpi, not both")
    if options.autotune and options.trials is not None:
        raise UsageError("give --autotune, which tunes one run, or --trials, not both")
    if _restarts(options) and (options.mode == "live" or options.autotune):
        other = "--autotune" if options.autotune else "--mode live"
        raise UsageError(
            f"{other} tunes hvdtune in a run; it goes with no --adapter and no restart"
        )


def _check_needs(options: Options) -> None:
    """Raises UsageError for options that mean nothing without others, or beside them."""
    if not _restarts(options):
        for option, given in (
            ("--vary", options.vary),
            ("--metric-regex", options.metric_regex),
            ("--launch-time", options.launch_time),
        ):
            if given:
                raise UsageError(f"{option} needs --mode restart")
    if options.trials is None and not options.autotune and options.mode != "restart":
        _refuse(
            "needs --trials or --autotune",
            {
                "--time-budget": options.time_budget,
                "--knobs": options.knobs,
                "--space": options.space,
                "--objective": options.objective or None,
                "--sampler": options.sampler,
                "--step-budget": options.step_budget,
                "--train-steps": options.train_steps,
            },
        )
    if options.timeline_steps == "":
        raise UsageError("--timeline-steps is empty: say which, as in 100:120 or ::50")
    if tunes(options):
        _refuse(
            "goes with no tuning, which looks at all steps",
            {
                "--timeline-steps": options.timeline_steps,
                "--timeline-when-full stop": options.timeline_when_full == "stop" or None,
            },
        )
    if options.trials is None:
        _refuse(
            "needs --trials",
            {
                "--storage": options.storage,
                "--study-name": options.study_name,
                "--keep-timelines": options.keep_timelines,
            },
        )


def _refuse(why: str, values: Mapping[str, Any]) -> None:
    for option, value in values.items():
        if value is not None:
            raise UsageError(f"{option} {why}")


def _restarts(options: Options) -> bool:
    return options.mode == "restart" or options.adapter is not None


def tunes(options: RunOptions) -> bool:
    """Whether a study is asked for, not one plain launch."""
    return options.trials is not None or options.autotune or options.mode == "restart"


def remarks(options: RunOptions) -> Iterator[str]:
    """What the user should know of options that do nothing here."""
    by_mpi = controller(options, launch_defaults()) == "mpi"
    for option, effect, name in _given(options):
        of_autotune = name.startswith("autotune_")
        if isinstance(effect, Idle) and effect.said and (options.autotune or not of_autotune):
            yield f"{option} has nothing to do: {effect.why}"
        elif name in _OF_MPI and not by_mpi:
            yield f"{option} has nothing to do without --mpi"
        elif name in _OF_AUTOTUNE and not options.autotune:
            yield f"{option} has nothing to do without --autotune"
    if options.network_interfaces and "," in options.network_interfaces:
        yield f"of the network interfaces the first is used: {_interface(options)}"


def _given(options: RunOptions) -> Iterator[tuple[str, Effect | None, str]]:
    for name, (spelling, effect) in horovod_rows().items():
        if getattr(options, name) is not None and getattr(options, name) is not False:
            yield spelling, effect, name


def controller(options: RunOptions, config: Config) -> Literal["hvdtune", "mpi"]:
    """Who starts the ranks: flags first, then the configuration file, then the environment."""
    if options.mpi or options.gloo:
        return "mpi" if options.mpi else "hvdtune"
    if options.controller is not None:
        return "mpi" if options.controller == "mpi" else "hvdtune"
    return "mpi" if config.controller == "mpi" else "hvdtune"


def plan_job(options: RunOptions) -> JobPlan:
    """The command and the places of its ranks. Raises UsageError."""
    hosts = chosen_hosts(options)
    slots = place_ranks(options, hosts)
    far = far_hosts(slot.host for slot in slots)
    return JobPlan(
        command=build_command(options.command),
        slots=slots,
        title=options.command[0],
        far=far,
        ssh=login_words(far, options.ssh_port, options.ssh_identity_file),
    )


def place_ranks(options: RunOptions, hosts: tuple[Host, ...]) -> tuple[Slot, ...]:
    """The slots of the job's ranks on these hosts. Raises UsageError."""
    return plan_slots(hosts, options.num_proc or sum(host.slots for host in hosts))


def chosen_hosts(options: RunOptions) -> tuple[Host, ...]:
    """Of -H or --hostfile, else this machine with room for all."""
    if options.hosts is not None and options.hostfile is not None:
        raise UsageError("give -H or --hostfile, not both")
    if options.hostfile is not None:
        return read_hostfile(options.hostfile)
    if options.hosts is not None:
        return parse_hosts(options.hosts)
    return (Host("localhost", options.num_proc or 1),)


def chosen_setting(options: RunOptions) -> dict[str, Value]:
    """The knobs named by --profile, then by their own options, then by --fix."""
    setting: dict[str, Value] = {}
    if options.profile is not None:
        from hvdtune.tuner.results.profile import read_profile

        setting |= read_profile(options.profile).setting
    for term in KNOBS:
        if term.option and (value := getattr(options, term.option)) is not None:
            setting[term.knob] = term.to_knob(value)
    if options.fix:
        setting |= parse_assignments(options.fix)
    return validate(setting) if setting else setting


def named_knobs(options: RunOptions) -> tuple[str, ...] | None:
    """The knobs of --knobs, None where all are meant. Raises UsageError."""
    if options.knobs is None:
        return None
    names = [name.strip() for name in options.knobs.split(",")]
    if not all(names):
        wrong = "has a comma too many" if any(names) else "names no knob"
        raise UsageError(f"--knobs '{options.knobs}' {wrong}; it takes names as in A,B")
    return tuple(dict.fromkeys(names))


def check_space(options: RunOptions, ranges: Iterable[str], tunable: Iterable[str]) -> None:
    """Raises UsageError for a knob of --space that --knobs leaves out."""
    left_out = sorted({*ranges} - {*tunable})
    if options.knobs is not None and left_out:
        raise UsageError(f"--space {options.space} names {left_out[0]}, which --knobs leaves out")


def rank_variables(options: RunOptions) -> dict[str, str]:
    """What the options, not the environment, tell the ranks beside their knobs."""
    variables: dict[str, str] = {}
    for name, (_, effect) in horovod_rows().items():
        value = getattr(options, name)
        if isinstance(effect, Sets) and value is not None:
            variables[effect.variable] = _text(value)
    for variable, value in (
        ("HVDTUNE_START_TIMEOUT_S", options.start_timeout),
        ("HVDTUNE_HEARTBEAT_TIMEOUT_S", options.heartbeat_timeout),
        ("HVDTUNE_TRANSPORT", options.transport),
        ("HVDTUNE_INTERFACE", _interface(options)),
        ("HVDTUNE_TIMELINE_STEPS", options.timeline_steps),
    ):
        if value is not None:
            variables[variable] = _text(value)
    if options.stall_check is not None:
        variables["HOROVOD_STALL_CHECK_DISABLE"] = _text(not options.stall_check)
    if options.stall_check is False:
        variables["HVDTUNE_HANG_WARNING_S"] = "0"
    return variables


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _interface(options: RunOptions) -> str | None:
    names = options.network_interfaces
    return None if names is None else names.split(",")[0].strip()


def job_options(options: RunOptions, slots: tuple[Slot, ...]) -> JobOptions:
    """Command line first, then the environment, then the defaults.

    Raises UsageError for every value that the ranks would refuse.
    """
    variables = rank_variables(options)
    local_size = max(slot.local_size for slot in slots)
    config = launch_defaults(variables=variables | {"HVDTUNE_LOCAL_SIZE": str(local_size)})
    if controller(options, config) == "hvdtune":
        if config.cpu_operations == "mpi":
            raise UsageError("MPI is to carry out the collectives, so it starts the job: add --mpi")
        if config.controller == "mpi":
            variables["HVDTUNE_CONTROLLER"] = "hvdtune"
    far = far_hosts(slot.host for slot in slots)
    address = address_for(far, config.address) if far else config.address
    if address != config.address:
        variables["HVDTUNE_ADDRESS"] = address
    return JobOptions(
        start_timeout_s=config.start_timeout_s,
        heartbeat_timeout_s=config.heartbeat_timeout_s,
        transport=config.transport,
        address=address or JobOptions.address,
        timeline_max_mb=options.timeline_max_mb or 0.0,
        timeline_when_full=options.timeline_when_full or "",
        timeline_steps=options.timeline_steps or "",
        environ=variables,
    )
