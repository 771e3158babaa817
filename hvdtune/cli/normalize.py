"""What the options of a run mean: merged with environment and profile, contradictions refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

from hvdtune import parse
from hvdtune.cli.horovod_options import horovod_rows
from hvdtune.cli.options import RunOptions
from hvdtune.cli.verify_options import CompareOptions
from hvdtune.core.config.environment import (
    Config,
    launch_defaults,
    launcher_values,
    require_interface,
)
from hvdtune.core.config.knobs import load_knobs
from hvdtune.core.config.script_knobs import is_of_script
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import LAUNCHER_OPTIONS, Effect, Idle, Refused
from hvdtune.launcher.plan import starts_its_own_ranks

if TYPE_CHECKING:
    from hvdtune.tuner.space.targets import Adapter

_OF_MPI: Final = ("mpi_args", "tcp", "binding_args")
_OF_AUTOTUNE: Final = ("autotune_log_file", "autotune_bayes_opt_max_samples")

Options = TypeVar("Options", bound=RunOptions)


def normalize(options: Options) -> Options:
    """The options with what Horovod's variables and a profile ask for where no option says it.

    `mpi` then says who starts the ranks, whatever said so.

    Raises UsageError for what cannot be, options that contradict each other included.
    """
    if name := interface(options):
        require_interface(name, "--network-interface")
    by_mpi = controller(options, launch_defaults()) == "mpi"
    changed = _from_environment(options, by_mpi=by_mpi) | {"mpi": by_mpi}
    if isinstance(options, CompareOptions):
        changed["autotune"] = False
        if restarts(options):
            changed["mode"] = "restart"
    options = replace(options, **changed)
    _check_modes(options)
    _check_needs(options)
    return replace(options, adapter=_adapter(options))


def _from_environment(options: RunOptions, *, by_mpi: bool) -> dict[str, Any]:
    variables = launcher_values()
    if by_mpi:
        # Its launcher merges no traces: the ranks do what the variables ask for.
        variables = {name: variables[name] for name in variables if "TIMELINE" not in name}
    named: dict[str, Any] = {LAUNCHER_OPTIONS[name]: value for name, value in variables.items()}
    unsaid = {name: value for name, value in named.items() if getattr(options, name) is None}
    for name in ("timeline_filename", "autotune_log_file"):
        if name in unsaid:
            unsaid[name] = Path(unsaid[name])
    if "timeline_filename" in unsaid and options.timeline_format is None:
        unsaid["timeline_format"] = "horovod"
    return unsaid


def _adapter(options: RunOptions) -> Adapter | None:
    """The adapter of the options, else of a profile that a plain run cannot apply."""
    if options.adapter is not None or options.profile is None or options.trials is not None:
        return options.adapter
    from hvdtune.tuner.results.profile import read_profile

    profile = read_profile(options.profile)
    own = {knob.name for knob in load_knobs()}
    is_known = all(name in own or is_of_script(name) for name in profile.setting)
    if is_known and profile.adapter == "hvdtune":
        return None
    return cast("Adapter", profile.adapter)


def _check_modes(options: Options) -> None:
    """Raises UsageError for ways to run that exclude each other."""
    for option, effect, _ in _given(options):
        if isinstance(effect, Refused):
            raise UsageError(effect.sentence(option))
    if options.gloo and options.mpi:
        raise UsageError("give --gloo or --mpi, not both")
    if options.autotune and options.trials is not None:
        raise UsageError("give --autotune, which tunes one run, or --trials, not both")
    if restarts(options) and (options.mode == "live" or options.autotune):
        other = "--autotune" if options.autotune else "--mode live"
        raise UsageError(
            f"{other} tunes hvdtune in a run; it cannot be combined with --adapter or "
            "--mode restart"
        )


def _check_needs(options: Options) -> None:
    """Raises UsageError for options that need others, or exclude them."""
    if not restarts(options):
        for option, given in (
            ("--vary", options.vary),
            ("--metric-regex", options.metric_regex),
            ("--launch-time", options.launch_time),
        ):
            if given and not (option == "--launch-time" and _names_ddp(options)):
                raise UsageError(f"{option} needs --mode restart")
    searches = options.trials is not None or options.autotune or options.mode == "restart"
    if not searches and not isinstance(options, CompareOptions):
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
                "--probe-share": options.probe_share,
            },
        )
    if options.timeline_steps == "":
        raise UsageError("--timeline-steps is empty: name steps, as in 100:120 or ::50")
    if options.timeline_steps is not None:
        try:
            parse.step_window(options.timeline_steps)
        except ValueError as error:
            raise UsageError(f"--timeline-steps {options.timeline_steps} {error}") from None
    if searches:
        _refuse(
            "cannot be combined with tuning, which looks at all steps",
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
        if not options.autotune:
            _refuse(
                "needs --trials or --autotune",
                {"--ignore-earlier": options.ignore_earlier or None},
            )


def _names_ddp(options: RunOptions) -> bool:
    """Whether a study goes on by restarting, with DistributedDataParallel's arguments."""
    return any(name.strip().startswith("ddp_") for name in (options.knobs or "").split(","))


