import random
import struct
from pathlib import Path

import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import read, write_chrome
from hvdtune.timeline.reading.formats.hvt import is_closed, read_rank_file
from tests.kit import rank_files as files

STEPS = [files.record("STEP", at, at + 5, seq=at) for at in range(10)]


def test_the_golden_file_gives_records_names_and_metadata() -> None:
    file = read_rank_file(files.GOLDEN / "rank-0.hvt")
    assert (file.rank, file.metadata["host"], file.dropped) == (0, "alpha", 3)
    assert file.names[2] == 'say "hi"\n\\'
    assert len(file.records) == 23
    assert file.warnings == []


def test_a_file_cut_anywhere_gives_its_whole_blocks_and_the_offset(tmp_path: Path) -> None:
    parts = [files.header(), files.metadata(), *(files.records([step]) for step in STEPS)]
    whole = b"".join(parts)
    head = len(parts[0] + parts[1])
    for cut in range(head, len(whole) + 1):
        file = read_rank_file(files.write(tmp_path / "cut.hvt", whole[:cut]))
        assert len(file.records) == (cut - head) // len(parts[2])
        if (cut - head) % len(parts[2]):
            offset = head + (cut - head) // len(parts[2]) * len(parts[2])
            assert f"at byte {offset} of {cut}" in file.warnings[0]


