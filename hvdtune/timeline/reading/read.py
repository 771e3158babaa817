"""Opens any trace, by what is in it rather than what it is called."""

from pathlib import Path

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.model.schema import Trace
from hvdtune.timeline.reading.formats import hvt
from hvdtune.timeline.reading.formats.chrome import read_chrome
from hvdtune.timeline.reading.json.source import opened
from hvdtune.timeline.reading.load import load
from hvdtune.timeline.reading.merge import merge
from hvdtune.timeline.reading.other_programs import trace_for_findings


def read(path: Path | str) -> Trace:
    """Read a trace of hvdtune's, or another's as `foreign` takes it.

    Raises:
        TraceFormatError: it cannot be read; the message is one line and names the path.

    Example:
        >>> trace = read("run/trace.json.gz")  # doctest: +SKIP
        >>> trace.events.query("kind == 'STEP'")  # doctest: +SKIP
    """
    path = Path(path)
    with opened(path) as file:
        start = file.read(len(hvt.MAGIC))
    # A rank killed as it began a new segment leaves PATH empty and PATH.1 whole.
    if start == hvt.MAGIC or hvt.MAGIC.startswith(start):
        return merge([path])
    try:
        return read_chrome(path)
    except TraceFormatError:
        return trace_for_findings(load(path))
