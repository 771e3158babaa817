"""What a program that calls the Python API reads: Python's warnings, and the rest if it wishes."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting
    from hvdtune.tuner.measure.progress import StudyProgress


class CallerReporter:
    """Makes warnings Python's, and prints everything else only if it is `verbose`.

    The warnings point at the line that called the function which makes this reporter.
    """

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        # Warnings come from any depth, and from other threads, where no stack leads to the caller.
        frame = inspect.currentframe()
        for _ in range(2):
            frame = frame.f_back if frame is not None else None
        self._file = "<unknown>" if frame is None else frame.f_code.co_filename
        self._line = 0 if frame is None else frame.f_lineno
        self._globals = {} if frame is None else frame.f_globals

    def info(self, text: str) -> None:
        if self._verbose:
            print(f"hvdtune: {text}", file=sys.stderr, flush=True)

    error = info  # the result or an exception says it

    def warning(self, text: str) -> None:
        warnings.warn_explicit(
            text,
            UserWarning,
            self._file,
            self._line,
            module=self._globals.get("__name__"),
            registry=self._globals.setdefault("__warningregistry__", {}),
        )

    def write(self, stream: str, text: bytes) -> None:
        if self._verbose:
            file = sys.stdout if stream == "stdout" else sys.stderr
            print(text.decode(errors="replace"), end="", file=file, flush=True)

    def show(self, progress: StudyProgress) -> None:
        if progress.message:
            self.info(f"{progress.phase}: {progress.message}")

    @contextlib.contextmanager
    def progress(self, default: Setting) -> Iterator[CallerReporter]:
        del default
        yield self
