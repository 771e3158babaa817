"""A rank of `hvdtune.run`: `python -m hvdtune.launcher.call FUNCTION RESULT...`.

The arguments are files: numbers of inherited descriptors, or paths in the caller's own folder.
FUNCTION contains the function and its arguments as two pickles (the caller's sys.path, then the
rest). There is one RESULT for each rank; a worker of an elastic job, whose rank may change, has
only its own. An outcome is a pickle after one byte, which is 1 when the outcome is complete.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import cloudpickle

from hvdtune.core.config.environment import environ_rank_and_size, is_elastic_worker
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import FunctionError


@dataclass(frozen=True)
class FunctionCall:
    """A function that is to run on ranks.

    Attributes:
        content: of its file (`write_call`).
        variables: of the ranks.
        folder: keeps the ranks' output as well, None for nowhere.
        login: ssh's port and identity file.
    """

    content: bytes
    title: str
    python: str
    variables: Mapping[str, str]
    folder: Path | None
    login: tuple[int | None, str | None]
    start_timeout_s: float | None

    @property
    def command(self) -> tuple[str, ...]:
        """The first words of a rank's command; FUNCTION and RESULTs follow."""
        return self.python, "-m", "hvdtune.launcher.call"


def main(arguments: Sequence[str]) -> int:
    """Calls the function and writes its outcome; returns the exit code."""
    function, *results = arguments
    for word in arguments:
        # Programs that the function starts have no business with them.
        if word.isdigit():
            os.set_inheritable(int(word), False)
    result = results[0 if len(results) == 1 else environ_rank_and_size()[0]]
    outcome = call(function)
    if outcome[0] == "raised" and is_elastic_worker():
        # The job may continue without this worker, and its outcome is then never read.
        sys.stderr.write(outcome[2] or outcome[1])
    return 0 if write_outcome(result, outcome) else 1


def write_call(path: Sequence[str], func: Any, args: Any, kwargs: Any) -> bytes:
    """The content of the function's file. Raises what cloudpickle does."""
    return pickle.dumps(list(path)) + bytes(cloudpickle.dumps((func, args, kwargs)))


def call(name: str) -> tuple[Any, ...]:
    """("returned", value), or ("raised", the error in one line, its traceback, its pickle or None).

    What the function does to end the process, as sys.exit() does, has its way.
    """
    try:
        with open(_path(name), "rb") as file:
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


def write_outcome(name: str, outcome: tuple[Any, ...]) -> bool:
    """Leaves an outcome in a rank's file, or why its value cannot be pickled. Was it a value?"""
    with open(_path(name), "r+b") as file:
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


def read_outcome(name: str) -> tuple[Any, ...] | None:
    """Reads what a rank left in its file, None if nothing whole. Raises what pickle does."""
    with open(_path(name), "rb") as file:
        return pickle.load(file) if file.read(1) == b"\1" else None


def settle(
    returncode: int, reason: str, failed: int, results: Mapping[int, str], title: str, who: str
) -> list[Any]:
    """Return the results of a job's function, in the order of `results`.

    Args:
        failed: the rank that failed first, where the return code is not 0.
        results: the RESULT of each rank.
        who: what the numbers are: "rank" or "worker".

    Raises FunctionError where it has raised, or has not returned on all ranks.
    """
    if returncode:
        outcome = outcome_of(failed, results[failed], who) if failed in results else None
        if outcome is not None and outcome[0] == "raised":
            _raise_again(failed, outcome, who)
        raise FunctionError(f"{title} did not return on all ranks: {reason}", failed)
    values = []
    for number, result in results.items():
        outcome = outcome_of(number, result, who)
        if outcome is None:
            raise FunctionError(f"{who} {number} ended before {title} returned", number)
        values.append(outcome[1])
    return values


def outcome_of(number: int, result: str, who: str = "rank") -> tuple[Any, ...] | None:
    """As `read_outcome`. Raises FunctionError for what cannot be unpickled."""
    try:
        return read_outcome(result)
    except Exception as error:
        raise FunctionError(
            f"{who} {number}: its result cannot be unpickled here: {error}", number
        ) from error


def _raise_again(number: int, outcome: tuple[Any, ...], who: str) -> NoReturn:
    _, summary, trace, pickled = outcome
    message = f"{who} {number}: {summary}"
    cause = None
    if pickled is not None:
        # A class whose constructor takes other arguments cannot be made again; its text can.
        with contextlib.suppress(Exception):
            cause = pickle.loads(pickled)
    raise FunctionError(f"{message}\n\n{trace.rstrip()}" if trace else message, number) from cause


@contextlib.contextmanager
def result_file() -> Iterator[int]:
    """The memory file of a rank's outcome."""
    fd = os.memfd_create("hvdtune-result", os.MFD_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def write_here(stream: str, text: bytes) -> None:
    """Prints what ranks have written."""
    # Looked up at every call, as print() does: a notebook has one for each cell, without bytes.
    file: Any = sys.stdout if stream == "stdout" else sys.stderr
    with contextlib.suppress(ValueError):  # closed by the caller, who then does not read it
        file.flush()
        if hasattr(file, "buffer"):
            file.buffer.write(text)
        else:
            file.write(text.decode(errors="replace"))
        file.flush()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C end the job of the block, and then raise as usual."""
    try:
        with stop_signals([signal.SIGINT]):
            yield
    except Stopped as stop:
        # Python ends by the signal, as shells expect, for this very class only.
        raise KeyboardInterrupt(str(stop)) from None


def _path(name: str) -> str:
    return f"/proc/self/fd/{name}" if name.isdigit() else name


def _pickled_or_none(error: Exception) -> bytes | None:
    try:
        return bytes(cloudpickle.dumps(error))
    except Exception:
        return None  # its traceback says what it was


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
