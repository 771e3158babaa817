"""Dumps of PyTorch's Flight Recorder: the last collectives of one rank and how far each is."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.dumps import plain_pickle
from hvdtune.timeline.reading.json.damage import DamageReport, NoTraceError, Reason
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.rows import NO_TIME, SliceRows
from hvdtune.timeline.reading.json.source import Readable, read_at_most

KEY: Final = "flight_recorder"
MAX_BYTES: Final = 256 << 20
_START: Final = re.compile(
    rb'\s*\{\s*"(?:comm_lib_version|nccl_version|nccl_comm_state|entries|pg_config|pg_status|version)"'
)
_OWN: Final = (b'"collective_seq_id"', b'"pg_config"', b'"pg_status"')
_OTHERS: Final = (b'"traceEvents"', b'"communicators"')
_RANK: Final = re.compile(r"rank[-_.]?([0-9]{1,7})(?![0-9])", re.IGNORECASE)
_STATES: Final = ("scheduled", "started", "completed")
_MAX_RANKS: Final = 1 << 20  # of all groups together
_MAX_TENSORS, _MAX_DIMENSIONS, _MAX_TEXT, _MAX_FRAMES = 64, 16, 300, 64


class _Group(msgspec.Struct):
    description: str
    ranks: list[int]


class _Entry(msgspec.Struct):
    group: str
    seq: int
    p2p: bool
    op: str
    state: str
    input: list[list[int]]
    dtypes: list[str]
    created_ns: int
    called_at: str


class _Dump(msgspec.Struct):
    rank: int
    groups: dict[str, _Group]
    entries: list[_Entry]


def is_told(said: Any) -> bool:
    """Whether what surrounds a trace is what `parse` says of a dump: an export may be anybody's."""
    try:
        msgspec.convert(said, type=_Dump)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return True


def is_pickle(start: bytes) -> bool:
    """Whether a file that begins so is a pickle of one of the protocols in use."""
    return len(start) > 1 and start[0] == 0x80 and 2 <= start[1] <= 5


def recognizes(start: bytes) -> bool:
    """Whether a file that begins so is a dump, as JSON."""
    return bool(_START.match(start)) and (
        any(own in start for own in _OWN) and not any(other in start for other in _OTHERS)
    )


