"""Python programs: scripts and modules of hvdtune, and the interpreter that runs them.

The interpreter of ranks is this process's, unless the launcher has another environment:
`hvdtune run --workbench-python` continues as such a launcher, and passes its own interpreter to it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import training_python

# The first entry is the working folder, or ""; see `module_command`.
_RUN: Final = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); "
    "import runpy; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python interpreter.

    Attributes:
        executable: its program.
        root: the folder that contains its package hvdtune.
        version: of Python.
        frameworks: versions of the frameworks installed there; None for this process's.
    """

    executable: str = sys.executable
    root: str = str(Path(__file__).parents[3])
    version: str = field(default_factory=platform.python_version)
    frameworks: Mapping[str, str] | None = None

    def note(self) -> str:
        """Return the text that `of_ranks` reads in another interpreter."""
        return json.dumps(asdict(self))


def of_ranks() -> Interpreter:
    """Return the interpreter of ranks."""
    note = training_python()
    return Interpreter(**json.loads(note)) if note else Interpreter()


def process_group(number: int) -> dict[str, Any]:
    """Return the argument of Popen for the child's process group; 0 for a new one."""
    if sys.version_info >= (3, 11):
        return {"process_group": number}
    return {"preexec_fn": partial(os.setpgid, 0, number)}


def module_command(module: str, python: Interpreter | None = None) -> tuple[str, ...]:
    """Return the argument vector that runs a module as `python -m` does, for any folder of hvdtune.

    Unlike with `-m`, no module is imported from the working folder: a training's `select.py` or
    `queue.py` is not the standard library's.

    Args:
        python: the interpreter that has the module; None for this process's.
    """
    # A launcher of another environment ignores the variables of the ranks' environment.
    flags = ("-E",) if python is None and sys.flags.ignore_environment else ()
    python = python or Interpreter()
    return (python.executable, *flags, "-c", _RUN, python.root, module)
