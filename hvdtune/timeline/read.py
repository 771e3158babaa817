"""Opens any trace, by what is in it rather than what it is called."""

from pathlib import Path

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.merge import merge
from hvdtune.timeline.readers import hvt
from hvdtune.timeline.readers.chrome import read_chrome
from hvdtune.timeline.schema import Trace


def read(path: Path | str) -> Trace:
    """Read a merged trace (JSON, compressed or not) or the timeline of one rank.

    Raises:
        TraceFormatError: it cannot be read; the message is one line and names the path.

    Example:
        >>> trace = read("run/trace.json.gz")  # doctest: +SKIP
        >>> trace.events.query("kind == 'STEP'")  # doctest: +SKIP
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            start = file.read(len(hvt.MAGIC))
    except OSError as error:
        raise TraceFormatError(f"cannot read {path}: {error.strerror}", str(path)) from error
    # A rank killed as it began a new segment leaves PATH empty and PATH.1 whole.
    if start == hvt.MAGIC or hvt.MAGIC.startswith(start):
        return merge([path])
    return read_chrome(path)
