"""One-line messages on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

# Control characters, what reverses the direction of text, and halves of pairs.
_STEERING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Text with what would steer a terminal shown instead, as `\\x1b`."""
    return _STEERING.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class _Shown:
    """A stream to a terminal, for text with names that others chose."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def names_made_visible() -> Iterator[None]:
    """Has all that is printed meanwhile gone through `visible`."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Shown(stream) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def complain(text: str) -> None:
    """`hvdtune: error: ...`"""
    print("hvdtune: error:", visible(" ".join(text.split())), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """`hvdtune: warning: ...`"""
    print("hvdtune: warning:", visible(" ".join(text.split())), file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """`hvdtune: ...`"""
    print("hvdtune:", visible(text), file=sys.stderr, flush=True)