def check_timeline(options: RunOptions, *, compares: bool) -> None:
    """Raises UsageError for a timeline that cannot be written, and options without one."""
    if compares:
        return
    if options.timeline_filename is not None and options.timeline_filename.is_dir():
        raise UsageError(f"--timeline-filename {options.timeline_filename} is a directory")
    if options.timeline_filename is None and options.output_dir is None:
        _refuse(
            "needs --timeline-filename or -o: nothing is recorded",
            {
                "--timeline-steps": options.timeline_steps,
                "--timeline-when-full": options.timeline_when_full,
                "--timeline-format": options.timeline_format,
            },
        )


def check_restart(options: RunOptions, *, by_mpi: bool) -> None:
    """Raises UsageError for what cannot be where the command is started for each measurement."""
    adapter = options.adapter or "hvdtune"
    if by_mpi:
        raise UsageError(
            "--mode restart starts the ranks itself; to tune a command with a launcher of its own: "
            "hvdtune run --mode restart --adapter command --vary NAME=A,B -- mpirun ..."
        )
    own = adapter in ("horovod", "command") or (
        adapter == "ddp" and starts_its_own_ranks(options.command)
    )
    if own and (options.num_proc or options.hosts or options.hostfile):
        raise UsageError(
            f"with --adapter {adapter} the ranks of this command are started by the command: say "
            "there how many, as in `torchrun --nproc-per-node 2 ...` or `horovodrun -np 2 ...`"
        )
    if adapter == "command" and not options.vary and not options.profile:
        raise UsageError("--adapter command has nothing to tune: name variables with --vary")
    if options.metric_regex is not None:
        from hvdtune.launcher.measured import Metric

        Metric(options.metric_regex)
    if options.timeline_filename is not None:
        raise UsageError("--mode restart records no timeline: leave --timeline-filename out")


def _refuse(why: str, values: Mapping[str, Any]) -> None:
    for option, value in values.items():
        if value is not None:
            raise UsageError(f"{option} {why}")


def restarts(options: Options) -> bool:
    return options.mode == "restart" or options.adapter is not None


def notices(options: RunOptions) -> Iterator[str]:
    """Sentences about options that do nothing here."""
    for option, effect, name in _given(options):
        is_autotune = name.startswith("autotune_")
        if isinstance(effect, Idle) and effect.said and (options.autotune or not is_autotune):
            yield f"{option} has no effect: {effect.why}"
        elif name in _OF_MPI and not options.mpi:
            yield f"{option} has no effect without --mpi"
        elif name in _OF_AUTOTUNE and not options.autotune:
            yield f"{option} has no effect without --autotune"
    if options.network_interfaces and "," in options.network_interfaces:
        yield f"of the network interfaces the first is used: {interface(options)}"


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


def interface(options: RunOptions) -> str | None:
    names = options.network_interfaces
    return None if names is None else names.split(",")[0].strip()
