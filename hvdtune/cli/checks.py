"""The checks of a run's options that need no host: options that exclude or need each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from hvdtune.cli.parameters import values_of
from hvdtune.cli.run_command import horovod_rows
from hvdtune.cli.verify_options import CompareOptions
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import Effect, Refused
from hvdtune.launcher.plan import starts_its_own_ranks

if TYPE_CHECKING:
    from hvdtune.cli.options import RankOptions, RunOptions, TraceOptions

_NOT_UNDER_MPI: Final = {
    "trials": "--trials",
    "autotune": "--autotune",
    "as_json": "--json",
    "timeline_filename": "--timeline-filename",
    "output_dir": "--output-dir",
    # Open MPI has an option of this name with another meaning in each of its versions.
    "output_filename": "--output-filename",
    "prefix_output_with_timestamp": "--prefix-output-with-timestamp",
}


def check(options: RunOptions) -> None:
    """Raises UsageError for options that exclude each other or need others."""
    _check_modes(options)
    _check_needs(options)
    _check_steps(options)
    if restarts(options):
        _check_restart(options)
    elif not isinstance(options, CompareOptions):
        _check_timeline(options)


def restarts(options: RunOptions) -> bool:
    """Return whether each measurement is a launch of its own."""
    return options.restart.mode == "restart" or options.restart.adapter is not None


def interface(ranks: RankOptions) -> str | None:
    """Return the first network interface."""
    names = ranks.network_interfaces
    return None if names is None else names.split(",")[0].strip()


def given(options: RunOptions) -> Iterator[tuple[str, Effect | None, str]]:
    """Yield spelling, effect and name of each option of horovodrun that is given."""
    values = values_of(options)
    for name, (spelling, effect) in horovod_rows().items():
        if values[name] is not None and values[name] is not False:
            yield spelling, effect, name


def _check_modes(options: RunOptions) -> None:
    """Raises UsageError for ways to run that exclude each other."""
    for option, effect, _ in given(options):
        if isinstance(effect, Refused):
            raise UsageError(effect.sentence(option))
    if options.mpi.gloo and options.mpi.mpi:
        raise UsageError("give --gloo or --mpi, not both")
    autotunes = options.autotune.autotune
    if autotunes and options.study.trials is not None:
        raise UsageError("give --autotune, which tunes one run, or --trials, not both")
    if restarts(options) and (options.restart.mode == "live" or autotunes):
        other = "--autotune" if autotunes else "--mode live"
        raise UsageError(
            f"{other} tunes hvdtune in a run; it cannot be combined with --adapter or "
            "--mode restart"
        )
    measures = options.study.trials is not None or restarts(options)
    if options.output.as_json and not measures and not isinstance(options, CompareOptions):
        raise UsageError("--json needs --trials")
    if not options.mpi.mpi or restarts(options):
        return
    if isinstance(options, CompareOptions):
        raise UsageError("settings are compared under hvdtune's own launcher: leave out --mpi")
    values = values_of(options)
    for name, option in _NOT_UNDER_MPI.items():
        if values[name]:
            raise UsageError(f"{option} needs hvdtune's own launcher: leave out --mpi")


def _check_needs(options: RunOptions) -> None:
    """Raises UsageError for options that need others."""
    study, restart = options.study, options.restart
    if not restarts(options):
        names_ddp = any(name.startswith("ddp_") for name in study.knobs or ())
        times = None if names_ddp else restart.launch_time
        _refuse(
            "needs --mode restart",
            {
                "--vary": restart.vary or None,
                "--metric-regex": restart.metric_regex,
                "--launch-time": times,
            },
        )
    if study.trials is None:
        _refuse(
            "needs --trials",
            {
                "--storage": study.storage,
                "--study-name": study.study_name,
                "--keep-timelines": study.keep_timelines,
            },
        )
    if study.trials is not None or options.autotune.autotune or isinstance(options, CompareOptions):
        return
    why = "needs --trials or --autotune"
    _refuse(why, {"--ignore-earlier": study.ignore_earlier or None})
    if restart.mode != "restart":
        _refuse(
            why,
            {
                "--time-budget": study.time_budget,
                "--knobs": study.knobs,
                "--space": study.space,
                "--objective": study.objective or None,
                "--sampler": study.sampler,
                "--step-budget": study.step_budget,
                "--train-steps": study.train_steps,
                "--probe-share": study.probe_share,
            },
        )


def _check_steps(options: RunOptions) -> None:
    """Raises UsageError for a study that would not see all steps."""
    steps = options.timeline.timeline_steps
    is_restarted = options.restart.mode == "restart" or (
        isinstance(options, CompareOptions) and restarts(options)
    )
    if options.study.trials is not None or options.autotune.autotune or is_restarted:
        _refuse(
            "cannot be combined with tuning, which uses all steps",
            {
                "--timeline-steps": steps,
                "--timeline-when-full stop": options.timeline.timeline_when_full == "stop" or None,
            },
        )


def _check_timeline(options: RunOptions) -> None:
    """Raises UsageError for a timeline that cannot be written, and for options without one."""
    timeline: TraceOptions = options.timeline
    path = timeline.timeline_filename
    if path is not None and path.is_dir():
        raise UsageError(f"--timeline-filename {path} is a directory")
    if path is None and options.output.output_dir is None:
        _refuse(
            "needs --timeline-filename or -o: nothing is recorded",
            {
                "--timeline-steps": timeline.timeline_steps,
                "--timeline-when-full": timeline.timeline_when_full,
                "--timeline-format": timeline.timeline_format,
            },
        )


def _check_restart(options: RunOptions) -> None:
    """Raises UsageError for options that cannot be used if each measurement starts the command."""
    adapter, place = options.restart.adapter or "hvdtune", options.placement
    if options.mpi.mpi:
        raise UsageError(
            "--mode restart starts the ranks itself; to tune a command with a launcher of its own: "
            "hvdtune run --mode restart --adapter command --vary NAME=A,B -- mpirun ..."
        )
    starts_own = adapter in ("horovod", "command") or (
        adapter == "ddp" and starts_its_own_ranks(options.command)
    )
    if starts_own and (place.num_proc or place.hosts or place.hostfile):
        raise UsageError(
            f"with --adapter {adapter} the command starts its ranks: give their number there, as "
            "in `torchrun --nproc-per-node 2 ...` or `horovodrun -np 2 ...`"
        )
    if adapter == "command" and not options.restart.vary and not options.knobs.profile:
        raise UsageError("--adapter command has nothing to tune: name variables with --vary")
    if options.timeline.timeline_filename is not None:
        raise UsageError("--mode restart records no timeline: leave --timeline-filename out")


def _refuse(why: str, values: Mapping[str, Any]) -> None:
    for option, value in values.items():
        if value is not None:
            raise UsageError(f"{option} {why}")
