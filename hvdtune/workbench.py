"""The workbench: the tuner, timelines and the dashboard, and the packages that only they need.

A training environment can do without: the extra `workbench` brings them, there or in an environment
of their own, whose interpreter `hvdtune run --workbench-python` names. What ranks and their
launcher do imports none of them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import hvdtune
from hvdtune.errors import HvdtuneError, UsageError

PACKAGES: Final = (
    "pandas", "pyarrow", "optuna", "scipy", "rich",
    "dash", "plotly", "dash_ag_grid", "dash_mantine_components",
)  # fmt: skip
_NAMED: Final = 3
# Of another environment's Python: neither the working folder nor PYTHONPATH, which is for this one.
FLAGS: Final = ("-E", "-P")
_ASK: Final = (
    "import json, hvdtune; from hvdtune import workbench; "
    "print(json.dumps([hvdtune.__version__, workbench.missing()]))"
)
_ANSWER_S: Final = 60.0


def missing() -> list[str]:
    """The packages of the workbench that are not installed here."""
    return [name for name in PACKAGES if not _is_installed(name)]


def require(what: str, otherwise: str = "") -> None:
    """Raises HvdtuneError in one sentence where the workbench is missing that `what` needs.

    Args:
        otherwise: by what a Python can be named that has the workbench, "" for nothing.
    """
    lacking = missing()
    if not lacking:
        return
    some = ", ".join(lacking[:_NAMED]) + (", ..." if len(lacking) > _NAMED else "")
    elsewhere = f", or set a Python that has it with {otherwise}" if otherwise else ""
    raise HvdtuneError(
        f"{what} needs the workbench, but {some} {'is' if len(lacking) == 1 else 'are'} missing. "
        f"Run pip install 'hvdtune[workbench]'{elsewhere}."
    )


def checked_python(python: Path, named: str) -> str:
    """The program of another environment, which has the workbench, and hvdtune of this version.

    Raises UsageError in one sentence where it has not.

    Args:
        named: what has named it, for messages.
    """
    program = program_of(python, named)
    command = [program, *FLAGS, "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S)
    except OSError as error:
        raise UsageError(f"{named}: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"{named}: no answer within {_ANSWER_S:g} s.") from None
    wanted = f"Run pip install 'hvdtune[workbench]=={hvdtune.__version__}' there."
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UsageError(f"{named} cannot import hvdtune ({last[0]}). {wanted}")
    try:
        version, lacking = json.loads(done.stdout)
    except ValueError:  # a wrapper may print something, too
        raise UsageError(
            f"{named} is not a Python interpreter, or prints additional text when it starts."
        ) from None
    if version != hvdtune.__version__:
        raise UsageError(f"{named} has hvdtune {version}, not {hvdtune.__version__}. {wanted}")
    if lacking:
        raise UsageError(f"{named} lacks {', '.join(lacking)}. {wanted}")
    return program


def program_of(python: Path, named: str) -> str:
    """The path of a program. Raises UsageError with the words of `named` where there is none."""
    program = shutil.which(python)
    if program is None:
        raise UsageError(f"{named}: no such program.")
    return program


def keep_recordings(
    folder: Path, target: Path, *, horovod: bool = False, mark_cycles: bool = False
) -> str:
    """Keeps the ranks' recordings of a trace that cannot be made here, and says what to do.

    A folder with a hidden name is given one beside `target`, the trace that was asked for. What is
    said makes it in Horovod's format (with cycles) where that was asked for.
    """
    if folder.name.startswith("."):
        kept, number = target.with_name(f"{target.name}.ranks"), 1
        while kept.exists():
            number += 1
            kept = target.with_name(f"{target.name}.ranks-{number}")
        folder = folder.rename(kept)
    cycles = " --mark-cycles" if mark_cycles else ""
    make = f"export --format horovod{cycles}" if horovod else "merge"
    return (
        f"The ranks' recordings are in {folder}. With the workbench installed "
        f"(pip install 'hvdtune[workbench]'), merge them into one trace: "
        f"hvdtune timeline {make} {folder} -o {target}"
    )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # what stands for it cannot say
        return False
