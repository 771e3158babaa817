"""The standard streams of this process: open, and able to show any text."""

from __future__ import annotations

import codecs
import io
import os
import sys


def open_missing_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Services and start scripts close them (`>&-`). The next file or socket that the process opens
    would get the number of such a stream, and whatever a library prints would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:  # as Python leaves one that was closed at its start
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def show_any_text() -> None:
    """Escape characters that the locale's encoding lacks, instead of raising UnicodeEncodeError."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        is_utf_8 = codecs.lookup(stream.encoding).name == "utf-8"
        # With UTF-8, surrogateescape restores a file name's bytes and encodes everything else.
        if stream.errors == "strict" or (stream.errors == "surrogateescape" and not is_utf_8):
            stream.reconfigure(errors="backslashreplace")
