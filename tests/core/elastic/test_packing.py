"""Values as bytes: data and arrays without a pickle, and what is one object stays one."""

import threading
from collections import Counter, OrderedDict

import ml_dtypes
import numpy as np
import pytest

from hvdtune.core.elastic.packing import PickleRefusedError, pack, pickled_names, unpack
from hvdtune.errors import UsageError

PLAIN = [
    None, True, -1, 2**64 - 1, 2**70, -(2**70), 0.1, float("-inf"), "näme", b"", b"x" * 1000,
    [1, [2]], (1, (2,)), {1, (2, 3)}, frozenset({1}), {"a": {3: "b"}}, {(1, 2): [3]},
    OrderedDict(b=1, a=2), Counter("aab"), np.float32(2.5), np.bool_(True),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_are_themselves_again(value):
    packed = pack(value)
    again = unpack(packed.joined(), may_unpickle=False)
    assert again == value and type(again) is type(value) and packed.pickled == []


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3)[:, ::2],
        np.zeros((0, 3)),
        np.array(3),
        np.arange(3, dtype=">i4"),
        np.array(["2020"], "M8[D]"),
        np.ones(3, ml_dtypes.bfloat16),
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_are_themselves_again_and_can_be_changed(array):
    again = unpack(pack([array]).joined(), may_unpickle=array.dtype.kind == "V")[0]
    assert again.dtype == array.dtype and again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    assert again.flags.writeable


def test_what_is_one_object_stays_one():
    shared, cycle = np.arange(2), [1]
    cycle.append({"back": cycle})
    again = unpack(pack([shared, shared, cycle]).joined(), may_unpickle=False)
    assert again[0] is again[1] and again[2][1]["back"] is again[2]


def test_attributes_of_a_state_dict_are_kept():
    state = OrderedDict(weight=1)
    state._metadata = {"": {"version": 2}}
    assert unpack(pack(state).joined(), may_unpickle=False)._metadata == state._metadata


class _Thing:
    def __init__(self, value):
        self.value = value


def test_other_objects_are_pickles_which_the_reader_may_refuse():
    data = pack({"plain": 1, "things": [_Thing(3)]}).joined()
    assert pickled_names(data) == ["things[0]"]
    assert unpack(data, may_unpickle=True)["things"][0].value == 3
    with pytest.raises(PickleRefusedError, match=r"things\[0\]"):
        unpack(data, may_unpickle=False)


def test_what_cannot_be_pickled_is_named_to_the_innermost():
    with pytest.raises(UsageError, match=r"^a\.value\[1\]\.value is a _thread\.lock, which cannot"):
        pack({"a": _Thing([0, _Thing(threading.Lock())])})


def test_endless_nesting_is_an_error():
    head = b"\x93" + b"\x92\xa1l\x91" * 100_000 + b"\xc0\x90\x90"
    with pytest.raises(ValueError, match="cannot be read"):
        unpack(len(head).to_bytes(8, "little") + head, may_unpickle=False)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_bytes_are_an_error_or_other_values(seed):
    data = bytearray(pack({"a": np.arange(9), "b": [1, (2, "x")], "c": b"y" * 300}).joined())
    for place in np.random.RandomState(seed).randint(0, len(data), 3):
        data[place] ^= 0xFF
    try:
        unpack(bytes(data), may_unpickle=False)
    except (ValueError, PickleRefusedError) as error:
        assert str(error)
