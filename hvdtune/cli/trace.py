"""From the ranks' raw files to one trace."""

from __future__ import annotations

from pathlib import Path

from hvdtune.cli.messages import warn
from hvdtune.errors import HvdtuneError


def write_trace(raw: Path, target: Path) -> bool:
    """Merges the rank files in the folder `raw` into `target`; says on stderr what is missing.

    Returns whether there is a trace. Raises HvdtuneError when `target` cannot be written.
    """
    files = sorted(raw.glob("rank-*.hvt"))
    if not files:
        return False
    from hvdtune.timeline.export import write_chrome
    from hvdtune.timeline.merge import merge

    trace = merge(files)
    for text in trace.warnings:
        warn(text)
    try:
        write_chrome(trace, target)
    except OSError as error:
        raise HvdtuneError(f"cannot write the trace {target}: {error.strerror}") from None
    return True
