import dataclasses
import json
from pathlib import Path

import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.storage.pair_log import Pair, PairLog, read_pairs
from tests.kit.simulated_job import DEFAULT

PAIR = Pair(
    2, "search", 5, {**DEFAULT, "cycle_time_ms": 0.0}, DEFAULT, 0.07, 9.3, 10.0, 96, "ABBA", 1.5
)


def test_pairs_come_back_as_written(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    with PairLog(path) as log:
        log.append(PAIR)
        log.append(dataclasses.replace(PAIR, phase="verify", trial=None))

    assert read_pairs(path) == (PAIR, dataclasses.replace(PAIR, phase="verify", trial=None))
    with PairLog(path) as log:
        assert log.of("search", PAIR.setting) == [PAIR]
        assert log.of("search", DEFAULT) == []


def test_a_line_says_its_version_and_fields(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    with PairLog(path) as log:
        log.append(PAIR)

    fields = json.loads(path.read_text())
    assert list(fields) == [
        "v",
        "launch",
        "phase",
        "trial",
        "setting",
        "reference",
        "log_ratio",
        "setting_step_ms",
        "reference_step_ms",
        "steps",
        "order",
        "t_unix",
        "further",
        "set_aside",
        "at_fault",
        "by",
        "typical_log_ratio",
        "reference_log_ratio",
    ]
    assert fields["v"] == 1


def test_a_torn_last_line_is_cut_off_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    with PairLog(path) as log:
        log.append(PAIR)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])

    assert read_pairs(path) == (PAIR,)
    with PairLog(path) as log:
        log.append(PAIR)
    assert path.read_bytes() == whole * 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"nonsense\n", "pairs.jsonl:2: not a pair"),
        (b'{"v": 1, "launch": "two"}\n', "pairs.jsonl:2: not a pair"),
        (b'{"v": 9}\n', "pairs.jsonl:2: unknown version 9 of a pair"),
        (b"\xff\xfe\n", "pairs.jsonl:2: not a pair"),
    ],
)
def test_a_foreign_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "pairs.jsonl"
    with PairLog(path) as log:
        log.append(PAIR)
    path.write_bytes(path.read_bytes() + line)

    with pytest.raises(StudyError, match=message):
        read_pairs(path)
    with pytest.raises(StudyError, match=message):
        PairLog(path)


def test_no_file_is_no_pairs(tmp_path: Path) -> None:
    assert read_pairs(tmp_path / "pairs.jsonl") == ()


def test_what_a_verification_finds_does_not_change_what_a_trial_has_counted(tmp_path: Path) -> None:
    own_doing = dataclasses.replace(PAIR, set_aside="a long step", at_fault="B")
    of_others = dataclasses.replace(
        PAIR, phase="verify", trial=None, set_aside="a long step", at_fault="A"
    )
    with PairLog(tmp_path / "pairs.jsonl") as log:
        for pair in [PAIR] * 9 + [own_doing] * 3:
            log.append(pair)
        assert len(log.of("search", PAIR.setting)) == 12
        for _ in range(3):
            log.append(of_others)
        assert len(log.of("search", PAIR.setting)) == 12
        assert log.of("verify", PAIR.setting) == []
