from pathlib import Path

import pytest
from simulated_job import DEFAULT, KNOBS

from hvdtune.errors import UsageError
from hvdtune.tuner.profile import make_profile, read_profile, write_profile
from hvdtune.tuner.verdict import judge, keep_default

CANDIDATE = {**DEFAULT, "cycle_time_ms": 0.2}
CREATED = "2026-01-02T03:04:05+00:00"


def test_a_profile_comes_back_as_written(tmp_path: Path) -> None:
    verdict = judge(CANDIDATE, DEFAULT, [[0.07, 0.08, 0.07] * 4] * 2, 0.01)
    profile = make_profile(verdict, DEFAULT, {"world": 2, "hosts": ["a"]}, CREATED)
    write_profile(profile, tmp_path / "profile.yaml")

    assert read_profile(tmp_path / "profile.yaml", KNOBS) == profile
    assert profile.setting == CANDIDATE
    assert [path.name for path in tmp_path.iterdir()] == ["profile.yaml"]


def test_a_profile_without_a_candidate_holds_the_default(tmp_path: Path) -> None:
    profile = make_profile(keep_default(DEFAULT, 0.01, "none faster"), DEFAULT, {}, CREATED)
    write_profile(profile, tmp_path / "profile.yaml")

    found = read_profile(tmp_path / "profile.yaml", KNOBS)
    assert found.setting == DEFAULT
    assert found.verdict.gain_percent is None


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("cycle_time_ms: 0.2", "cycle_time_ms: 99"), "cycle_time_ms = 99 is out of range"),
        (("cycle_time_ms: 0.2", "cycle_time: 0.2"), "unknown knob cycle_time"),
        (("cycle_time_ms: 0.2", "cycle_time_ms: fast"), "cycle_time_ms = 'fast' is not a number"),
        (("pairs: 24", "pairs: many"), "Expected `int`, got `str`"),
        (("version: 1", "version: 2"), "is not a profile of version 1"),
        (("setting:", "settings:"), "missing required field `setting`"),
        (("version: 1", "version: [1"), r"profile\.yaml:\d+: "),
        (("version: 1", "version: !!python/name:os.system ''"), "could not determine"),
    ],
)
def test_a_wrong_profile_is_one_line(tmp_path: Path, edit: tuple[str, str], message: str) -> None:
    path = tmp_path / "profile.yaml"
    verdict = judge(CANDIDATE, DEFAULT, [[0.07, 0.08, 0.07] * 4] * 2, 0.01)
    write_profile(make_profile(verdict, DEFAULT, {}, CREATED), path)
    text = path.read_text()
    assert edit[0] in text
    path.write_text(text.replace(*edit))

    with pytest.raises(UsageError, match=message) as caught:
        read_profile(path, KNOBS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"- 1\n", b"\xff\xfe\x00", b"just text"])
def test_what_is_no_profile_at_all_is_a_usage_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "profile.yaml"
    path.write_bytes(content)

    with pytest.raises(UsageError, match=r"profile\.yaml"):
        read_profile(path, KNOBS)


def test_a_missing_profile_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_profile(tmp_path / "profile.yaml", KNOBS)
