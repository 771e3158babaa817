"""Takes a Chrome trace apart: what surrounds the events, the events, and what is damaged.

The fast way through well-formed events is an `EventScanner`; where it stops, one event is read here
with care. Damage costs the event it hits: reading goes on at the next object that has a phase.
"""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import msgspec

from hvdtune.timeline.reading.json.batch import (
    MAX_NUMBER,
    MISSING,
    NUMBERS,
    EventBatch,
    EventRows,
    EventScanner,
    args_text,
    nanoseconds,
    number_places,
)
from hvdtune.timeline.reading.json.damage import DamageReport, Reason
from hvdtune.timeline.reading.json.source import TextWindow

# What is longer is damage: a bracket or a quote that is missing makes all that follows one value.
MAX_EVENT_BYTES = 4 << 20
MAX_VALUE_BYTES = 64 << 20
_VALUE_BYTES = 1 << 12  # of what is passed over
_NESTING_BYTES = 1 << 12  # fewer cannot nest too deep

_SPACE = re.compile(rb"[\s\x00]*")
_FIRST = re.compile(rb"\[\s*\{")
_SEPARATORS = re.compile(rb"[\s,]*")
_MARK = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(E[-+]?[0-9]+)?", re.IGNORECASE)
_NO_OBJECT = Reason(
    "value that is not an object is skipped", "values that are not objects are skipped"
)
_DAMAGED = Reason("event is damaged or cut off", "events are damaged or cut off")
_WITHOUT_PHASE = Reason(
    "object without a phase letter is skipped", "objects without a phase letter are skipped"
)
_TIME_IS_NO_NUMBER = Reason(
    "event whose time is not a number is skipped",
    "events whose times are not numbers are skipped",
)
_OUT_OF_RANGE = Reason(
    "event whose time is out of range is skipped", "events whose times are out of range are skipped"
)
_BEHIND = Reason(
    "event after the end of the document is not shown",
    "events after the end of the document are not shown",
)
_PHASE_KEY = b'"ph"'
_KEYS = (_PHASE_KEY, b'"traceEvents"')
# An event has one such key, also one that cannot be read. Some programs write repr().
_PHASE = re.compile(rb"""["']ph["']\s{0,8}:""")
_PHASE_BYTES = 16
_END = re.compile(rb'\]\s*(?:\}\s*\Z|\Z|,\s*")')  # of the array of the events, perhaps
_TAIL_BYTES, _TAIL_TRIES = 1 << 18, 64  # where it is looked for
_ROWS_PER_BATCH = 1 << 15
# Attempts to read long values may cost this and a multiple of the text.
_ATTEMPT_BYTES, _ATTEMPTS_PER_BYTE = 32 << 20, 16
# Maximum number of objects that are read one by one: this, and one per 8 bytes of the file.
_SLOW_STEPS, _BYTES_PER_SLOW_STEP = 100_000, 8

# Python's json.dumps writes NaN, Infinity and -Infinity: they become texts.
_DECODER = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=str)
_ANY = json.JSONDecoder(strict=False)
_AROUND = json.JSONDecoder(strict=False, parse_constant=str)


