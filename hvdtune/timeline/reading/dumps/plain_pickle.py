"""Pickles of plain values, read without running anything that they name."""

import pickletools
from dataclasses import dataclass
from typing import Any, Final


class NotPlainError(Exception):
    """The pickle holds something other than numbers, texts, lists, tuples and dictionaries.

    Attributes:
        offset: the byte of the operation.
    """

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text)
        self.offset = offset


@dataclass(frozen=True)
class PlainPickle:
    """What a pickle holds.

    Attributes:
        damage: what is wrong with it, "" where it is whole; then `value` is what comes before.
        offset: the byte where reading stopped.
    """

    value: Any
    damage: str
    offset: int


class _Mark:
    """Where the parts of a container begin."""


_MARK: Final = _Mark()
_IGNORED: Final = {"PROTO", "FRAME"}
_VALUES: Final = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "BINFLOAT", "FLOAT",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE",
}  # fmt: skip
_CONSTANTS: Final = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None}
_EMPTY: Final[dict[str, Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def read(data: bytes) -> PlainPickle:
    """Read a pickle as far as it is whole.

    Raises:
        NotPlainError: it would import or call something.
    """
    machine = _Machine()
    offset = 0
    try:
        for operation, argument, position in pickletools.genops(data):
            offset = position or 0
            if operation.name == "STOP":
                return PlainPickle(machine.stack.pop(), "", offset)
            machine.run(operation.name, argument, offset)
    except NotPlainError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        return PlainPickle(machine.what_there_is(), " ".join(str(error).split()), offset)
    return PlainPickle(machine.what_there_is(), "it has no end", offset)


class _Machine:
    """The stack and the memory of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def run(self, name: str, argument: Any, offset: int) -> None:
        stack = self.stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._memory[int(argument)] = stack[-1]
        elif name == "MEMOIZE":
            self._memory[len(self._memory)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memory[int(argument)])
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name not in _IGNORED:
            self._join(name, offset)

    def _join(self, name: str, offset: int) -> None:
        stack = self.stack
        if name == "APPEND":
            value = stack.pop()
            stack[-1].append(value)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][_key(key)] = value
        elif name in ("APPENDS", "SETITEMS", "TUPLE", "LIST", "DICT"):
            values = self._to_mark()
            if name == "APPENDS":
                stack[-1].extend(values)
            elif name == "SETITEMS":
                stack[-1].update(_pairs(values))
            else:
                made: Any = {"TUPLE": tuple, "LIST": list, "DICT": _pairs}[name]
                stack.append(made(values))
        else:
            text = (
                f"it is a pickle with {name} at byte {offset}, which may run code when it is read"
            )
            raise NotPlainError(text, offset)

    def _to_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def what_there_is(self) -> Any:
        """The outermost value, with what containers hold that are not whole."""
        while any(value is _MARK for value in self.stack):
            values = self._to_mark()
            outer = self.stack[-1] if self.stack else None
            if isinstance(outer, list):
                outer.extend(values)
            elif isinstance(outer, dict):
                pairs = zip(values[::2], values[1::2], strict=False)
                outer.update({key: value for key, value in pairs if isinstance(key, str | int)})
        return self.stack[0] if self.stack else None


def _key(value: Any) -> str | int:
    if not isinstance(value, str | int):
        raise TypeError("a key is no text and no number")
    return value


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return {_key(key): value for key, value in zip(values[::2], values[1::2], strict=True)}
