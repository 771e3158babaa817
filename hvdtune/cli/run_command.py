"""The command of a run: its words, the configuration file, the environment and a profile in one.

They are merged before the first check: the options have one form from the beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import click

from hvdtune.cli.options import CONFIG_FILE, OF_HOROVOD, RunOptions
from hvdtune.cli.parameters import (
    CliCommand,
    RowOption,
    filled,
    parameters_of,
    rows_of,
    spelling_of,
)
from hvdtune.cli.split import split_command
from hvdtune.core.config.environment import launch_defaults, launcher_values
from hvdtune.core.config.interfaces import require_interface
from hvdtune.core.config.knobs import load_knobs
from hvdtune.core.config.script_knobs import is_of_script
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import LAUNCHER_OPTIONS, TERMS, Effect

_PATHS: Final = ("timeline_filename", "autotune_log_file")


class RunCommand(CliCommand):
    """Separates its options from the script's before the parser sees them; returns the options.

    Its help lists first the options that `hvdtune run` lacks, then those that may stand behind a
    script.
    """

    def __init__(
        self, name: str, options: type[RunOptions], left_out: Collection[str] = ()
    ) -> None:
        def made(command: tuple[str, ...], **values: Any) -> RunOptions:
            return filled(options, {"command": [*command], **merged(values)})

        params = [param for param in parameters_of(options) if param.name not in left_out]
        of_run = rows_of(RunOptions)
        params.sort(key=lambda param: (param.name in of_run, not getattr(param, "behind", False)))
        super().__init__(name, callback=made, params=params, help=options.__doc__)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        rows = [option for option in options if isinstance(option, RowOption)]
        behind = spellings(option for option in rows if option.behind)
        abbreviated = {
            word: f"{meaning} {option.name}"
            for option in rows
            for meaning, words in (("yes", option.opts), ("no", option.secondary_opts))
            for word in words
            if option.name in OF_HOROVOD and word.startswith("--")
        }
        ours, command = split_command(args, spellings(options), behind, abbreviated)
        try:
            return super().parse_args(ctx, [*ours, "--", *command])
        except click.BadParameter as error:
            option = next((option for option in options if option is error.param), None)
            leaf = ctx.meta.get(CONFIG_FILE, {}).get(option.name) if option else None
            if option is None or leaf is None or any(_named(word, option) for word in ours):
                raise
            fault = error.message.rstrip(".")
            raise UsageError(f"{leaf.where}: {leaf.key}: {fault}") from None


def merged(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a command line and its configuration file, completed by lower sources.

    These are Horovod's variables and a profile of an adapter. `mpi` is then decided. Raises
    UsageError for a variable, interface or profile that cannot be used.
    """
    if names := values["network_interfaces"]:
        require_interface(names.partition(",")[0].strip(), "--network-interface")
    by_mpi = _starts_by_mpi(values)
    asked = {LAUNCHER_OPTIONS[name]: (name, value) for name, value in launcher_values().items()}
    found = dict(values)
    for option, (variable, value) in asked.items():
        # mpirun merges no traces: its ranks record what the variables ask for.
        is_left = by_mpi and "TIMELINE" in variable
        if option in values and values[option] is None and not is_left:
            found[option] = Path(str(value)) if option in _PATHS else value
    names_timeline = values["timeline_filename"] is None and found["timeline_filename"] is not None
    if names_timeline and found["timeline_format"] is None:
        found["timeline_format"] = "horovod"
    return found | {"mpi": by_mpi, "adapter": _adapter(found)}


def _starts_by_mpi(values: Mapping[str, Any]) -> bool:
    """Flags come first, then the configuration file, then the environment."""
    if values["mpi"] or values["gloo"]:
        return bool(values["mpi"])
    return (values["controller"] or launch_defaults().mpi.controller) == "mpi"


def _adapter(values: Mapping[str, Any]) -> str | None:
    """Return the adapter of the options, else of a profile that a plain run cannot apply."""
    adapter: str | None = values.get("adapter")
    profile: Path | None = values.get("profile")
    if adapter is not None or profile is None or values.get("trials") is not None:
        return adapter
    from hvdtune.tuner.results.profile import read_profile

    found = read_profile(profile)
    own = {knob.name for knob in load_knobs()}
    is_known = all(name in own or is_of_script(name) for name in found.setting)
    return None if is_known and found.adapter == "hvdtune" else found.adapter


def _named(word: str, option: click.Option) -> bool:
    return word.partition("=")[0] in (*option.opts, *option.secondary_opts)


def spellings(options: Iterable[click.Option]) -> dict[str, int]:
    """Return every spelling of these options, with its number of values."""
    return {
        spelling: 0 if option.is_flag else option.nargs
        for option in options
        for spelling in (*option.opts, *option.secondary_opts)
    }


run = RunCommand("run", RunOptions)


@cache
def horovod_rows() -> Mapping[str, tuple[str, Effect | None]]:
    """Return the first spelling and the effect of each of horovodrun's options, by option."""
    effects = {term.option: term.effect for term in TERMS}
    return {
        name: (spelling_of(row), effects.get(name))
        for name, row in rows_of(RunOptions).items()
        if name in OF_HOROVOD
    }
