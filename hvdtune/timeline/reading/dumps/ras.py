"""Answers of NCCL's RAS (`ncclras -f json`): what its communicators' ranks have called."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.json.assemble import Tracks
from hvdtune.timeline.reading.json.begin_end_pairing import SCHEMA
from hvdtune.timeline.reading.json.damage import DamageReport, NoTraceError
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.source import Readable, read_at_most

KEY: Final = "nccl_ras"
MAX_BYTES: Final = 256 << 20
_START: Final = re.compile(rb'\s*\{\s*"nccl_version"\s*:')


class CommunicatorRankStatus(msgspec.Struct):
    """See NCCL's documentation; the first three are of ranks that answered."""

    init_state: int = 0
    async_error: int = 0
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class CommunicatorRank(msgspec.Struct):
    """What is known of a rank of a communicator."""

    rank: int
    host: str = ""
    pid: int = -1
    status: CommunicatorRankStatus = msgspec.field(default_factory=CommunicatorRankStatus)
    collective_counts: dict[str, int] = {}


class Communicator(msgspec.Struct):
    """What is known of a communicator."""

    hash: str
    size: int
    ranks: list[CommunicatorRank] = []
    missing_ranks: list[CommunicatorRank] = []


class _Answer(msgspec.Struct):
    communicators: list[Communicator]
    nccl_version: str = ""
    timestamp: str = ""


def recognizes(start: bytes) -> bool:
    """Whether a file that begins so is such an answer."""
    return bool(_START.match(start)) and b'"communicators' in start


def is_told(said: Any) -> bool:
    """Whether what surrounds a trace is what `parse` says of an answer."""
    try:
        msgspec.convert(said, type=_Answer)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def is_text(start: bytes) -> bool:
    """Whether a file that begins so is an answer as text, which is for people."""
    return start.startswith(b"NCCL version") and b"Job summary" in start


def refuse_text(path: Path) -> NoTraceError:
    """The refusal of an answer as text."""
    text = "NCCL RAS report in text format; create it in JSON: ncclras -f json"
    return NoTraceError(f"{path}: {text}", str(path), 0)


def parse(path: Path, file: Readable, report: DamageReport) -> ParsedFile:
    """Read an answer.

    Raises:
        TraceFormatError: it is damaged: half of an answer would accuse the wrong ranks.
    """
    data = read_at_most(file, MAX_BYTES + 1)
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = f"{path}: the NCCL RAS report is damaged or cut off ({error})"
        raise TraceFormatError(text, str(path), len(data)) from error
    report.problem(
        "experimental: this reader follows NCCL's source and has not been tested on a real report"
    )
    said: dict[str, Any] = msgspec.to_builtins(answer)
    return ParsedFile(
        path=report.path,
        table=SCHEMA.empty_table(),
        texts=[""],
        tracks=Tracks(),
        around={KEY: said},
        counts=report.counts(),
        warnings=report.warnings(),
    )
