"""The C++ compiler for what is built on this machine when it is first needed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from hvdtune.errors import HvdtuneError

_COMPILERS: Final = ("c++", "g++", "clang++")


def find_compiler() -> list[str]:
    """The command that CXX says, or a compiler of the PATH.

    Raises:
        HvdtuneError: there is none.
    """
    from hvdtune.core.config.environment import own_environ

    chosen = shlex.split(own_environ().get("CXX", ""))
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise HvdtuneError(f"The compiler {chosen[0]}, set by CXX, is missing. Unset CXX.")
        return chosen
    found = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if found is None:
        raise HvdtuneError(
            "Found no C++ compiler. Install one (apt install g++), or set CXX to its path."
        )
    return [found]


def run(command: Sequence[str], complaint: str, environ: Mapping[str, str] | None = None) -> None:
    """Raises HvdtuneError with `complaint`, the command and what it said, if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
    if done.returncode != 0:
        text = (done.stderr or done.stdout).strip()
        raise HvdtuneError(f"{complaint}:\n{shlex.join(command)}\n{text[-2000:]}")
