"""Python programs: scripts and modules of hvdtune, and the interpreter that runs them.

The interpreter of ranks is this process's, unless the launcher is one of another environment:
`hvdtune run --workbench-python` goes on as such a launcher, which has been told what it came from.
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

# The first entry is the working folder, or what stands for it; see `module_command`.
_RUN: Final = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0); "
    "import runpy; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


@dataclass(frozen=True)
class Interpreter:
    """A Python: its program, the folder that holds its package hvdtune, and its version.

    `frameworks` are the versions of those that are installed there, None where they are here.
    """

    executable: str = sys.executable
    root: str = str(Path(__file__).parents[3])
    version: str = field(default_factory=platform.python_version)
    frameworks: Mapping[str, str] | None = None

    def note(self) -> str:
        """What `of_ranks` understands in another interpreter."""
        return json.dumps(asdict(self))


def of_ranks() -> Interpreter:
    """The interpreter of ranks."""
    note = training_python()
    return Interpreter(**json.loads(note)) if note else Interpreter()


def process_group(number: int) -> dict[str, Any]:
    """The argument of Popen that puts the child into this process group, 0: one of its own."""
    if sys.version_info >= (3, 11):
        return {"process_group": number}
    return {"preexec_fn": partial(os.setpgid, 0, number)}


def module_command(module: str, python: Interpreter | None = None) -> tuple[str, ...]:
    """The argument vector that runs a module as `python -m` does, wherever hvdtune was found.

    Unlike with `-m`, nothing of the working folder is imported: a training's `select.py` or
    `queue.py` is not the standard library's.

    Args:
        python: whose module; None: this process's.
    """
    # A launcher of another environment does without the variables of the one that it serves.
    flags = ("-E",) if python is None and sys.flags.ignore_environment else ()
    python = python or Interpreter()
    return (python.executable, *flags, "-c", _RUN, python.root, module)