def parse(path: Path, file: Readable, report: DamageReport) -> ParsedFile:
    """Read a dump, a pickle or JSON; nothing that a pickle names is imported or called.

    Raises:
        TraceFormatError: it is none, or nothing of it can be read.
    """
    data = read_at_most(file, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        text = f"{path}: larger than {MAX_BYTES >> 20} MiB, the maximum for a dump"
        raise NoTraceError(text, str(path), MAX_BYTES)
    dump = _unpickled(path, data, report) if is_pickle(data) else _decoded(data, report)
    entries = dump.get("entries", [])
    if not isinstance(entries, list) or not ({"entries", "pg_config", "pg_status"} & {*dump}):
        raise NoTraceError(f"{path}: not a Flight Recorder dump", str(path), 0)
    shared = _Shared()
    # The same entry again is damage: no collective was called twice.
    known = [_entry(each, shared) for each in {id(each): each for each in entries}.values()]
    known += [None] * (len(entries) - len(known))
    whole = [each for each in known if each is not None]
    damaged = Reason("entry is damaged", "entries are damaged")
    report.left_out("X", damaged, len(known) - len(whole))
    match = _RANK.search(path.name)
    said = {
        "rank": int(match[1]) if match else -1,
        "version": _text(dump.get("version")),
        "groups": _groups(dump.get("pg_config"), shared),
        "entries": whole,
    }
    return _parsed(said, report)


def _unpickled(path: Path, data: bytes, report: DamageReport) -> dict[str, Any]:
    try:
        found = plain_pickle.read(data)
    except plain_pickle.NotPlainError as error:
        text = f"{path}: {error}; only pickles of Flight Recorder dumps are read"
        raise NoTraceError(text, str(path), error.offset) from error
    if found.damage:
        text = f"the pickle is damaged or cut off at byte {found.offset} ({found.damage})"
        report.problem(text, found.offset)
        if not isinstance(found.value, dict):
            raise TraceFormatError(f"{path}: {text}", str(path), found.offset)
    if not isinstance(found.value, dict):
        raise NoTraceError(f"{path}: not a Flight Recorder dump", str(path), 0)
    return found.value


def _decoded(data: bytes, report: DamageReport) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _decoded_by_parts(data.decode(errors="replace"), report)
    return found


def _decoded_by_parts(text: str, report: DamageReport) -> dict[str, Any]:
    """The values of a document that is damaged or cut off, as far as each is whole."""
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    at = -1
    for key in ("version", "pg_config", "pg_status", "entries"):
        match = re.search(rf'"{key}"\s*:\s*', text)
        if match is None:
            continue
        at = match.end()
        if key != "entries":
            try:
                found[key], _ = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                continue
            continue
        found[key] = []
        at += 1
        while (begin := text.find("{", at)) >= 0 and not text[at:begin].strip(", \n\r\t"):
            try:
                entry, at = decoder.raw_decode(text, begin)
            except (ValueError, RecursionError):
                break
            found[key].append(entry)
    offset = len(text[: max(at, 0)].encode())
    report.problem(f"the document is damaged or cut off, at byte {offset} or before", offset)
    return found


class _Shared:
    """Converts each object once: a small pickle can use a large one many times."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, Callable[[Any], Any]], Any] = {}

    def of(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        """Return the value converted; it must live as long as this."""
        key = id(value), convert
        if key not in self._made:
            self._made[key] = convert(value)
        return self._made[key]


def _entry(value: Any, shared: _Shared) -> dict[str, Any] | None:
    """Return the known parts of an entry, None where it is damaged."""
    if not isinstance(value, dict):
        return None
    group = value.get("process_group")
    name = group[0] if isinstance(group, list | tuple) and group else value.get("pg_name")
    created, seq = value.get("time_created_ns"), value.get("collective_seq_id")
    state = value.get("state")
    if state not in _STATES or not _is_number(created) or not _is_number(seq) or name is None:
        return None
    completed = value.get("time_discovered_completed_ns")
    return {
        "group": _text(name),
        "seq": seq,
        "p2p": bool(value.get("is_p2p")),
        "op": _text(value.get("profiling_name")),
        "state": state,
        "input": shared.of(value.get("input_sizes"), _sizes),
        "output": shared.of(value.get("output_sizes"), _sizes),
        "dtypes": shared.of(value.get("input_dtypes"), _texts),
        "created_ns": created,
        "completed_ns": completed if _is_number(completed) and completed else None,
        "called_at": shared.of(value.get("frames"), _called_at),
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**61


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    return str(value) if isinstance(value, int) and abs(value) < 2**64 else ""


def _texts(value: Any) -> list[str]:
    values = value[:_MAX_TENSORS] if isinstance(value, list | tuple) else []
    return [_text(each) for each in values]


def _sizes(value: Any) -> list[list[int]]:
    sizes = value[:_MAX_TENSORS] if isinstance(value, list | tuple) else []
    return [
        [extent for extent in size[:_MAX_DIMENSIONS] if _is_number(extent)]
        for size in sizes
        if isinstance(size, list | tuple)
    ]


def _called_at(frames: Any) -> str:
    """The line of the script, outside of torch, that called; "" where that is not recorded."""
    for frame in frames[:_MAX_FRAMES] if isinstance(frames, list | tuple) else []:
        if not isinstance(frame, dict):
            continue
        file = _text(frame.get("filename"))
        if file.endswith(".py") and "/torch/" not in file:
            return f"{file}:{_text(frame.get('line'))} ({_text(frame.get('name'))})"
    return ""


def _groups(value: Any, shared: _Shared) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    count = 0
    for name, group in value.items() if isinstance(value, dict) else ():
        if isinstance(group, dict):
            ranks = shared.of(group.get("ranks"), _ranks)
            count += len(ranks)
            known = {"ranks": ranks if count <= _MAX_RANKS else []}
            groups[_text(name)] = {"description": _text(group.get("desc")), **known}
    return groups


def _ranks(value: Any) -> list[int]:
    """Return the ranks that a text like "[0, 1]" lists, or a list of numbers."""
    listed = re.findall(r"[0-9]{1,7}", value) if isinstance(value, str) else value
    if not isinstance(listed, list | tuple):
        return []
    return sorted({int(rank) for rank in listed if isinstance(rank, str) or _is_rank(rank)})


def _is_rank(value: Any) -> bool:
    return _is_number(value) and value < 10**7


def _parsed(said: dict[str, Any], report: DamageReport) -> ParsedFile:
    entries = said["entries"]
    rows = SliceRows(report)
    if entries:
        track = [rows.track(KEY, each["group"] + " p2p" * each["p2p"]) for each in entries]
        begin, end = (
            np.array(
                [each[key] if each[key] is not None else NO_TIME for each in entries], np.int64
            )
            for key in ("created_ns", "completed_ns")
        )
        rows.add(
            np.array(track, np.int32),
            np.array([rows.code(each["op"]) for each in entries], np.int32),
            KEY,
            (begin, end),
            [json.dumps(_args(each)) for each in entries],
            seq=np.array([each["seq"] for each in entries], np.int64),
        )
        rows.finish()
    rows.tracks.processes[KEY] = "Flight Recorder"
    for name in rows.tracks.tid:
        group = said["groups"].get(name.removesuffix(" p2p"), {})
        title = f"group {name} {group.get('description', '')}".rstrip()
        rows.tracks.threads.setdefault(KEY, {})[name] = title
    report.problem(
        "experimental: this reader follows PyTorch's source and has not been tested on a real dump"
    )
    return rows.parsed({KEY: said})


def _args(entry: dict[str, Any]) -> dict[str, Any]:
    keys = ("group", "seq", "state", "input", "output", "dtypes", "called_at")
    return {key: entry[key] for key in keys}
