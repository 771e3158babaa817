"""horovodrun's options beyond hvdtune's own; `hvdtune.horovod.vocabulary` says what each does.

They stand before the script only: behind it `-p`, `-v` and the like are the script's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar, get_args, get_type_hints

import typer

import hvdtune
from hvdtune.horovod.vocabulary import KNOBS, TERMS, Effect, log_level

# In a parser's context: what the configuration file says.
CONFIG_FILE: Final = "hvdtune.config_file"

Options = TypeVar("Options")


def _log_level(text: str) -> str:
    try:
        return log_level(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' {error}") from None


def _show_version(wanted: bool | None) -> None:
    if wanted:
        print(f"hvdtune {hvdtune.__version__}")
        raise typer.Exit


def _show_build(wanted: bool | None) -> None:
    if wanted:
        from hvdtune.cli.check_build import render

        print(render())
        raise typer.Exit


def _read_file(ctx: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        from hvdtune.cli.config_file import read_config_file

        leaves = read_config_file(path)
        ctx.meta[CONFIG_FILE] = leaves
        ctx.default_map = {name: str(leaf.value) for name, leaf in leaves.items()}
    return path


_row = partial(typer.Option, rich_help_panel="horovodrun")
# Left out of the help, which is long enough without those that do nothing here.
_silent = partial(_row, hidden=True)


def _with_knobs(options: type[Options]) -> type[Options]:
    """Adds the options of knobs that only horovodrun has, each made of its row."""
    for term in KNOBS:
        if term.help:
            name = term.option.replace("_", "-")
            row = _row(f"--{name}/--no-{name}", help=term.help)
            options.__annotations__[term.option] = Annotated[bool | None, row]
            setattr(options, term.option, None)
    return options


@dataclass(frozen=True, kw_only=True)
@_with_knobs
class HorovodOptions:
    """The options that `hvdtune run` has because horovodrun has them."""

    version: Annotated[
        bool | None,
        _row("--version", "-v", is_eager=True, callback=_show_version, help="Print the version."),
    ] = None
    check_build: Annotated[
        bool | None,
        _row(
            "--check-build",
            "-cb",
            is_eager=True,
            callback=_show_build,
            help="Show frameworks, controllers and operations.",
        ),
    ] = None
    config_file: Annotated[
        Path | None,
        _row(
            is_eager=True,
            callback=_read_file,
            help="Read options from Horovod's YAML file; the command line overrides it.",
        ),
    ] = None
    disable_cache: Annotated[bool, _silent("--disable-cache")] = False
    network_interfaces: Annotated[
        str | None,
        _row(
            "--network-interfaces",
            "--network-interface",
            metavar="A,B",
            help="Network interface to listen on; of a list, the first. [default: loopback]",
        ),
    ] = None
    output_filename: Annotated[
        Path | None,
        _row(metavar="DIR", help="Also write each rank's output to DIR/rank.N/stdout and stderr."),
    ] = None
    prefix_output_with_timestamp: Annotated[
        bool,
        _row(
            "--prefix-output-with-timestamp",
            "-prefix-timestamp",
            help="Put the time before every line of the ranks' output.",
        ),
    ] = False

    ssh_port: Annotated[
        int | None,
        _row("--ssh-port", "-p", min=1, max=65535, help="Port of ssh on the other hosts."),
    ] = None
    ssh_identity_file: Annotated[
        str | None,
        _row("--ssh-identity-file", "-i", help="Private key for ssh to the other hosts."),
    ] = None

    autotune: Annotated[bool | None, _row(help="Tune during one run of the script.")] = None
    autotune_log_file: Annotated[
        Path | None, _row(help="Write a table of the trials to this CSV file.")
    ] = None
    autotune_warmup_samples: Annotated[int | None, _silent(min=0)] = None
    autotune_steps_per_sample: Annotated[int | None, _silent(min=1)] = None
    autotune_bayes_opt_max_samples: Annotated[
        int | None, _row(min=1, help="Number of settings --autotune tries. [default: 20]")
    ] = None
    autotune_gaussian_process_noise: Annotated[float | None, _silent(min=0, max=1)] = None

    min_num_proc: Annotated[int | None, _silent("--min-np", "--min-num-proc")] = None
    max_num_proc: Annotated[int | None, _silent("--max-np", "--max-num-proc")] = None
    slots_per_host: Annotated[int | None, _silent()] = None
    elastic_timeout: Annotated[int | None, _silent()] = None
    reset_limit: Annotated[int | None, _silent()] = None
    blacklist_cooldown_range: Annotated[tuple[int, int] | None, _silent()] = None
    host_discovery_script: Annotated[str | None, _silent()] = None

    timeline_mark_cycles: Annotated[
        bool | None,
        _row(help="Show cycles in a trace of Horovod's format; other traces always show them."),
    ] = None

    stall_check: Annotated[
        bool | None,
        _row(help="Explain operations that wait long, and end the job if they wait on."),
    ] = None
    stall_check_warning_time_seconds: Annotated[
        float | None,
        _row(min=0, help="Seconds until a waiting operation is explained; 0: never. [default: 5]"),
    ] = None
    stall_check_shutdown_time_seconds: Annotated[
        float | None,
        _row(
            min=0, help="Seconds until a waiting operation ends the job; 0: never. [default: 600]"
        ),
    ] = None

    mpi_threads_disable: Annotated[bool | None, _silent()] = None
    mpi_args: Annotated[str | None, _row(help="Further arguments for mpirun, with --mpi.")] = None
    tcp: Annotated[bool, _row("--tcp", help="Let MPI use TCP only, with --mpi.")] = False
    binding_args: Annotated[
        str | None,
        _row(
            help="Arguments that tell mpirun how to bind ranks. "
            "[default of Open MPI: --bind-to none --map-by slot]"
        ),
    ] = None
    num_nccl_streams: Annotated[int | None, _silent(min=1)] = None
    thread_affinity: Annotated[
        str | None,
        _row(
            metavar="CORE,...", help="CPU cores for hvdtune's threads, one for each rank of a host."
        ),
    ] = None
    gloo_timeout_seconds: Annotated[
        float | None, _row(min=1, help="The same as --start-timeout, which overrides it.")
    ] = None

    log_level: Annotated[
        str | None,
        _row(
            parser=_log_level,
            metavar="LEVEL",
            help="One of trace, debug, info, warning, error and fatal. [default: warning]",
        ),
    ] = None
    log_timestamp: Annotated[
        bool | None, _silent("--log-with-timestamp/--log-without-timestamp")
    ] = None
    log_hide_timestamp: Annotated[bool | None, _silent()] = None

    controller: Annotated[Literal["gloo", "mpi"] | None, _silent()] = (
        None  # of the configuration file: the three below come first
    )
    gloo: Annotated[
        bool, _row("--gloo", help="Start the ranks with hvdtune's own launcher. [default]")
    ] = False
    mpi: Annotated[bool, _row("--mpi", help="Start the ranks with mpirun.")] = False
    jsrun: Annotated[bool, _silent("--jsrun")] = False


@cache
def horovod_rows() -> Mapping[str, tuple[str, Effect | None]]:
    """First spelling and effect of each of these options, by field."""
    effects = {term.option: term.effect for term in TERMS}
    rows: dict[str, tuple[str, Effect | None]] = {}
    for name, hint in get_type_hints(HorovodOptions, include_extras=True).items():
        _, option = get_args(hint)
        spellings = option.default if isinstance(option.default, str) else f"--{name}"
        rows[name] = spellings.partition("/")[0].replace("_", "-"), effects.get(name)
    return rows
