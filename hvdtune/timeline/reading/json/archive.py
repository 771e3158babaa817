"""Files of a zip archive, whole, cut off or damaged.

The directory of an archive stands at its end, and each file has a header of its own before it. What
of the two can be believed is used; the text of a file is then unpacked as far as that goes.
"""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

from hvdtune.timeline.reading.json.damage import DamageReport
from hvdtune.timeline.reading.json.source import (
    CHUNK_BYTES,
    MAX_UNPACKED_BYTES,
    RAW,
    SMALL_BYTES,
    ZIP_MAGIC,
    Pieces,
    bounded,
    chunks,
    inflated,
)

# More files are damage or malice: each takes some milliseconds, however small it is.
_MOST_FILES, _SMALL_FILES, _BYTES_PER_FILE = 10_000, 256, 1 << 12
_HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
_END: Final = struct.Struct("<4sHHHHIIH")  # of the directory
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _SIZES_FOLLOW, _UTF8 = 1, 8, 0x800
_MAX_NAME_BYTES = 1 << 12
_MAX_EXTRA_BYTES = 64  # that are tried where a header is damaged
_PROBE_BYTES = 1 << 12


@dataclass
class ArchiveMember:
    """One file of an archive.

    Attributes:
        name: without what is no character.
        at: where its header is.
        begin, end: where its packed text lies; `end` may be too late.
        method: of packing.
        encrypted: whether that needs a password.
        sums: CRC-32 of its text, as they are said.
        info: what the directory says.
    """

    name: str
    at: int
    begin: int
    end: int
    method: int
    encrypted: bool
    sums: frozenset[int]
    info: zipfile.ZipInfo | None = None


@dataclass(frozen=True)
class _MemberHeader:
    """What stands before a file."""

    at: int
    marked: bool = False  # begins as a header does
    flags: int = 0
    method: int = -1
    crc: int = 0
    size: int = 0
    name: bytes = b""
    extra: int = 0

    @property
    def begin(self) -> int:
        return self.at + _HEADER.size + len(self.name) + self.extra

    @property
    def text(self) -> str:
        return self.name.decode("utf-8" if self.flags & _UTF8 else "cp437", "replace")


def members(file: IO[bytes], report: DamageReport) -> list[ArchiveMember]:
    """The files of an archive in the order of their places; what is damaged is reported."""
    size = file.seek(0, 2)
    found: list[ArchiveMember] = []
    most = min(_SMALL_FILES + size // _BYTES_PER_FILE, _MOST_FILES)
    end = size
    try:
        archive = zipfile.ZipFile(file)
        infos = archive.infolist()
        if len(infos) != _said_count(file, archive):
            raise zipfile.BadZipFile("its number of entries is wrong")
        infos = [info for info in infos if not info.filename.endswith("/")]
        end = archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, EOFError) as error:
        infos = None
        text = f"the directory of the archive cannot be read at byte {size} ({error})"
        report.problem(f"{text}; its files are found by their headers", size)
    if infos is None:
        found = [_by_header(header) for header in _scan(file, most)]
    else:
        found = _by_directory(file, infos[:most], end, report)
    if len(found) >= most if infos is None else len(infos) > most:
        count = "" if infos is None else f" of {len(infos)}"
        text = f"only {most}{count} files are read, because the archive has only {size} bytes"
        report.problem(text, size)
    found = sorted({each.at: each for each in found}.values(), key=lambda each: each.at)
    limits = [*(each.at for each in found[1:]), end]
    for each, limit in zip(found, limits, strict=False):
        known = each.method == _STORED and each.end
        each.end = min(each.end, limit) if known else max(limit, each.begin)
    return found


def texts(file: IO[bytes], member: ArchiveMember, report: DamageReport) -> Iterator[bytes]:
    """The text of a member, as far as it can be unpacked."""
    at = member.at
    if member.encrypted:
        report.problem(f"the file at byte {at} of the archive is encrypted", at)
    elif member.method in (_STORED, _DEFLATED):
        pieces = Pieces(_checked(file, member, report))
        yield from chunks(pieces, pieces.start(), report)
    elif member.info is not None:
        try:
            with zipfile.ZipFile(file) as archive, archive.open(member.info) as opened:
                # zipfile unpacks all that it reads at once.
                small = iter(lambda: opened.read(_PROBE_BYTES), b"")
                pieces = Pieces(bounded(small, member.info.compress_size, report))
                yield from chunks(pieces, pieces.start(), report)
        except (zipfile.BadZipFile, lzma.LZMAError, EOFError, ValueError, RuntimeError) as error:
            report.packing_problem(f"the file at byte {at} of the archive: {error}", at)


