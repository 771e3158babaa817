"""Commands that need the workbench: they run here, or continue in another Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from hvdtune import workbench
from hvdtune.cli.parameters import CliCommand, CommandGroup
from hvdtune.core.config.environment import inherited_environ, training_python, workbench_python
from hvdtune.core.config.launched import TRAINING_PYTHON
from hvdtune.core.job.child_command import Interpreter

_OPTION: Final = "--workbench-python"
_GO_ON: Final = "from hvdtune.cli import main; main()"


def enter(what: str, words: Sequence[str], asked: Path | None = None) -> None:
    """Return if this Python has the workbench, else become the Python that has it.

    Raises HvdtuneError without a workbench, UsageError if the chosen Python cannot be used.

    Args:
        what: the part that needs the workbench, as the subject of a sentence.
        words: the command line after `hvdtune`.
        asked: the Python of --workbench-python; None: that of HVDTUNE_WORKBENCH_PYTHON.
    """
    if training_python():  # this Python has it
        return
    python = asked or workbench_python()
    if python is None:
        require(what, words[0] if words else "")
        return
    program = checked(python, by_option=asked is not None)
    from hvdtune.workflows.fingerprint import installed_frameworks

    here = Interpreter(frameworks=dict(installed_frameworks()))
    command = [program, *workbench.FLAGS, "-c", _GO_ON, *words]
    os.execve(program, command, inherited_environ() | {TRAINING_PYTHON: here.note()})


class WorkbenchCommand(CliCommand):
    """A command that needs the workbench."""

    def invoke(self, ctx: click.Context) -> Any:
        enter(f"`{ctx.command_path}`", ctx.find_root().obj)
        return super().invoke(ctx)


class WorkbenchGroup(CommandGroup):
    """Commands that need the workbench."""

    command_class = WorkbenchCommand


def enter_for_run(
    asked: Path | None, words: Sequence[str], *, measures: bool, records: bool
) -> None:
    """Continue in the Python of the workbench if a run needs it, as `enter` does.

    Raises UsageError if --workbench-python names no program, even if the run does not need it.
    """
    if measures:
        enter(f"measuring with `hvdtune {words[0]}`", words, asked)
    elif records and is_asked(asked):
        enter("a timeline", words, asked)
    elif asked is not None:
        workbench.program_of(asked, f"{_OPTION} {asked}")


def is_asked(asked: Path | None) -> bool:
    """Return whether another Python has the workbench."""
    return (asked or workbench_python()) is not None


def require(what: str, command: str = "run") -> None:
    """Raises HvdtuneError without a workbench; `what`, a part of `command`, needs it."""
    takes_option = command in ("run", "verify", "aa", "compare")
    workbench.require(what, f"{_OPTION} PATH" if takes_option else "HVDTUNE_WORKBENCH_PYTHON")


def checked(python: Path, *, by_option: bool) -> str:
    """Return the program of the option or the variable. Raises UsageError as `enter` does."""
    named = f"{_OPTION} {python}" if by_option else f"HVDTUNE_WORKBENCH_PYTHON={python}"
    return workbench.checked_python(python, named)