class Document:
    """The parts of one trace, in the order of the file.

    Attributes:
        around: the top-level keys other than "traceEvents", and their values; complete when
            `batches` has ended.
        holds_none: it has a place for events and, as far as it goes, none are there.
        resembles_trace: its text has keys of traces, whether or not one can be read.
    """

    def __init__(self, window: TextWindow, scanner: EventScanner, report: DamageReport) -> None:
        self.around: dict[str, Any] = {}
        self.holds_none = False
        self._is_cut = False
        self.resembles_trace = False
        self._window = window
        self._scanner = scanner
        self._report = report
        self._in_object = False
        self._key_offset = 0  # of the last key that was read
        self._attempted = 0  # bytes of long values that could not be read
        self._slow_steps = 0

    def batches(self) -> Iterator[EventBatch]:
        """All events."""
        self._window.more()
        self.resembles_trace = any(key in self._window.data for key in _KEYS)
        if self._window.data.startswith(_MARK):
            self._window.at = len(_MARK)
        if self._find_events():
            yield from self._events()
            self._read_rest()

    def _find_events(self) -> bool:
        """Goes to the first event. False: the document has none, and no place for them."""
        window = self._window
        first = self._next_byte()
        begin = window.offset
        if first == b"[":
            window.at += 1
            return True
        if first == b"{":
            window.at += 1
            if self._read_keys():
                self._in_object = True
                return True
            if "ph" in self.around and window.offset_of(0) <= begin:
                # No document: events follow one another.
                window.at, self.around = begin - window.offset_of(0), {}
                return True
            if self._next_byte() == b"}":
                return False
        self._in_object = first == b"{"
        at = window.offset
        # A quote too many may have made a value of what the events begin with.
        window.at = max(self._key_offset - window.offset_of(0), 0)
        self._go_on(f"the document is damaged at byte {at}", at)
        return window.left > 0

    def _read_keys(self, due: int = 0) -> bool:
        """Reads keys and values up to the events (True), or the object's end or damage (False).

        Args:
            due: commas before the first key.
        """
        window = self._window
        while True:
            commas = self._skip(_SEPARATORS)
            if self._next_byte() != b'"':
                return False
            if commas != due:
                self._report.problem(f"{commas} commas before byte {window.offset}", window.offset)
            due = 1
            self._key_offset = window.offset
            try:
                key = str(self._value(1 << 16))
                if self._next_byte() != b":":
                    return False
                window.at += 1
                if self._next_byte() == b"[" and self._holds_events(key):
                    return True
                self.around[key] = self._value(MAX_VALUE_BYTES)
            except (ValueError, RecursionError):
                return False

    def _holds_events(self, key: str) -> bool:
        """Whether the array that begins here is that of the events; if so goes into it."""
        window = self._window
        if key != "traceEvents":
            window.ensure(MAX_EVENT_BYTES)
            first = _FIRST.match(window.data, window.at)
            if first is None or self._next_event(first.end() - 1, first.end()) < 0:
                return False
            at = window.offset
            self._report.problem(
                f"the list of events at byte {at} is named {key[:40]!r}, not 'traceEvents'", at
            )
        window.at += 1
        return True

    def _value(self, limit: int) -> Any:
        """The JSON value that begins here. Raises ValueError where there is none."""
        window = self._window
        self._skip(_SPACE)
        size = 1 << 12
        while True:
            window.ensure(size)
            end = min(window.at + size, len(window.data))
            whole = window.final and end == len(window.data)
            try:
                text = window.data[window.at : end].decode()
                value, used = _AROUND.raw_decode(text)
            except (ValueError, RecursionError):
                if size > limit or whole:
                    raise
                size *= 8
                continue
            if used == len(text) and not whole:
                size *= 8  # a number may go on
                continue
            window.at += len(text[:used].encode())
            return value

    def _next_byte(self) -> bytes:
        self._skip(_SPACE)
        return self._window.data[self._window.at : self._window.at + 1]

    def _skip(self, what: re.Pattern[bytes]) -> int:
        """Goes on behind the run of what matches; the commas in it."""
        window = self._window
        commas = 0
        while True:
            match = what.match(window.data, window.at)
            assert match is not None
            commas += match[0].count(b",")
            window.at = match.end()
            if window.left or window.final:
                return commas
            window.more()

    def _events(self) -> Iterator[EventBatch]:
        """Events up to the end of their array."""
        window = self._window
        careful = EventRows()
        due = 0  # commas before the next event
        first = True
        while True:
            commas = self._skip(_SEPARATORS)
            byte = window.data[window.at : window.at + 1]
            self.holds_none = first and byte in (b"", b"]")
            first = False
            if not byte:
                self._tell_cut()
                break
            if byte == b"]":
                if self._array_ends():
                    break
                due = -1
                continue
            if byte != b"{" and self._may_step() and self._passes_value():
                due = 1
                continue
            if byte != b"{":
                at = window.offset
                self._go_on(f"unexpected character at byte {at}", at, to_end=True)
                due = -1
                continue
            if commas != due and due >= 0:
                self._report.problem(f"{commas} commas before byte {window.offset}", window.offset)
            batches, stop = self._scanner.run(window.data, window.at)
            if len(careful) >= _ROWS_PER_BATCH:
                yield careful.batch()
            if not batches and window.left < MAX_EVENT_BYTES and not window.final:
                window.more()
                due = -1  # they are counted
                continue
            due = 1
            if not batches:
                if self._may_step():
                    due = self._one_event(careful)
                else:
                    at = window.offset
                    self._go_on(f"too much is damaged before byte {at}", at, to_end=True)
                    due = -1
                continue
            if len(careful):
                yield careful.batch()
            window.at = stop
            yield from batches
        if len(careful):
            yield careful.batch()

    def _passes_value(self) -> bool:
        """Goes over a whole value that is no object, where one stands among the events."""
        window = self._window
        window.ensure(_VALUE_BYTES)
        text = window.data[window.at : window.at + _VALUE_BYTES].decode("latin-1")
        try:
            _, used = _ANY.raw_decode(text)
        except (ValueError, RecursionError):
            return False
        # Else a quote too many, or events within brackets of their own.
        if text[used:].lstrip()[:1] not in {",", "]"} or '"ph"' in text[:used]:
            return False
        where = f"at byte {window.offset}"
        self._report.left_out("?", _NO_OBJECT, where=where)
        window.at += used
        return True

    def _tell_cut(self) -> None:
        if self._is_cut:  # Within the events, and so within the object that holds them.
            return
        self._is_cut = True
        at = self._window.offset
        self._report.problem(
            f"ends at byte {at} without a closing bracket: still being written, or cut off", at
        )

    def _array_ends(self) -> bool:
        window = self._window
        at = window.offset
        window.at += 1
        if self._next_byte() != b"{":
            return True
        self._report.problem(f"a closing bracket at byte {at} between the events", at)
        return False

    def _one_event(self, rows: EventRows) -> int:
        """Reads the event that begins here; the commas due behind it, -1 where that is unknown."""
        window = self._window
        begin, offset = window.at, window.offset
        try:
            event, window.at = self._object_at(begin)
        except _DamagedError as error:
            at = window.offset_of(error.at)
            text = f"the event at byte {offset} is damaged at byte {at}"
            self._go_on(text, offset, skip=error.skip, least=1, to_end=True)
            return -1
        try:
            row, args = _row(event, window.data[begin : window.at], self._scanner)
        except _NotAnEventError as error:
            phase = event.get("ph")
            letter = phase if isinstance(phase, str) and len(phase) == 1 else "?"
            self._report.left_out(letter, error.reason, where=f"at byte {offset}")
            return 1
        rows.add(row, args)
        return 1

    def _object_at(self, at: int) -> tuple[dict[str, Any], int]:
        """The object at `data[at]` and where it ends. The error says where it is damaged."""
        data = self._window.data
        size = 1 << 12
        while True:
            # One character per byte keeps places equal; an error counts the lines before it, so
            # that a long text would make each one costly.
            text = data[at : at + size].decode("latin-1")
            try:
                value, used = _DECODER.raw_decode(text)
                break
            except json.JSONDecodeError as error:
                cut = error.pos > len(text) - 16 or error.msg.startswith("Unterminated")
                may_go_on = self._may_try(len(text))
                if not (cut and may_go_on) or at + size >= len(data):
                    raise _DamagedError(at + error.pos) from None
                size *= 16
            except ValueError:  # a number that is too long
                raise _DamagedError(at) from None
            except RecursionError:
                raise _DamagedError(at, skip=_NESTING_BYTES) from None
        end = at + used
        if not data[at:end].isascii():
            value = _DECODER.decode(data[at:end].decode())
        return value, end

    def _may_step(self) -> bool:
        """Return whether to read one more object by itself, which takes long."""
        self._slow_steps += 1
        read = self._report.packed_bytes or self._window.offset
        return self._slow_steps < _SLOW_STEPS + read // _BYTES_PER_SLOW_STEP

    def _may_try(self, size: int) -> bool:
        """Return whether to read more than `size` bytes of a value that did not end in them."""
        self._attempted += size if size > 1 << 12 else 0
        most = _ATTEMPT_BYTES + _ATTEMPTS_PER_BYTE * self._window.offset
        return size < MAX_EVENT_BYTES and self._attempted < most

    def _go_on(
        self, problem: str, offset: int, *, skip: int = 0, least: int = 0, to_end: bool = False
    ) -> None:
        """Go to the next event, report the problem, and count the events passed over.

        Args:
            skip: bytes ahead in which no event begins.
            least: minimum number of events passed over.
            to_end: without a next event, go to the end of the array and not of the text.
        """
        window = self._window
        passed, begin = 0, window.at
        window.at = min(window.at + skip, len(window.data))
        while (found := self._next_event(window.at)) < 0 and not window.final:
            window.at = max(window.at, len(window.data) - MAX_EVENT_BYTES)
            passed += _phases(window.data, begin, window.at)
            window.more()
            begin = window.at
        at = found
        if found < 0:
            at = self._end_of_events(begin) if to_end else len(window.data)
        passed += _phases(window.data, begin, at)
        window.at = at
        self._report.left_out("?", _DAMAGED, max(passed, least))
        then = f"reading continues at byte {window.offset}"
        if found < 0:
            what = "no event follows" if self._may_step() else "nothing more is read"
            then = f"{what} up to byte {window.offset}"
        self._report.problem(f"{problem}; {then}", offset)

    def _end_of_events(self, at: int) -> int:
        """Return the place of the bracket that closes the events, or the end of the text."""
        data = self._window.data
        end = len(data)
        brackets = [match.start() for match in _END.finditer(data, max(at, end - _TAIL_BYTES))]
        for place in reversed(brackets[-_TAIL_TRIES:]):
            rest = data[place + 1 :].strip().decode(errors="replace")
            if not self._in_object:
                end = end if rest else place
            elif rest and _is_object("{" + rest.removeprefix(",")):
                end = place
        return end

    def _next_event(self, at: int, before: int | None = None) -> int:
        """Where in the window the next object with a phase begins; -1: nowhere."""
        data = self._window.data
        phase = data.find(_PHASE_KEY, at)
        while (at := data.find(b"{", at, before)) >= 0 and self._may_step():
            if phase < at:
                phase = data.find(_PHASE_KEY, at)
            if phase < 0:
                return -1
            try:
                event, _ = self._object_at(at)
            except _DamagedError as error:
                at += error.skip
                continue
            if "ph" in event:
                return at
            at += 1  # events may be within it
        return -1

    def _read_rest(self) -> None:
        """Read the values that follow the events."""
        window = self._window
        if self._in_object:
            self._read_keys(due=1)
            byte = self._next_byte()
            window.at += byte == b"}"
            if not byte:
                self._tell_cut()
        if self._next_byte():
            at = window.offset
            self.holds_none &= self._in_object  # else it is anything
            self._report.problem(f"data after the end of the document at byte {at} are skipped", at)
            passed = 0
            while not window.final:
                begin, window.at = window.at, max(window.at, len(window.data) - _PHASE_BYTES)
                passed += _phases(window.data, begin, window.at)
                window.more()
            passed += _phases(window.data, window.at, len(window.data))
            self._report.left_out("?", _BEHIND, passed)


