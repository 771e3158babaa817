"""The text of a trace file in chunks, whatever it is packed in."""

import bz2
import codecs
import io
import lzma
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Protocol

import pyarrow as pa

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.json.damage import DamageReport

CHUNK_BYTES = 2 << 20
GZIP_MAGIC = b"\x1f\x8b"
ZIP_MAGIC = b"PK\x03\x04"
RAW = -15  # compressed data without a header around them
_PIECE_BYTES = 16 << 10
_MOST_PACKINGS: Final = 2
# A file may unpack to this, and to a multiple of each further byte. Traces of real programs unpack
# to 44 times their size at most.
MAX_UNPACKED_BYTES, MAX_RATIO, SMALL_BYTES = 44 << 20, 128, 1 << 20
_MAX_DICTIONARY_BYTES = 256 << 20


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


def is_packed(start: bytes) -> bool:
    """Return whether a file that begins so is packed by gzip, bzip2, xz or zstd."""
    return start.startswith(PACKING_MAGICS)


def chunks(file: Readable, start: bytes, report: DamageReport) -> Iterator[bytes]:
    """The text of a plain or packed file, perhaps packed twice, from where it stands.

    Args:
        start: what was read of it already.
    """
    for _ in range(_MOST_PACKINGS):
        unpack = next((each for magic, each in _PACKINGS.items() if start.startswith(magic)), None)
        if unpack is None:
            break
        file = Pieces(unpack(file, start, report))
        start = file.start()
    if start:
        yield start
    while data := file.read(CHUNK_BYTES):
        yield data


def read_at_most(file: Readable, size: int) -> bytes:
    """Return the next bytes of a file, up to `size`."""
    pieces = []
    while size > 0 and (data := file.read(size)):
        pieces.append(data)
        size -= len(data)
    return b"".join(pieces)


class _Unpacked:
    """Counts the unpacked bytes of a file: a small one may unpack to any size."""

    def __init__(self, report: DamageReport, floor: int = 0) -> None:
        """
        Args:
            floor: bytes that it may unpack to, however small it is; 0: `MAX_UNPACKED_BYTES`.
        """
        self._report = report
        self._is_outer = not report.packed_bytes
        self._floor = floor or MAX_UNPACKED_BYTES
        self._size = 0

    def is_too_large(self, text: bytes, at: int) -> bool:
        """Take a piece; report where it is too much for the `at` bytes that were read."""
        if self._is_outer:
            self._report.packed_bytes = max(at, 1)
        packed = self._report.packed_bytes
        self._size += len(text)
        if self._size <= self._floor + MAX_RATIO * max(packed - SMALL_BYTES, 0):
            return False
        self._report.packing_problem(
            f"the rest is not read: {packed} bytes unpack to more than {self._size >> 20} MiB",
            packed,
        )
        return True


def bounded(texts: Iterator[bytes], packed: int, report: DamageReport) -> Iterator[bytes]:
    """Return a text that was unpacked from a number of bytes, up to the maximum size."""
    whole = _Unpacked(report)
    for text in texts:
        if whole.is_too_large(text, packed):
            return
        yield text


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
        return read_at_most(self, max(map(len, PACKING_MAGICS)))


def inflated(
    file: Readable,
    start: bytes,
    report: DamageReport,
    wbits: int = 31,
    at: int = 0,
    floor: int = 0,
) -> Iterator[bytes]:
    """Decompress gzipped pieces one after the other, or one stream that is `RAW`.

    Args:
        start: what was read of it already.
        at: where it begins, for messages.
        floor: see `_Unpacked`.
    """
    unpacker = zlib.decompressobj(wbits)
    data, whole, begin = start, _Unpacked(report, floor), at
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
        if whole.is_too_large(text, at - begin):
            return
        yield text
    if not unpacker.eof:
        report.packing_problem(f"the compressed data are cut off at byte {at}", at)


def _bunzipped(file: Readable, start: bytes, report: DamageReport) -> Iterator[bytes]:
    return _decompressed(file, start, report, bz2.BZ2Decompressor)


def _unxzed(file: Readable, start: bytes, report: DamageReport) -> Iterator[bytes]:
    return _decompressed(
        file, start, report, lambda: lzma.LZMADecompressor(memlimit=_MAX_DICTIONARY_BYTES)
    )


def _decompressed(
    file: Readable, start: bytes, report: DamageReport, new: Callable[[], Any]
) -> Iterator[bytes]:
    """Decompress streams one after the other by a class of the standard library's."""
    unpacker, whole = new(), _Unpacked(report)
    data, at = start, 0
    while True:
        if not data and (unpacker.eof or unpacker.needs_input):
            data = file.read(_PIECE_BYTES)
            if not data:
                break
        at += len(data)
        if unpacker.eof:
            if not data.strip(b"\0"):
                data = b""
                continue
            unpacker = new()
        try:
            text = unpacker.decompress(data, CHUNK_BYTES)
        except (OSError, lzma.LZMAError) as error:
            report.packing_problem(f"the compressed data are damaged at byte {at} ({error})", at)
            return
        data = unpacker.unused_data
        at -= len(data)
        if whole.is_too_large(text, at):
            return
        yield text
    if not unpacker.eof:
        report.packing_problem(f"the compressed data are cut off at byte {at}", at)


def _unzstded(file: Readable, start: bytes, report: DamageReport) -> Iterator[bytes]:
    packed, whole = _Joined(start, file), _Unpacked(report)
    try:
        with pa.CompressedInputStream(pa.PythonFile(packed, "r"), "zstd") as stream:
            # Of the piece in which the file is cut off Arrow returns nothing.
            while text := stream.read(_PIECE_BYTES):
                if whole.is_too_large(text, packed.at):
                    return
                yield text
    except (OSError, pa.ArrowException) as error:
        at = packed.at
        text = f"the compressed data are damaged or cut off before byte {at} ({error})"
        report.packing_problem(" ".join(text.split()), at)


class _Joined(io.RawIOBase):
    """The beginning of a file and the rest of it as one file."""

    def __init__(self, start: bytes, file: Readable) -> None:
        self._start, self._file = start, file
        self.at = 0

    def read(self, size: int = -1, /) -> bytes:
        """Read at most `size` bytes."""
        data, self._start = self._start[:size], self._start[size:]
        data = data or self._file.read(size)
        self.at += len(data)
        return data

    def readable(self) -> bool:
        return True


_PACKINGS: Final = {
    GZIP_MAGIC: inflated,
    b"BZh": _bunzipped,
    b"\xfd7zXZ\x00": _unxzed,
    b"\x28\xb5\x2f\xfd": _unzstded,
}
PACKING_MAGICS: Final = tuple(_PACKINGS)


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
            text = "text in UTF-16, or damaged; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"
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
