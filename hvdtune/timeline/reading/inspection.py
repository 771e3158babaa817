"""What kind of file a path is, found once by its first bytes, whatever it is called."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.dumps.flight_recorder import is_pickle
from hvdtune.timeline.reading.formats import hvt, parquet
from hvdtune.timeline.reading.json.other_kinds import refusal_of
from hvdtune.timeline.reading.json.source import PACKING_MAGICS, is_archive, is_packed, opened
from hvdtune.timeline.reading.sqlite.database import MAGIC as SQLITE_MAGIC

# "recording": a rank's own file; "text": JSON, perhaps packed; "database": SQLite;
# "pickle": what may be a dump of PyTorch's; "empty", "unreadable": see `error`.
Kind = Literal[
    "recording", "parquet", "archive", "database", "pickle", "text", "empty", "unreadable"
]
_START_BYTES: Final = 1 << 12
_REPORTS: Final = (".nsys-rep", ".qdrep")
_TEXT_STARTS: Final = (*PACKING_MAGICS, b"[", b"{", b"\xef\xbb\xbf")


@dataclass(frozen=True)
class InspectedFile:
    """A file that may be a trace.

    Attributes:
        error: why it cannot be read.
        listed: nobody named it, it only lies in a folder, and may be anything.
        packed: by gzip, bzip2, xz or zstd.
    """

    path: Path
    kind: Kind
    error: TraceFormatError | None = None
    listed: bool = False
    packed: bool = False


def inspect(path: Path, *, listed: bool = False) -> InspectedFile:
    """Looks into a file; what is wrong with it is in the result."""
    try:
        with opened(path) as file:
            start = file.read(_START_BYTES)
    except TraceFormatError as error:
        return InspectedFile(path, "unreadable", error, listed)
    # A rank killed as it began a new segment leaves PATH empty and PATH.1 whole.
    if start.startswith(hvt.MAGIC) or (not start and path.with_name(f"{path.name}.1").exists()):
        return InspectedFile(path, "recording", None, listed)
    if not start:
        return InspectedFile(path, "empty", _error(path, "the file is empty"), listed)
    if start.startswith(parquet.MAGIC):
        return InspectedFile(path, "parquet", None, listed)
    if start.startswith(SQLITE_MAGIC):
        return InspectedFile(path, "database", None, listed)
    if is_pickle(start):
        return InspectedFile(path, "pickle", None, listed)
    if path.suffix in _REPORTS and not start.lstrip().startswith(_TEXT_STARTS):
        text = "export it first: nsys export --type sqlite"
        return _refused(
            path, f"only Nsight Systems can read its reports; {text} {path}", listed=listed
        )
    if refusal := refusal_of(start):
        return _refused(path, refusal, listed=listed)
    if is_archive(start):
        return InspectedFile(path, "archive", None, listed)
    if listed and not start.lstrip().startswith(_TEXT_STARTS):
        return _refused(path, "not a trace", listed=listed)
    return InspectedFile(path, "text", None, listed, packed=is_packed(start))


def _refused(path: Path, text: str, *, listed: bool) -> InspectedFile:
    return InspectedFile(path, "unreadable", _error(path, text), listed)


def _error(path: Path, text: str) -> TraceFormatError:
    return TraceFormatError(f"{path}: {text}", str(path), 0)
