"""A rank of `hvdtune.run`: `python -m hvdtune.launcher.call FUNCTION RESULT...`.

The arguments are inherited descriptors of memory files: the function and its arguments as two
pickles (the caller's sys.path, then the rest), and one file per rank for what becomes of it. An
outcome is a pickle after one byte, which is 1 when the outcome is complete.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import cloudpickle

from hvdtune.core.config.environment import environ_rank_and_size


def main(arguments: Sequence[str]) -> int:
    """Calls the function and writes its outcome; returns the exit code."""
    function, *results = map(int, arguments)
    for descriptor in (function, *results):
        # Programs that the function starts have no business with them.
        os.set_inheritable(descriptor, False)
    rank, _ = environ_rank_and_size()
    return 0 if write_outcome(results[rank], call(function)) else 1


def write_call(path: Sequence[str], func: Any, args: Any, kwargs: Any) -> bytes:
    """The content of the function's file. Raises what cloudpickle does."""
    return pickle.dumps(list(path)) + bytes(cloudpickle.dumps((func, args, kwargs)))


def call(descriptor: int) -> tuple[Any, ...]:
    """("returned", value), or ("raised", the error in one line, its traceback, its pickle or None).

    What the function does to end the process, as sys.exit() does, has its way.
    """
    try:
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            # Modules next to the caller's script are found here, too, and before ours.
            path = pickle.load(file)
            sys.path[:] = [*path, *(entry for entry in sys.path if entry not in path)]
            func, args, kwargs = pickle.load(file)
        return "returned", func(*args, **kwargs)
    except Exception as error:
        inside = error.__traceback__ and error.__traceback__.tb_next
        trace = "".join(traceback.format_exception(type(error), error, inside))
        summary = traceback.format_exception_only(error)[-1].strip()
        return "raised", summary, trace, _pickled_or_none(error)


def write_outcome(descriptor: int, outcome: tuple[Any, ...]) -> bool:
    """Leaves an outcome in a rank's file, or why its value cannot be pickled. Was it a value?"""
    with open(f"/proc/self/fd/{descriptor}", "r+b") as file:
        file.write(b"\0")
        try:
            cloudpickle.dump(outcome, file)
        except Exception as error:
            kind = type(outcome[1]).__name__
            summary = f"its result, of type {kind}, cannot be pickled: {error}"
            outcome = "raised", summary, "", None
            file.seek(1)
            file.truncate()
            pickle.dump(outcome, file)
        file.flush()
        file.seek(0)
        file.write(b"\1")
    return bool(outcome[0] == "returned")


def read_outcome(descriptor: int) -> tuple[Any, ...] | None:
    """Reads what a rank left in its file, None if nothing whole. Raises what pickle does."""
    with open(f"/proc/self/fd/{descriptor}", "rb") as file:
        return pickle.load(file) if file.read(1) == b"\1" else None


def _pickled_or_none(error: Exception) -> bytes | None:
    try:
        return bytes(cloudpickle.dumps(error))
    except Exception:
        return None  # its traceback says what it was


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