def test_a_damaged_block_is_skipped_and_named(tmp_path: Path) -> None:
    parts = [files.header(), files.metadata(), *(files.records([step]) for step in STEPS)]
    begin = sum(map(len, parts[:5]))
    parts[5] = parts[5][:-1] + b"\xff"
    file = read_rank_file(files.write(tmp_path / "damaged.hvt", *parts, files.end()))
    assert file.records["seq"].tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert any(f"bytes {begin} to {begin + len(parts[5])}" in text for text in file.warnings)


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_crashes_a_reader(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray((files.GOLDEN / "rank-0.hvt").read_bytes())
    for _ in range(chance.randrange(1, 60)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    path = files.write(tmp_path / "damaged.hvt", bytes(data[: chance.randrange(len(data))]))
    try:
        trace = read(path)
    except TraceFormatError as error:
        assert "\n" not in str(error)
    else:
        assert len(trace.events) <= 23


@pytest.mark.parametrize("seed", range(40))
def test_hostile_contents_under_right_checksums_never_crash_a_reader(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    noise = [
        files.block(chance.randrange(8), chance.randbytes(chance.choice([0, 7, 8, 32, 320])))
        for _ in range(30)
    ]
    kinds = [files.record(chance.randrange(20), 0) for _ in range(50)]
    wild = [chance.randbytes(8) + kind[8:16] + chance.randbytes(16) for kind in kinds]
    trace = read(
        files.write(
            tmp_path / "hostile.hvt",
            files.header(),
            files.metadata(rank=3, size=10**30, unix_ns=10**18, host=["x"]),
            files.records(wild),
            *noise,
        )
    )
    assert (trace.events["begin_ns"] >= 0).all()
    assert (trace.events["end_ns"] >= trace.events["begin_ns"]).all()


def test_false_block_starts_do_not_make_reading_endless(tmp_path: Path) -> None:
    false = b"HVDB" + (2).to_bytes(4, "little") + (3_000_000).to_bytes(4, "little") + bytes(4)
    path = files.write(tmp_path / "false.hvt", files.header(), files.metadata(), false * 400_000)
    assert "damaged at byte" in read_rank_file(path).warnings[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (b"HVDTRACE", "cut off at byte 8"),
        (files.header()[:-1] + b"\0", "damaged at byte 0"),
        (files.header(version=9), "version 9"),
        (files.header(), "does not record its rank"),
        (files.header() + files.block(files.METADATA, b"[1]"), "does not record its rank"),
        (files.header() + files.block(files.METADATA, b"[" * 100_000), "does not record its rank"),
        (files.header() + files.block(files.METADATA, b'{"rank": -1}'), "does not record its rank"),
    ],
)
def test_an_unreadable_file_is_one_line_of_error(tmp_path: Path, content: bytes, said: str) -> None:
    path = files.write(tmp_path / "bad.hvt", content)
    with pytest.raises(TraceFormatError, match=said) as caught:
        read_rank_file(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_that_are_not_utf8_become_text(tmp_path: Path) -> None:
    path = files.write(
        tmp_path / "names.hvt", files.header(), files.metadata(), files.names({1: b"a\xff\x00"})
    )
    assert read_rank_file(path).names == {1: "a\\xff\x00"}


OLDER, NEWER = files.records(STEPS[:5]), files.records(STEPS[5:])


META = files.metadata()


@pytest.mark.parametrize(
    ("newest", "other", "steps"),
    [
        pytest.param(
            [files.header(4), META, NEWER], [files.header(3), META, OLDER], range(10), id="in order"
        ),
        pytest.param(
            [files.header(0, 1), META, OLDER], [files.header(1, 2), META, NEWER], range(5),
            id="without that of another recording"
        ),
        pytest.param(
            [], [files.header(1), META, OLDER, NEWER], range(10),
            id="one alone where a rank was killed as it began the other"
        ),
    ],
)  # fmt: skip
def test_both_segments_are_read(
    tmp_path: Path, newest: list[bytes], other: list[bytes], steps: range
) -> None:
    path = files.write(tmp_path / "rank-0.hvt", *newest)
    files.write(tmp_path / "rank-0.hvt.1", *other)
    assert read(path).events["seq"].tolist() == list(steps)


def test_what_a_segment_carries_is_left_out_beside_the_one_it_is_from(tmp_path: Path) -> None:
    carried = files.records([files.record("KNOB_ADOPTED", 1, arg=7)], files.CARRIED)
    path = files.write(
        tmp_path / "rank-0.hvt", files.header(4), files.metadata(), carried, files.end(dropped=2)
    )
    files.write(tmp_path / "rank-0.hvt.1", files.header(3), files.metadata(), OLDER)
    file = read_rank_file(path)
    assert len(file.carried) == 0
    assert file.dropped == 2
    assert "size cap" in file.warnings[0]


def test_a_carried_setting_starts_with_the_records_that_are_kept(tmp_path: Path) -> None:
    carried = [files.record("KNOB_ADOPTED", 1, arg=7), files.clock(2, 0)]
    path = files.write(
        tmp_path / "rank-0.hvt",
        files.header(2),
        files.metadata(),
        files.records(carried, files.CARRIED),
        files.records([files.record("STEP", 5_000, 6_000)]),
    )
    events = read(path).events
    assert events["kind"].tolist() == ["STEP", "KNOB_ADOPTED"]
    assert events["begin_ns"].tolist() == [0, 0]


def detailed(texts: dict[int, str]) -> bytes:
    rows = (struct.pack("<II", key, len(text)) + text.encode() for key, text in texts.items())
    return files.block(files.DETAILS, b"".join(rows))


def test_what_names_stand_for_is_read_and_kept_by_exports(tmp_path: Path) -> None:
    parts = files.header(), files.metadata(), files.names({1: "w", 2: "b"})
    path = files.write(
        tmp_path / "rank-0.hvt", *parts, detailed({1: "float32[64,3]"}), files.records(STEPS)
    )
    trace = read(path)
    assert trace.meta["shapes"] == {"w": "float32[64,3]"}
    write_chrome(trace, tmp_path / "trace.json")
    assert read(tmp_path / "trace.json").meta["shapes"] == trace.meta["shapes"]


FULL = files.block(files.FULL, struct.pack("<Q", 3 << 19))


@pytest.mark.parametrize(
    ("block", "warnings"),
    [
        pytest.param(FULL, ["stopped at the size cap of 1.5 MB"], id="stopped at its cap"),
        pytest.param(files.block(99, b"news"), [], id="of a later version"),
    ],
)
def test_blocks_without_records_are_passed_over(
    tmp_path: Path, block: bytes, warnings: list[str]
) -> None:
    parts = files.header(), files.metadata(), block, files.records(STEPS), files.end()
    trace = read(files.write(tmp_path / "rank-0.hvt", *parts))
    assert len(trace.events) == len(STEPS)
    assert len(trace.warnings) == len(warnings)
    assert [said for said in warnings if said not in trace.warnings[0]] == []


def test_a_file_is_closed_when_its_last_part_is(tmp_path: Path) -> None:
    path = files.write(tmp_path / "rank-0.hvt", files.header(), files.records(STEPS))
    assert not is_closed(path)
    files.write(tmp_path / "rank-0.hvt.1", files.header(segment=1), files.end())
    assert is_closed(path)
    assert not is_closed(tmp_path / "absent.hvt")
