"""One-line messages on stderr."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from hvdtune.errors import ArgumentError, HvdtuneError

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting
    from hvdtune.launcher.output import Writer
    from hvdtune.workflows.requests import ProgressView

# Control characters, marks that reverse the direction of text, and lone surrogates.
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

# Parameters of the Python API whose options have other names.
_OPTIONS: Final = {
    "ranks": "-np",
    "hosts": "-H",
    "trace": "--timeline-filename",
    "run_dir": "-o",
}


def visible(text: str) -> str:
    """Return the text with characters that steer a terminal escaped, as in `\\x1b`."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class _Shown:
    """A stream to a terminal that escapes the names that others chose."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def names_made_visible() -> Iterator[None]:
    """Pass everything that the block prints through `visible`."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Shown(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def spelled(error: HvdtuneError | click.ClickException) -> str:
    """Return the error's message with options instead of parameters of the Python API."""
    if isinstance(error, ArgumentError):
        option = _OPTIONS.get(error.name, f"--{error.name.replace('_', '-')}")
        return error.words({error.name: option})
    if isinstance(error, click.NoSuchOption):  # its message depends on click's version
        close = ", ".join(sorted(error.possibilities or ()))
        return f"No such option: {error.option_name}" + (
            f" (Possible options: {close})" if close else ""
        )
    if isinstance(error, click.BadParameter) and error.message:  # a value is wrong, not missing
        return error.format_message().rstrip(".")
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def error(text: str) -> None:
    """Print `hvdtune: error: ...`."""
    print("hvdtune: error:", visible(" ".join(text.split())), file=sys.stderr, flush=True)


def warning(text: str) -> None:
    """Print `hvdtune: warning: ...`."""
    print("hvdtune: warning:", visible(" ".join(text.split())), file=sys.stderr, flush=True)


def info(text: str) -> None:
    """Print `hvdtune: ...`."""
    print("hvdtune:", visible(text), file=sys.stderr, flush=True)


class TerminalReporter:
    """Shows the messages of workflows on the terminal; with `json_only`, stdout gets none."""

    info = staticmethod(info)
    warning = staticmethod(warning)
    error = staticmethod(error)

    def __init__(self, *, json_only: bool = False) -> None:
        self._json_only = json_only

    @functools.cached_property
    def write(self) -> Writer:
        """Return a writer that passes the ranks' output on."""
        from hvdtune.launcher.output import terminal_writer

        return terminal_writer()

    def progress(self, default: Setting) -> AbstractContextManager[ProgressView]:
        """Return a display of a study's progress."""
        from hvdtune.cli.terminal.display import open_display

        return open_display(default, json_only=self._json_only)
