"""One-line messages on stderr."""

from __future__ import annotations

import sys


def complain(text: str) -> None:
    """`hvdtune: error: ...`"""
    print("hvdtune: error:", " ".join(text.split()), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """`hvdtune: warning: ...`"""
    print("hvdtune: warning:", " ".join(text.split()), file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """`hvdtune: ...`"""
    print("hvdtune:", text, file=sys.stderr, flush=True)
