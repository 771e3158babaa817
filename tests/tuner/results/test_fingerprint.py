from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hvdtune.errors import UsageError
from hvdtune.tuner.measure.run import JobInfo
from hvdtune.tuner.results.fingerprint import (
    Fingerprint,
    LinkSpeed,
    Tensors,
    complete_fingerprint,
    differences,
    distance,
    parse_fingerprint,
    recorded_operations,
    recorded_tensors,
)
from tests.kit.rank_files import header, metadata, names, record, records

RESNET = Tensors(161, 102_000_000, {10: 100, 20: 61})
HERE = Fingerprint(
    world=4,
    slots=(2, 2),
    transport="auto",
    tensors=RESNET,
    link=LinkSpeed(50.0, 2000.0),
    cores=8,
    processor="B",
    hvdtune="0.1.0",
    python="3.11.7",
    frameworks={"torch": "2.13.0"},
)


def changed(**parts: Any) -> Fingerprint:
    return Fingerprint(**{**vars(HERE), **parts})


def write_trace(path: Path, tensors: Mapping[str, int], steps: int = 3) -> None:
    path.parent.mkdir(parents=True)
    numbers = {name: number for number, name in enumerate(tensors, 1)}
    lines = [
        record("ALLREDUCE", 100 * step + number, name=number, arg=tensors[name])
        for step in range(steps)
        for name, number in numbers.items()
    ]
    lines.append(record("ALLREDUCE", 9000, name=99, arg=7))
    lines += [record("BROADCAST", 9001 + step, name=1, arg=5) for step in range(2)]
    text = {number: name for name, number in numbers.items()} | {99: "allreduce.noname.1"}
    path.write_bytes(header() + metadata() + names(text) + records(lines))


def test_tensors_are_those_that_every_step_reduces(tmp_path: Path) -> None:
    write_trace(tmp_path / "ranks" / "launch-0" / "rank-0.hvt", {"a": 4096, "b": 5000, "c": 2**20})

    assert recorded_tensors(tmp_path) == Tensors(3, 4096 + 5000 + 2**20, {12: 2, 20: 1})


def test_the_latest_launch_with_tensors_counts(tmp_path: Path) -> None:
    write_trace(tmp_path / "ranks" / "launch-2" / "rank-0.hvt", {"a": 8})
    write_trace(tmp_path / "ranks" / "launch-10" / "rank-0.hvt", {"a": 16})
    write_trace(tmp_path / "ranks" / "launch-11" / "rank-0.hvt", {"a": 32}, steps=1)
    (tmp_path / "ranks" / "launch-12").mkdir()
    (tmp_path / "ranks" / "launch-12" / "rank-0.hvt").write_bytes(b"HVDTRACE cut off")

    found = recorded_tensors(tmp_path)
    assert found is not None
    assert found.bytes == 16
    assert recorded_operations(tmp_path) == {"a", "allreduce.noname.1"}


def test_where_nothing_was_recorded_there_are_no_tensors(tmp_path: Path) -> None:
    assert recorded_tensors(tmp_path) is None
    assert recorded_operations(tmp_path) == set()
    assert complete_fingerprint({"cores": 2}, JobInfo(2, ("a",)), tmp_path) == {
        "world": 2,
        "hosts": ["a"],
        "cores": 2,
    }


def test_a_stored_fingerprint_is_read_back_without_what_is_not_compared() -> None:
    stored = {"world": 4, "slots": [2, 2], "hosts": ["a", "b"], "command": ["x"]}
    stored |= {"tensors": {"count": 1, "bytes": 8, "octaves": {3: 1}}}

    assert parse_fingerprint(stored) == Fingerprint(
        world=4, slots=(2, 2), tensors=Tensors(1, 8, {3: 1})
    )


def test_a_wrong_fingerprint_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="fingerprint: world must be a whole number"):
        parse_fingerprint({"world": "four"})


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"world": 2}, "ranks: 2 there, 4 here"),
        ({"slots": (4,)}, "ranks per host: 4 there, 2, 2 here"),
        ({"transport": "tcp"}, "transport: tcp there, auto here"),
        (
            {"tensors": Tensors(2, 9, {3: 2})},
            "tensors: 2 (9e-06 MB in total) there, 161 (102 MB in total) here",
        ),
        ({"cores": 2}, "cores: 2 there, 8 here"),
        ({"processor": "A"}, "processor: A there, B here"),
        ({"hvdtune": "0.0.9"}, "hvdtune: 0.0.9 there, 0.1.0 here"),
        ({"python": "3.12.1"}, "Python: 3.12 there, 3.11 here"),
        ({"frameworks": {"torch": "2.4.0"}}, "torch: 2.4.0 there, 2.13.0 here"),
        (
            {"link": LinkSpeed(50.0, 200.0)},
            "link: 50 us and 200 MB/s there, 50 us and 2000 MB/s here",
        ),
    ],
)
def test_what_differs_is_named(parts: dict[str, Any], said: str) -> None:
    assert list(differences(changed(**parts), HERE)) == [said]


@pytest.mark.parametrize(
    "parts",
    [{}, {"python": "3.11.2"}, {"link": LinkSpeed(120.0, 900.0)}, {"tensors": None, "link": None}],
)
def test_what_is_alike_or_not_known_is_not_named(parts: dict[str, Any]) -> None:
    assert list(differences(changed(**parts), HERE)) == []


def test_distance_is_nothing_for_the_same_and_the_same_both_ways() -> None:
    other = changed(world=2, tensors=Tensors(199, 438_000_000, {11: 100, 22: 99}), link=None)

    assert distance(HERE, HERE) == 0
    assert distance(HERE, other) == pytest.approx(distance(other, HERE))
    assert distance(HERE, other) > 0


@pytest.mark.parametrize(
    ("nearer", "farther"),
    [
        ({"world": 8}, {"world": 64}),
        ({"slots": (2, 2, 2)}, {"slots": (2, 2, 2, 2)}),
        ({"tensors": Tensors(161, 1, {10: 100, 21: 61})}, {"tensors": Tensors(161, 1, {3: 161})}),
        ({"tensors": Tensors(150, 1, RESNET.octaves)}, {"tensors": Tensors(15, 1, {10: 9, 20: 6})}),
        ({"link": LinkSpeed(60.0, 1500.0)}, {"link": LinkSpeed(500.0, 100.0)}),
        ({"hvdtune": "0.2.0"}, {"transport": "tcp"}),
        ({}, {"tensors": None}),
    ],
)
def test_what_is_more_alike_is_nearer(nearer: dict[str, Any], farther: dict[str, Any]) -> None:
    assert distance(changed(**nearer), HERE) < distance(changed(**farther), HERE)
