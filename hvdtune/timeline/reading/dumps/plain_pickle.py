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
# A dump of 20,000 collectives with their stacks has half as many.
_MAX_OPERATIONS: Final = 1 << 26
_MAX_OBJECTS: Final = 1 << 23  # containers, and objects to be used again
_MAX_BITS: Final = 128  # of a number
_MAX_KEY: Final = 1 << 31  # larger numbers can be chosen so that their hashes collide


def read(data: bytes) -> PlainPickle:
    """Read a pickle as far as it is whole.

    Raises:
        NotPlainError: it would import or call something.
    """
    machine = _Machine()
    offset = 0
    try:
        for count, (operation, argument, position) in enumerate(pickletools.genops(data)):
            offset = position or 0
            if count == _MAX_OPERATIONS:
                raise ValueError(f"it has more than {_MAX_OPERATIONS:,} operations")
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
        self._containers = 0

    def run(self, name: str, argument: Any, offset: int) -> None:
        stack = self.stack
        if name in _VALUES:
            if isinstance(argument, int) and argument.bit_length() > _MAX_BITS:
                raise ValueError(f"a number has more than {_MAX_BITS} bits")
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._count_container()
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_MARK)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            self._remember(int(argument))
        elif name == "MEMOIZE":
            self._remember(len(self._memory))
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(self._memory[int(argument)])
        elif name in _TUPLES:
            count = _TUPLES[name]
            self._count_container()
            stack[-count:] = [tuple(stack[-count:])]
        elif name not in _IGNORED:
            self._join(name, offset)

    def _remember(self, number: int) -> None:
        if len(self._memory) == _MAX_OBJECTS:
            raise ValueError(f"it memoizes more than {_MAX_OBJECTS:,} objects")
        self._memory[number] = self.stack[-1]

    def _count_container(self) -> None:
        self._containers += 1
        if self._containers > _MAX_OBJECTS:
            raise ValueError(f"it has more than {_MAX_OBJECTS:,} containers")

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
                self._count_container()
                made: Any = {"TUPLE": tuple, "LIST": list, "DICT": _pairs}[name]
                stack.append(made(values))
        else:
            text = f"a pickle with {name} at byte {offset}, which may run code when read"
            raise NotPlainError(text, offset)

    def _to_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def what_there_is(self) -> Any:
        """Return the outermost value, with the parts of containers that are not whole."""
        values: list[Any] = []  # behind the last mark, the last first
        while self.stack:
            value = self.stack.pop()
            if value is not _MARK:
                values.append(value)
                continue
            values.reverse()
            outer = self.stack[-1] if self.stack else None
            if isinstance(outer, list):
                outer.extend(values)
            elif isinstance(outer, dict):
                pairs = zip(values[::2], values[1::2], strict=False)
                outer.update({key: value for key, value in pairs if _is_key(key)})
            values = []
        return values[-1] if values else None


def _key(value: Any) -> str | int:
    if not _is_key(value):
        raise TypeError("a key is neither a text nor a small number")
    return value  # type: ignore[no-any-return]


def _is_key(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and abs(value) < _MAX_KEY)


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return {_key(key): value for key, value in zip(values[::2], values[1::2], strict=True)}
