"""Commands that need the workbench: they run here, or go on in a Python that has it."""

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
    """Returns where the workbench is to be used here, else becomes the Python that has it.

    Raises HvdtuneError where there is none, UsageError where the one named cannot be used.

    Args:
        what: needs the workbench, as the subject of a sentence.
        words: the command line behind `hvdtune`.
        asked: what --workbench-python names; None: what HVDTUNE_WORKBENCH_PYTHON does.
    """
    if training_python():  # this is the Python that has it
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


def require_program(asked: Path | None) -> None:
    """Raises UsageError where --workbench-python names no program, though nothing needs it."""
    if asked is not None:
        workbench.program_of(asked, f"{_OPTION} {asked}")


def is_asked(asked: Path | None) -> bool:
    """Whether another Python is to do what needs the workbench."""
    return (asked or workbench_python()) is not None


def require(what: str, command: str = "run") -> None:
    """Raises HvdtuneError where the workbench is not here that `what`, of `command`, needs."""
    takes_option = command in ("run", "verify", "aa", "compare")
    workbench.require(what, f"{_OPTION} PATH" if takes_option else "HVDTUNE_WORKBENCH_PYTHON")


def checked(python: Path, *, by_option: bool) -> str:
    """The program that the option or the variable has named. Raises UsageError as `enter` does."""
    named = f"{_OPTION} {python}" if by_option else f"HVDTUNE_WORKBENCH_PYTHON={python}"
    return workbench.checked_python(python, named)
