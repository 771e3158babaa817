"""Names kinds of file that people take for traces, and what to do with them."""

import re
from collections.abc import Collection
from typing import Final

_SPEEDSCOPE: Final = (
    "a speedscope profile (stack samples); open it at speedscope.app, or record a Chrome trace"
)
_CPUPROFILE: Final = (
    "a V8 .cpuprofile (stack samples); open it at speedscope.app, or record a Chrome trace"
)
_STARTS: Final = (
    (
        re.compile(rb"version https://git-lfs\.github\.com/spec/"),
        "a Git LFS pointer, not the file; fetch it first: git lfs pull",
    ),
    (
        re.compile(rb"\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE),
        "an HTML page, perhaps a login page; download the trace again",
    ),
    (
        re.compile(rb"\s*\{[^{}]{0,2000}\"https://www\.speedscope\.app/file-format-schema"),
        _SPEEDSCOPE,
    ),
    (re.compile(rb'\s*\{\s*"nodes"\s*:\s*\[\s*\{[^{}]{0,500}"callFrame"\s*:'), _CPUPROFILE),
)
_KEYS: Final = (({"shared", "profiles"}, _SPEEDSCOPE), ({"nodes", "timeDeltas"}, _CPUPROFILE))
_PERFETTO: Final = (
    "a Perfetto trace in binary form; convert it first: "
    "traceconv json TRACE TRACE.json (https://get.perfetto.dev/traceconv)"
)
_PACKET: Final = 0x0A  # the tag of a packet in a Perfetto trace, and a line feed
_LONGEST_PACKET: Final = 1 << 20


def refusal_of(start: bytes) -> str:
    """Return the sentence about a file that begins so, "" where it may be a trace."""
    for pattern, text in _STARTS:
        if pattern.match(start):
            return text
    return _PERFETTO if _is_perfetto(start) else ""


def refusal_of_keys(keys: Collection[str]) -> str:
    """Return the sentence about a JSON object without events that has these keys, or ""."""
    return next((text for some, text in _KEYS if some <= {*keys}), "")


def _is_perfetto(start: bytes) -> bool:
    """Return whether these are packets, each a tag, a size and a message, and no text."""
    if not start or start.lstrip()[:1] in (b"[", b"{", b""):
        return False
    at = packets = 0
    while at < len(start) and start[at] == _PACKET:
        size, after = _varint(start, at + 1)
        if not 0 < size < _LONGEST_PACKET:
            return False
        # The message begins with the tag of a field of a known type.
        if after < len(start) and (start[after] & 7 not in (0, 1, 2, 5) or start[after] < 8):
            return False
        packets += 1
        at = after + size
    return packets > 1 or (packets == 1 and at >= len(start) and b"\0" in start)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[at : at + 5]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at + shift + 1
    return -1, at
