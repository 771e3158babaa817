"""Commands that need the workbench: they run here, or go on in a Python that has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

import hvdtune
from hvdtune import workbench
from hvdtune.cli.parameters import CliCommand, CommandGroup
from hvdtune.core.config.environment import inherited_environ, training_python, workbench_python
from hvdtune.core.config.launched import TRAINING_PYTHON
from hvdtune.core.job.child_command import Interpreter
from hvdtune.errors import UsageError

_OPTION: Final = "--workbench-python"
# Neither the working folder nor PYTHONPATH, which is for the other environment.
_FLAGS: Final = ("-E", "-P")
_GO_ON: Final = "from hvdtune.cli import main; main()"
_ASK: Final = (
    "import json, hvdtune; from hvdtune import workbench; "
    "print(json.dumps([hvdtune.__version__, workbench.missing()]))"
)
_ANSWER_S: Final = 60.0


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
        workbench.require(what, _named_by(words))
        return
    program = _checked(
        python, f"{_OPTION} {python}" if asked else f"HVDTUNE_WORKBENCH_PYTHON={python}"
    )
    from hvdtune.workflows.fingerprint import installed_frameworks

    here = Interpreter(frameworks=dict(installed_frameworks()))
    command = [program, *_FLAGS, "-c", _GO_ON, *words]
    os.execve(program, command, inherited_environ() | {TRAINING_PYTHON: here.note()})


class WorkbenchCommand(CliCommand):
    """A command that needs the workbench."""

    def invoke(self, ctx: click.Context) -> Any:
        enter(f"`{ctx.command_path}`", ctx.find_root().obj)
        return super().invoke(ctx)


class WorkbenchGroup(CommandGroup):
    """Commands that need the workbench."""

    command_class = WorkbenchCommand


def is_asked(asked: Path | None) -> bool:
    """Whether another Python is to do what needs the workbench."""
    return (asked or workbench_python()) is not None


def _named_by(words: Sequence[str]) -> str:
    takes_option = words[:1] and words[0] in ("run", "verify", "aa", "compare")
    return f"{_OPTION} PATH" if takes_option else "HVDTUNE_WORKBENCH_PYTHON"


def _checked(python: Path, named: str) -> str:
    """The program. Raises UsageError unless it has the workbench, and hvdtune of this version."""
    program = shutil.which(python)
    if program is None:
        raise UsageError(f"{named}: there is no such program")
    try:
        done = subprocess.run(
            [program, *_FLAGS, "-c", _ASK], capture_output=True, text=True, timeout=_ANSWER_S
        )
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{named}: it does not answer within {_ANSWER_S:g} s") from None
    wanted = f"pip install 'hvdtune[workbench]=={hvdtune.__version__}' there"
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"it exits with {done.returncode}"]
        raise UsageError(f"{named}: hvdtune cannot be imported by it ({said[0]}): {wanted}")
    try:
        version, lacking = json.loads(done.stdout)
    except ValueError:  # a wrapper may print something, too
        raise UsageError(f"{named}: it does not answer as Python does, or prints more") from None
    if version != hvdtune.__version__:
        raise UsageError(f"{named}: it has hvdtune {version}, not {hvdtune.__version__}: {wanted}")
    if lacking:
        raise UsageError(f"{named}: it has no {', '.join(lacking)}: {wanted}")
    return program
