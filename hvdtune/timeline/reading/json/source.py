"""The text of a trace file in chunks, whatever it is packed in."""

import codecs
import io
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.json.damage import DamageReport

CHUNK_BYTES = 2 << 20
GZIP_MAGIC = b"\x1f\x8b"
ZIP_MAGIC = b"PK\x03\x04"
RAW = -15  # compressed data without a header around them
_PIECE_BYTES = 16 << 10


class Readable(Protocol):
    """What this module needs of a file."""

    def read(self, size: int, /) -> bytes: ...


class Summed:
    """A file whose CRC-32 is computed as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._crc = 0

    def read(self, size: int, /) -> bytes:
        data = self._file.read(size)
        self._crc = zlib.crc32(data, self._crc)
        return data

    def crc(self) -> int:
        """The CRC-32 of the whole file, the rest of which is read for it."""
        while self.read(CHUNK_BYTES):
            pass
        return self._crc


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """`path` for reading. Raises TraceFormatError where it cannot be."""
    try:
        # Others are read once, if at all: a pipe nobody writes to would be waited for.
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise TraceFormatError(f"cannot read {path}: not a regular file", str(path))
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise TraceFormatError(f"cannot read {path}: {error.strerror}", str(path)) from error


def is_archive(start: bytes) -> bool:
    """Whether a file that begins so is a zip archive, one of whose first bytes may be damaged."""
    pairs = zip(start, ZIP_MAGIC, strict=False)
    return sum(one == other for one, other in pairs) >= len(ZIP_MAGIC) - 1


def chunks(file: Readable, start: bytes, report: DamageReport) -> Iterator[bytes]:
    """The text of a plain or gzipped file, perhaps gzipped twice, from where it stands.

    Args:
        start: what was read of it already.
    """
    if start.startswith(GZIP_MAGIC):
        file = Pieces(inflated(file, start, report))
        start = file.start()
    if start.startswith(GZIP_MAGIC):
        yield from inflated(file, start, report)
        return
    if start:
        yield start
    while data := file.read(CHUNK_BYTES):
        yield data


class Pieces:
    """Pieces of any size as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = io.BytesIO()

    def read(self, size: int, /) -> bytes:
        """Read the rest of a piece, `size` bytes at most."""
        while not (data := self._piece.read(size)):
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._piece = io.BytesIO(piece)
        return data

    def start(self) -> bytes:
        """The first bytes of the file, which tell its format."""
        return self.read(1) + self.read(1)


def inflated(
    file: Readable, start: bytes, report: DamageReport, wbits: int = 31, at: int = 0
) -> Iterator[bytes]:
    """Decompress gzipped pieces one after the other, or one stream that is `RAW`.

    Args:
        start: what was read of it already.
        at: where it begins, for messages.
    """
    unpacker = zlib.decompressobj(wbits)
    data = start
    while data or (data := file.read(_PIECE_BYTES)):
        piece, data = data[:_PIECE_BYTES], data[_PIECE_BYTES:]
        if unpacker.eof:
            if wbits == RAW:
                return
            if not piece.strip(b"\0"):
                at += len(piece)
                continue
            unpacker = zlib.decompressobj(wbits)
        before = unpacker.copy()
        try:
            text = unpacker.decompress(piece)
        except zlib.error:
            text, good = _until_damage(before, piece)
            yield text
            at += good
            report.packing_problem(f"the compressed data are damaged at byte {at}", at)
            return
        at += len(piece) - len(unpacker.unused_data)
        data = unpacker.unused_data + data
        yield text
    if not unpacker.eof:
        report.packing_problem(f"the compressed data are cut off at byte {at}", at)


def _until_damage(unpacker: Any, piece: bytes) -> tuple[bytes, int]:
    text = []
    for index in range(len(piece)):
        try:
            text.append(unpacker.decompress(piece[index : index + 1]))
        except zlib.error:
            return b"".join(text), index
    return b"".join(text), len(piece)


def _question_marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "?" * (error.end - error.start), error.end


codecs.register_error("hvdtune.question_marks", _question_marks)


class TextWindow:
    """The stretch of the text that is looked at.

    Attributes:
        data: the stretch; bytes that are not UTF-8 are question marks in it.
        at: where in `data` reading goes on.
        final: the text ends where `data` does.
    """

    def __init__(self, texts: Iterator[bytes], report: DamageReport) -> None:
        self.data = b""
        self.at = 0
        self.final = False
        self._texts = texts
        self._report = report
        self._offset = 0  # of data in the text
        self._cut = b""  # the begin of a character whose end is in the next chunk

    @property
    def offset(self) -> int:
        """Where in the text `at` is."""
        return self._offset + self.at

    def offset_of(self, at: int) -> int:
        """Where in the text `data[at]` is."""
        return self._offset + at

    @property
    def left(self) -> int:
        """Bytes from `at` to the end of `data`."""
        return len(self.data) - self.at

    def more(self) -> None:
        """Forgets what lies before `at` and takes in the next chunk; at the end sets `final`."""
        pieces = [self.data[self.at :]]
        self._offset += self.at
        self.at = 0
        begin = self._offset + len(pieces[0])
        taken = 0
        while taken < CHUNK_BYTES and not self.final:
            raw = next(self._texts, None)
            self.final = raw is None
            if begin + taken == 0:
                self._refuse_utf16(raw or b"")
            piece = self._characters(raw or b"", begin + taken)
            taken += len(piece)
            pieces.append(piece)
        self.data = b"".join(pieces)

    def ensure(self, size: int) -> None:
        """Takes in chunks until `size` bytes lie ahead, or all there are."""
        while self.left < size and not self.final:
            self.more()

    def _refuse_utf16(self, start: bytes) -> None:
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            path = self._report.path
            text = "this text is UTF-16, or damaged; write it as UTF-8 (iconv -f UTF-16 -t UTF-8)"
            raise TraceFormatError(f"{path}: byte 0: {text}", path, 0)

    def _characters(self, raw: bytes, begin: int) -> bytes:
        if not self._cut and raw.isascii():
            return raw
        raw = self._cut + raw
        cut = 0 if self.final else _incomplete(raw)
        raw, self._cut = raw[: len(raw) - cut], raw[len(raw) - cut :]
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            at = begin + error.start
            self._report.problem(f"byte {at} is not UTF-8, shown as a question mark", at)
            return raw.decode(errors="hvdtune.question_marks").encode()
        return raw


def _incomplete(data: bytes) -> int:
    for length in range(1, min(4, len(data) + 1)):
        byte = data[-length]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return length if needed > length else 0
        if byte < 0x80:
            return 0
    return 0
