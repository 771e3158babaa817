"""horovodrun's options beyond hvdtune's own; `hvdtune.horovod.vocabulary` says what each does.

They stand before the script only: behind it `-p`, `-v` and the like are the script's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Final, Literal, TypeVar

import click

import hvdtune
from hvdtune import parse
from hvdtune.cli.parameters import Number, WholeNumber, flag, option, spellings_of, switch
from hvdtune.horovod.vocabulary import KNOBS, TERMS, Effect, log_level

# In a parser's context: what the configuration file says.
CONFIG_FILE: Final = "hvdtune.config_file"

Options = TypeVar("Options")


def _cores(text: str) -> str:
    try:
        parse.wholes(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' does not list cores, as 0,2 does") from None
    return text


def _log_level(text: str) -> str:
    try:
        return log_level(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' {error}") from None


def show_version(ctx: click.Context, _: click.Parameter, wanted: bool | None) -> None:
    """Prints the version and ends the command."""
    if wanted:
        print(f"hvdtune {hvdtune.__version__}")
        ctx.exit()


def _show_build(ctx: click.Context, _: click.Parameter, wanted: bool | None) -> None:
    if wanted:
        from hvdtune.cli.check_build import render

        print(render())
        ctx.exit()


def _read_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        from hvdtune.cli.config_file import read_config_file

        leaves = read_config_file(path)
        ctx.meta[CONFIG_FILE] = leaves
        ctx.default_map = {name: str(leaf.value) for name, leaf in leaves.items()}
    return path


# Left out of the help, which is long enough without those that do nothing here.
_silent = partial(option, hidden=True)
_silent_switch = partial(switch, hidden=True)


def _with_knobs(options: type[Options]) -> type[Options]:
    """Adds the options of knobs that only horovodrun has, each made of its row."""
    for term in KNOBS:
        if term.help:
            options.__annotations__[term.option] = "bool | None"
            setattr(options, term.option, switch(help=term.help))
    return options


@dataclass(frozen=True, kw_only=True)
@_with_knobs
class HorovodOptions:
    """The options that `hvdtune run` has because horovodrun has them."""

    version: bool = flag(
        "--version", "-v", is_eager=True, callback=show_version, help="Print the version."
    )
    check_build: bool = flag(
        "--check-build",
        "-cb",
        is_eager=True,
        callback=_show_build,
        help="Show frameworks, controllers and operations.",
    )
    config_file: Path | None = option(
        type=Path,
        is_eager=True,
        callback=_read_file,
        help="Read options from Horovod's YAML file; the command line overrides it.",
    )
    disable_cache: bool = flag(hidden=True)
    network_interfaces: str | None = option(
        "--network-interfaces",
        "--network-interface",
        metavar="A,B",
        help="Network interface to listen on; of a list, the first. [default: loopback]",
    )
    output_filename: Path | None = option(
        type=Path,
        metavar="DIR",
        help="Also write each rank's output to DIR/rank.N/stdout and stderr.",
    )
    prefix_output_with_timestamp: bool = flag(
        "--prefix-output-with-timestamp",
        "-prefix-timestamp",
        help="Put the time before every line of the ranks' output.",
    )

    slots_per_host: int | None = option(
        type=WholeNumber(1),
        help="Slots of each host for which no number is given. [default: 1; with one `hvdtune run` "
        "on each node, its GPUs]",
    )
    ssh_port: int | None = option(
        "--ssh-port", "-p", type=WholeNumber(1, 65535), help="Port of ssh on the other hosts."
    )
    ssh_identity_file: str | None = option(
        "--ssh-identity-file", "-i", help="Private key for ssh to the other hosts."
    )

    autotune: bool | None = switch(help="Tune during one run of the script.")
    autotune_log_file: Path | None = option(
        type=Path, help="Write a table of the trials to this CSV file."
    )
    autotune_warmup_samples: int | None = _silent(type=WholeNumber(0))
    autotune_steps_per_sample: int | None = _silent(type=WholeNumber(1))
    autotune_bayes_opt_max_samples: int | None = option(
        type=WholeNumber(1), help="Number of settings --autotune tries. [default: 20]"
    )
    autotune_gaussian_process_noise: float | None = _silent(type=Number(0, 1))

    min_num_proc: int | None = option(
        "--min-np",
        "--min-num-proc",
        type=WholeNumber(1),
        help="Elastic: go on while there are so many ranks. [default: -np, or 1]",
    )
    max_num_proc: int | None = option(
        "--max-np",
        "--max-num-proc",
        type=WholeNumber(1),
        help="Elastic: use at most so many slots. [default: -np, all with a discovery script]",
    )
    host_discovery_script: str | None = option(
        metavar="COMMAND",
        help="Elastic: run this every second; it prints a line 'host' or 'host:slots' for each.",
    )
    elastic_timeout: float | None = option(
        type=Number(1),
        help="Elastic: seconds to wait for ranks while there are too few. [default: 600]",
    )
    reset_limit: int | None = option(
        type=WholeNumber(0),
        help="Elastic: end the job when ranks are to come or go once more. [default: none]",
    )
    blacklist_cooldown_range: tuple[int, int] | None = option(
        type=WholeNumber(1, 3600),
        nargs=2,
        metavar="FIRST MOST",
        help="Elastic: seconds after which a slot is used again whose process has failed: at "
        "first, doubled each time, and at most. [default: never]",
    )

    timeline_mark_cycles: bool | None = switch(
        help="Show cycles in a trace of Horovod's format; other traces always show them."
    )

    stall_check: bool | None = switch(
        help="Explain operations that wait long, and end the job if they wait on."
    )
    stall_check_warning_time_seconds: float | None = option(
        type=Number(0),
        help="Seconds until a waiting operation is explained; 0: never. [default: 5]",
    )
    stall_check_shutdown_time_seconds: float | None = option(
        type=Number(0),
        help="Seconds until a waiting operation ends the job; 0: never. [default: 600]",
    )

    mpi_threads_disable: bool | None = _silent_switch()
    mpi_args: str | None = option(help="Further arguments for mpirun, with --mpi.")
    tcp: bool = flag(help="Let MPI use TCP only, with --mpi.")
    binding_args: str | None = option(
        help="Arguments that tell mpirun how to bind ranks. "
        "[default of Open MPI: --bind-to none --map-by slot]"
    )
    num_nccl_streams: int | None = _silent(type=WholeNumber(1))
    thread_affinity: str | None = option(
        type=_cores,
        metavar="CORE,...",
        help="CPU cores for hvdtune's threads, one for each rank of a host.",
    )
    gloo_timeout_seconds: float | None = option(
        type=Number(1), help="The same as --start-timeout, which overrides it."
    )

    log_level: str | None = option(
        type=_log_level,
        metavar="LEVEL",
        help="One of trace, debug, info, warning, error and fatal. [default: warning]",
    )
    log_timestamp: bool | None = _silent_switch("--log-with-timestamp/--log-without-timestamp")
    log_hide_timestamp: bool | None = _silent_switch()

    # Of the configuration file: the three below come first.
    controller: Literal["gloo", "mpi"] | None = _silent(type=click.Choice(["gloo", "mpi"]))
    gloo: bool = flag(help="Start the ranks with hvdtune's own launcher. [default]")
    mpi: bool = flag(help="Start the ranks with mpirun.")
    jsrun: bool = flag(hidden=True)


@cache
def horovod_rows() -> Mapping[str, tuple[str, Effect | None]]:
    """First spelling and effect of each of these options, by field."""
    effects = {term.option: term.effect for term in TERMS}
    return {
        field.name: (spellings_of(field)[0].partition("/")[0], effects.get(field.name))
        for field in fields(HorovodOptions)
    }