def _phases(data: bytes, begin: int, end: int) -> int:
    """Return the number of keys of phases that begin between two places."""
    found = _PHASE.finditer(data, begin, end + _PHASE_BYTES)
    return sum(match.start() < end for match in found)


def _is_object(text: str) -> bool:
    try:
        return isinstance(_AROUND.decode(text), dict)
    except (ValueError, RecursionError):
        return False


class _DamagedError(Exception):
    """An object is no JSON at `at`; nothing begins for `skip` bytes."""

    def __init__(self, at: int, skip: int = 1) -> None:
        super().__init__(at)
        self.at = at
        self.skip = skip


class _NotAnEventError(Exception):
    """An object is no event; `reason` says of such objects why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.one)
        self.reason = reason


class _Raw(msgspec.Struct):
    args: msgspec.Raw = msgspec.Raw()


def _row(event: dict[str, Any], raw: bytes, scanner: EventScanner) -> tuple[tuple[int, ...], str]:
    phase = event.get("ph")
    if not isinstance(phase, str) or len(phase) != 1 or not phase.isascii():
        raise _NotAnEventError(_WITHOUT_PHASE)
    args = event.get("args")
    numbers = [-1] * len(NUMBERS)
    sources = [(args, key, place) for key, place in number_places().items()]
    sources += [(event, "cycle", 0)] if event.get("cycle") != -1 else []
    for source, key, place in sources:
        number = source.get(key) if isinstance(source, dict) else None
        if isinstance(number, int) and not isinstance(number, bool) and abs(number) < MAX_NUMBER:
            numbers[place] = number
    lasted = event.get("dur") if event.get("dur") is not None else event.get("tdur")
    ident = event.get("id") if event.get("id") is not None else event.get("id2")
    texts = (event.get("name"), event.get("cat"), event.get("pid"), event.get("tid"), ident)
    row = (
        ord(phase),
        *(scanner.code(_text(value)) for value in texts),
        _time(event.get("ts")),
        _time(lasted),
        *numbers,
    )
    return row, "" if args is None else _args(args, raw)


def _args(args: Any, raw: bytes) -> str:
    """Return the arguments as they are in the file, unless that is not proper JSON."""
    try:
        return args_text(msgspec.json.decode(raw, type=_Raw).args)
    except msgspec.MsgspecError:
        return _json(args)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return _json(value)
    return value.encode(errors="replace").decode()  # half of a surrogate pair is no text


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, separators=(",", ":"))


def _plain(number: Decimal) -> float | str:
    return float(number) if abs(number.adjusted()) < 300 else str(number)


def _time(value: Any) -> int:
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise _NotAnEventError(_TIME_IS_NO_NUMBER)
    try:
        return nanoseconds(str(value))
    except ValueError:
        is_number = _NUMBER.fullmatch(str(value))
        raise _NotAnEventError(_OUT_OF_RANGE if is_number else _TIME_IS_NO_NUMBER) from None
