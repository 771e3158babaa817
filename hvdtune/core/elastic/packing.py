"""The values of a State as bytes: data and arrays in a plain format, other objects as pickles.

    packed = length of the head (8 bytes, little endian), head, buffers
    head   = msgpack of [tree, lengths of the buffers in bytes, names of the pickled values]

A node of the tree is a number, a string, None, or a list of a tag and what belongs to it. Arrays,
tensors, long byte strings and pickles are buffers. Unpacking runs no code of the data's author,
except for pickles, which the caller allows or refuses.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np

from hvdtune.core.rank.objects import inside, unpicklable
from hvdtune.errors import UsageError

_HEAD: Final = struct.Struct("<Q")
_SHORT_BYTES: Final = 256
# Containers by their tags. A subclass of one is pickled.
_SEQUENCES: Final[dict[str, type]] = {"l": list, "t": tuple, "s": set, "f": frozenset}
_MAPPINGS: Final[dict[str, type]] = {"d": dict, "o": OrderedDict, "c": Counter}
_TAGS: Final = {kind: tag for tag, kind in (_SEQUENCES | _MAPPINGS).items()}
_ARRAY, _SCALAR, _TENSOR, _BYTES = "anxb"
_PICKLE, _AGAIN, _LARGE = "pri"
# What can change is numbered in the order of the tree; `_AGAIN` refers to it.
_NUMBERED: Final = frozenset("lsdoc")


class PickleRefusedError(Exception):
    """The data contain a pickle, which the caller does not allow; the text names the value."""


@dataclass(frozen=True)
class TensorKind:
    """A framework's tensors.

    Attributes:
        split: returns a tensor's bytes as an array of uint8, and plain facts that `join` needs;
            None for a tensor that has to be pickled.
        join: makes a tensor of a writable array of uint8 and the facts.
    """

    split: Callable[[Any], tuple[np.ndarray[Any, Any], list[Any]] | None]
    join: Callable[[np.ndarray[Any, Any], list[Any]], Any]


_tensors: dict[type, tuple[str, TensorKind]] = {}


def register_tensors(module: str, kind: type, tensors: TensorKind) -> None:
    """Packs objects of exactly this type as tensors.

    Args:
        module: the module of hvdtune that registers them, which has to be imported to unpack them.
    """
    _tensors[kind] = module, tensors


@dataclass
class Packed:
    """A packed value, in pieces so that large arrays are not copied.

    Attributes:
        pieces: the bytes in their order.
        pickled: the names of the values that are pickles.
    """

    pieces: list[Any] = field(default_factory=list)
    pickled: list[str] = field(default_factory=list)

    def joined(self) -> bytes:
        """Return all bytes as one object."""
        return b"".join(self.pieces)


def pack(value: Any, name: str = "") -> Packed:
    """Pack a value.

    Raises UsageError for an object that cannot be pickled, naming it by its way from `name`.
    """
    packer = _Packer()
    tree = packer.node(value, name)
    lengths = [memoryview(each).nbytes for each in packer.buffers]
    head = msgspec.msgpack.encode([tree, lengths, packer.pickled])
    return Packed([_HEAD.pack(len(head)), head, *packer.buffers], packer.pickled)


def unpack(data: bytes | memoryview, *, may_unpickle: bool) -> Any:
    """Return the value that was packed.

    Raises:
        PickleRefusedError: it contains a pickle, and `may_unpickle` is False.
        ValueError: the data are not a packed value.
        UsageError: it contains tensors of a framework that is not imported.
    """
    view = memoryview(data)
    tree, lengths, pickled, start = _head_of(view)
    buffers = []
    for length in lengths:
        buffers.append(view[start : start + length])
        start += length
    if start != len(view):
        raise ValueError("the length of the buffers does not match the header")
    try:
        return _Unpacker(buffers, pickled, may_unpickle).value(tree)
    except (IndexError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"the tree cannot be read: {error}") from error


def pickled_names(data: bytes | memoryview) -> list[str]:
    """Return the names of the pickled values, as the writer of the data has listed them."""
    _, _, pickled, _ = _head_of(memoryview(data))
    return pickled


def _head_of(view: memoryview) -> tuple[Any, list[int], list[str], int]:
    try:
        (length,) = _HEAD.unpack_from(view)
        start = _HEAD.size + length
        tree, lengths, pickled = msgspec.msgpack.decode(
            view[_HEAD.size : start], type=tuple[Any, list[int], list[str]]
        )
    except (struct.error, msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"the header cannot be read: {error}") from error
    return tree, lengths, pickled, start


class _Packer:
    def __init__(self) -> None:
        self.buffers: list[Any] = []
        self.pickled: list[str] = []
        # By identity: a value with two references is packed once. The values stay alive.
        self._numbers: dict[int, tuple[int, Any]] = {}

    def node(self, value: Any, name: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, float):
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**64 else [_LARGE, hex(value)]
        if kind is str and _is_unicode(value):
            return value
        if kind is bytes:
            return value if len(value) < _SHORT_BYTES else [_BYTES, self._add(value)]
        if id(value) in self._numbers:
            return [_AGAIN, self._numbers[id(value)][0]]
        found = self._container(value, kind, name) or self._array(value, kind)
        return found or self._pickle(value, name)

    def _container(self, value: Any, kind: type, name: str) -> Any:
        tag = _TAGS.get(kind)
        if tag is None:
            return None
        if tag in _NUMBERED:
            self._number(value)
        if tag in _SEQUENCES:
            return [tag, [self.node(each, f"{name}[{i}]") for i, each in enumerate(value)]]
        more = vars(value) if kind is not dict else {}
        rows = [
            [self.node(key, f"{name} (a key)"), self.node(each, inside(name, key))]
            for key, each in value.items()
        ]
        facts = [[key, self.node(each, f"{name}.{key}")] for key, each in more.items()]
        return [tag, rows, facts]

    def _array(self, value: Any, kind: type) -> Any:
        if kind in _tensors:
            module, tensors = _tensors[kind]
            split = tensors.split(value)
            if split is None:
                return None
            self._number(value)
            return [_TENSOR, module, self._add(split[0]), split[1]]
        if kind is not np.ndarray and not issubclass(kind, np.generic):
            return None
        dtype = _name_of(value.dtype)
        if dtype is None:
            return None
        if kind is np.ndarray:
            self._number(value)
        flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        tag = _ARRAY if kind is np.ndarray else _SCALAR
        return [tag, dtype, list(value.shape), self._add(flat)]

    def _pickle(self, value: Any, name: str) -> Any:
        import cloudpickle  # which most trainings never need

        try:
            data = cloudpickle.dumps(value)
        except Exception as error:  # an object's own methods may raise anything
            raise unpicklable(value, name, error) from error
        self.pickled.append(name)
        return [_PICKLE, self._add(data), len(self.pickled) - 1]

    def _add(self, buffer: Any) -> int:
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def _number(self, value: Any) -> None:
        self._numbers[id(value)] = len(self._numbers), value


class _Unpacker:
    def __init__(
        self, buffers: Sequence[memoryview], pickled: Sequence[str], may_unpickle: bool
    ) -> None:
        self._buffers, self._pickled, self._may_unpickle = buffers, pickled, may_unpickle
        self._numbered: list[Any] = []

    def value(self, node: Any) -> Any:
        if not isinstance(node, list):
            return node
        tag, *rest = node
        if tag in _SEQUENCES:
            return self._sequence(tag, *rest)
        if tag in _MAPPINGS:
            return self._mapping(_MAPPINGS[tag], *rest)
        if tag == _ARRAY:
            return self._numbered_as(self._array(*rest))
        if tag == _SCALAR:
            return self._array(*rest)[()]
        if tag == _TENSOR:
            return self._numbered_as(self._tensor(*rest))
        if tag == _BYTES:
            return bytes(self._buffers[rest[0]])
        if tag == _LARGE:
            return int(rest[0], 16)
        if tag == _AGAIN:
            return self._numbered[rest[0]]
        if tag != _PICKLE:
            raise ValueError(f"the tag {tag!r} is unknown")
        if not self._may_unpickle:
            raise PickleRefusedError(self._pickled[rest[1]])
        return pickle.loads(self._buffers[rest[0]])

    def _numbered_as(self, value: Any) -> Any:
        self._numbered.append(value)
        return value

    def _sequence(self, tag: str, nodes: Any) -> Any:
        kind = _SEQUENCES[tag]
        if tag not in _NUMBERED:
            return kind(self.value(node) for node in nodes)
        found = self._numbered_as(kind())  # before its elements, which may contain it
        add = found.append if kind is list else found.add
        for node in nodes:
            add(self.value(node))
        return found

    def _mapping(self, kind: type, rows: Any, facts: Any) -> Any:
        found = self._numbered_as(kind())
        for key, each in rows:
            found[self.value(key)] = self.value(each)
        for key, each in facts:
            # A module's state_dict keeps its versions in an attribute.
            vars(found)[key] = self.value(each)
        return found

    def _array(self, dtype: str, shape: list[int], index: int) -> np.ndarray[Any, Any]:
        return self._bytes(index).view(_dtype_of(dtype)).reshape(shape)

    def _tensor(self, module: str, index: int, facts: list[Any]) -> Any:
        for name, tensors in _tensors.values():
            if name == module:
                return tensors.join(self._bytes(index), facts)
        raise UsageError(f"the data contain tensors: import {module} to read them")

    def _bytes(self, index: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(self._buffers[index], np.uint8).copy()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _name_of(dtype: np.dtype[Any]) -> str | None:
    """Return the text from which NumPy makes this dtype again, None if there is no such text."""
    if dtype.hasobject:
        return None
    # Names are those of the dtypes that ml_dtypes adds, as bfloat16.
    for text in (dtype.str, dtype.name):
        try:
            if np.dtype(text) == dtype:
                return text
        except TypeError:
            continue
    return None


def _dtype_of(text: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(text)
    except TypeError:
        raise UsageError(
            f"the data contain arrays of dtype {text}, which this NumPy does not support"
        ) from None
    if dtype.hasobject:
        raise ValueError(f"cannot store an array of {text} without pickling")
    return dtype
