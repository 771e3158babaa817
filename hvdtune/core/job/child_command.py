"""Modules of hvdtune as programs."""

import sys
from pathlib import Path
from typing import Final

_ROOT: Final = str(Path(__file__).parents[3])
_RUN: Final = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def module_command(module: str) -> tuple[str, ...]:
    """The argument vector that runs a module as `python -m` does, wherever hvdtune was found.

    Unlike with `-m`, nothing of the working folder is imported: a training's `select.py` or
    `queue.py` is not the standard library's.
    """
    return (sys.executable, "-P", "-c", _RUN, _ROOT, module)
