"""The checks of a run's options that need no host: options that exclude or need each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hvdtune.cli.cluster.chaos import ChaosOptions
from hvdtune.cli.parameters import rows_of, spelling_of, values_of
from hvdtune.cli.run_command import horovod_rows
from hvdtune.cli.verify_options import CompareOptions
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import Effect, Refused

if TYPE_CHECKING:
    from hvdtune.cli.options import RankOptions, RunOptions

_OF_A_SEARCH: Final = (
    "time_budget_s", "knobs", "space", "objective", "sampler", "step_budget", "train_steps",
    "probe_share",
)  # fmt: skip
# Open MPI's options --output-filename differ from ours, and between its versions.
_NOT_UNDER_MPI: Final = (
    "trials", "autotune", "timeline_filename", "output_dir", "output_filename",
    "prefix_output_with_timestamp",
)  # fmt: skip
_OF_A_TRACE: Final = ("timeline_steps", "timeline_when_full", "timeline_format")
_ONLY_ELASTIC: Final = ("max_num_proc", "reset_limit", "blacklist_cooldown_range", "resume")
# Each needs a job whose ranks do not change.
NOT_ELASTIC: Final = ("mode", "adapter", "mpi", "storage", "keep_timelines", "thread_affinity")


def check(options: RunOptions) -> None:
    """Raises UsageError for options that exclude each other or need others."""
    for option, effect, _ in given(options):
        if isinstance(effect, Refused):
            raise UsageError(effect.sentence(option))
    _check_modes(options)
    values, rows = values_of(options), rows_of(options)
    for applies, names, why in _rules(options):
        for name in names if applies else ():
            if values[name] != rows[name].default:
                raise UsageError(f"{spelling_of(rows[name])} {why}")
    if is_elastic(options):
        _check_elastic(options)


def restarts(options: RunOptions) -> bool:
    """Return whether each measurement is a launch of its own."""
    return options.restart.mode == "restart" or options.restart.adapter is not None


def is_elastic(options: RunOptions) -> bool:
    """Return whether ranks may come and go."""
    elastic = options.elastic
    return (
        isinstance(options, ChaosOptions)
        or elastic.min_num_proc is not None
        or elastic.host_discovery_script is not None
    )


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


def _rules(options: RunOptions) -> Iterator[tuple[bool, tuple[str, ...], str]]:
    """Yield (condition, options, reason): if the condition holds, the options are refused."""
    study, restart = options.study, options.restart
    launches, compares = restarts(options), isinstance(options, CompareOptions)
    trials, elastic = study.trials is not None, is_elastic(options)
    searches = trials or bool(options.autotune.autotune) or compares
    tunes_ddp = any(name.startswith("ddp_") for name in study.knobs or ())
    records = options.timeline.timeline_filename or options.output.output_dir
    yield not (trials or launches or compares), ("as_json",), "needs --trials"
    mpi = options.mpi.mpi and not launches and not elastic
    yield mpi, _NOT_UNDER_MPI, "needs hvdtune's own launcher: leave out --mpi"
    yield not launches, ("vary", "metric_regex"), "needs --mode restart"
    yield not (launches or tunes_ddp), ("launch_time",), "needs --mode restart"
    yield not trials, ("storage", "study_name", "keep_timelines"), "needs --trials"
    yield not searches, ("ignore_earlier",), "needs --trials or --autotune"
    is_search = searches or restart.mode == "restart"
    yield not is_search, _OF_A_SEARCH, "needs --trials or --autotune"
    measures = (searches and not compares) or restart.mode == "restart" or (compares and launches)
    uses_all = "cannot be combined with tuning, which uses all steps"
    yield measures, ("timeline_steps",), uses_all
    if options.timeline.timeline_when_full == "stop":
        yield measures, ("timeline_when_full",), f"stop {uses_all}"
    yield launches, ("timeline_filename",), "is not used with --mode restart: leave it out"
    unused = not (launches or compares or records)
    yield unused, _OF_A_TRACE, "needs --timeline-filename or -o: nothing is recorded"
    yield not elastic, _ONLY_ELASTIC, "needs --min-np or --host-discovery-script"
    yield (
        elastic,
        tuple(name for name in NOT_ELASTIC if name != "keep_timelines" or study.keep_timelines),
        "cannot be combined with --min-np or --host-discovery-script yet: it needs a job whose "
        "ranks do not change",
    )


def _check_modes(options: RunOptions) -> None:
    """Raises UsageError for ways to run that exclude each other."""
    if options.mpi.gloo and options.mpi.mpi:
        raise UsageError("give --gloo or --mpi, not both")
    autotunes = options.autotune.autotune
    if autotunes and options.study.trials is not None:
        raise UsageError("give --autotune, which tunes one run, or --trials, not both")
    compares = isinstance(options, CompareOptions)
    if restarts(options):
        if options.restart.mode == "live" or autotunes:
            raise UsageError(
                f"{'--autotune' if autotunes else '--mode live'} tunes hvdtune within one run; it "
                "cannot be combined with --adapter or --mode restart"
            )
        if options.mpi.mpi:
            raise UsageError(
                "--mode restart starts the ranks itself; to tune a command with a launcher of its "
                "own: hvdtune run --mode restart --adapter command --vary NAME=A,B -- mpirun ..."
            )
        is_once = options.restart.mode is None and options.study.trials is None and not compares
        has_values = options.restart.vary or options.knobs.profile
        if options.restart.adapter == "command" and not (is_once or has_values):
            raise UsageError("--adapter command has nothing to tune: name variables with --vary")
    elif options.mpi.mpi and compares:
        raise UsageError("comparing settings needs hvdtune's own launcher: leave out --mpi")


def _check_elastic(options: RunOptions) -> None:
    """Raises UsageError for options that an elastic job excludes."""
    if isinstance(options, CompareOptions):
        raise UsageError("comparing settings needs a job of fixed size: leave out --min-np")
    if "exposed_communication" in options.study.objective:
        raise UsageError(
            "--objective exposed_communication needs a timeline of each trial, which a study of an "
            "elastic job does not record"
        )
    elastic, placement = options.elastic, options.placement
    if elastic.resume and options.output.output_dir is None:
        raise UsageError("--resume needs -o with the folder of the job")
    if elastic.host_discovery_script is not None and (placement.hosts or placement.hostfile):
        raise UsageError("give --host-discovery-script or hosts (-H, --hostfile), not both")
    first, most = elastic.blacklist_cooldown_range or (0, 0)
    if first > most:
        raise UsageError(
            f"--blacklist-cooldown-range {first} {most}: the first time exceeds the maximum"
        )