def _checked(file: IO[bytes], member: ArchiveMember, report: DamageReport) -> Iterator[bytes]:
    stretch = _Stretch(file, member.begin, member.end)
    pieces = iter(lambda: stretch.read(CHUNK_BYTES), b"")
    if member.method == _DEFLATED:
        # The files of a small archive may together unpack to the size that a single one may.
        whole = min(max(file.seek(0, 2), 1), SMALL_BYTES)
        floor = max(MAX_UNPACKED_BYTES * stretch.size // whole, 1)
        pieces = inflated(stretch, b"", report, RAW, member.begin, floor)
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
        yield piece
    if member.sums and crc not in member.sums and not report.packing_damaged:
        report.packing_problem(
            "checksum mismatch: data between byte "
            f"{member.begin} and {stretch.at} of the archive are damaged",
            member.begin,
        )


class _Stretch:
    """A part of a file."""

    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        self._file = file
        self.at = begin
        self._end = end

    @property
    def size(self) -> int:
        """The number of bytes that are left."""
        return max(self._end - self.at, 0)

    def read(self, size: int, /) -> bytes:
        self._file.seek(self.at)
        data = self._file.read(max(min(size, self._end - self.at), 0))
        self.at += len(data)
        return data


def _said_count(file: IO[bytes], archive: zipfile.ZipFile) -> int:
    """How many entries the end of the directory says there are, as far as it does."""
    file.seek(-_END.size - len(archive.comment), 2)
    count = _END.unpack(file.read(_END.size))[4]
    return len(archive.infolist()) if count == 0xFFFF else int(count)


def _by_directory(
    file: IO[bytes], infos: list[zipfile.ZipInfo], end: int, report: DamageReport
) -> list[ArchiveMember]:
    limits = sorted({end, *(info.header_offset for info in infos)})
    found: dict[int, ArchiveMember] = {}
    doubtful: list[tuple[zipfile.ZipInfo, _MemberHeader]] = []
    for info in infos:
        header = _header(file, info.header_offset)
        if header is not None and header.marked and header.text == info.orig_filename:
            found[header.at] = _by_both(file, info, header, limits)
        else:
            doubtful.append((info, header or _MemberHeader(info.header_offset)))
    if not doubtful:
        return list(found.values())
    at = doubtful[0][1].at
    report.problem(f"the directory of the archive or the header at byte {at} is damaged", at)
    for info, header in doubtful:
        if header.marked and header.at not in found:
            found[header.at] = _by_both(file, info, header, limits)
    others = [_by_header(header) for header in _scan(file, _MOST_FILES) if header.at not in found]
    # A header that nothing finds is where the directory says.
    rest = [] if others else [pair for pair in doubtful if pair[1].at not in found]
    return [*found.values(), *others, *(_by_both(file, *pair, limits) for pair in rest)]


def _by_header(header: _MemberHeader) -> ArchiveMember:
    later = header.flags & _SIZES_FOLLOW
    return ArchiveMember(
        name=_plain(header.text),
        at=header.at,
        begin=header.begin,
        end=0 if later else header.begin + header.size,
        method=header.method,
        encrypted=bool(header.flags & _ENCRYPTED),
        sums=frozenset(() if later else (header.crc,)),
    )


def _by_both(
    file: IO[bytes], info: zipfile.ZipInfo, header: _MemberHeader, limits: list[int]
) -> ArchiveMember:
    """The likeliest reading where directory and header differ."""
    member = _by_header(header)
    methods = (info.compress_type, header.method)
    known = [method for method in methods if method in (_STORED, _DEFLATED)]
    member.method = known[0] if known else info.compress_type
    member.name = _plain(info.filename)
    member.encrypted &= bool(info.flag_bits & _ENCRYPTED)
    member.sums |= {info.CRC}
    member.info = info
    name = len(info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437"))
    after = header.at + _HEADER.size + name
    if member.method == _DEFLATED:
        begins = [header.begin, after + header.extra, *range(after, after + _MAX_EXTRA_BYTES)]
        member.begin = next((at for at in begins if _inflates(file, at)), header.begin)
    else:
        limit = next((at for at in limits if at > header.at), header.begin)
        if header.begin + info.compress_size > limit:
            member.begin = after + len(info.extra)
    member.end = member.begin + max(info.compress_size, header.size)
    return member


def _inflates(file: IO[bytes], at: int) -> bool:
    file.seek(at)
    unpacker = zlib.decompressobj(RAW)
    try:
        return bool(unpacker.decompress(file.read(_PROBE_BYTES), _PROBE_BYTES) or unpacker.eof)
    except zlib.error:
        return False


def _header(file: IO[bytes], at: int) -> _MemberHeader | None:
    if at < 0:
        return None
    file.seek(at)
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size:
        return None
    mark, _, flags, method, _, _, crc, size, _, name, extra = _HEADER.unpack(data)
    return _MemberHeader(at, mark == ZIP_MAGIC, flags, method, crc, size, file.read(name), extra)


def _scan(file: IO[bytes], most: int) -> list[_MemberHeader]:
    """Return the first headers of files that can be read."""
    found: list[_MemberHeader] = []
    begin, kept = 0, b""
    while len(found) < most:
        file.seek(begin + len(kept))
        read = file.read(CHUNK_BYTES)
        data = kept + read
        at = -1
        while (at := data.find(ZIP_MAGIC, at + 1)) >= 0 and len(found) < most:
            header = _header(file, begin + at)
            if header is not None and _is_likely(header):
                found.append(header)
        if not read:
            break
        kept = data[-len(ZIP_MAGIC) + 1 :]
        begin += len(data) - len(kept)
    return found


def _is_likely(header: _MemberHeader) -> bool:
    if header.method not in (_STORED, _DEFLATED) or not 0 < len(header.name) <= _MAX_NAME_BYTES:
        return False
    return header.text.isprintable() and not header.name.endswith(b"/")


def _plain(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)
