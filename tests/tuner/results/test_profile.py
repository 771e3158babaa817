import dataclasses
from pathlib import Path

import pytest

from hvdtune.core.config.knobs import Value
from hvdtune.errors import UsageError
from hvdtune.tuner.results.fingerprint import Fingerprint
from hvdtune.tuner.results.profile import (
    make_profile,
    nearest_profile,
    read_profile,
    read_setting_file,
    write_profile,
)
from hvdtune.tuner.results.study_report import write_verdict
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.stats.verdict import Verdict, judge, nothing_verified
from tests.kit.simulated_job import DEFAULT, KNOBS

CANDIDATE = {**DEFAULT, "cycle_time_ms": 0.2}
CREATED = "2026-01-02T03:04:05+00:00"


PROVED = judge(CANDIDATE, DEFAULT, [[0.07, 0.08, 0.07] * 4] * 2, 0.01)
KEPT = nothing_verified(DEFAULT, 0.01, 6, "none faster")


@pytest.mark.parametrize(
    ("verdict", "setting"), [(PROVED, CANDIDATE), (KEPT, DEFAULT)], ids=["proved", "no-candidate"]
)
def test_a_profile_comes_back_as_written(
    tmp_path: Path, verdict: Verdict, setting: dict[str, Value]
) -> None:
    profile = make_profile(verdict, DEFAULT, {"world": 2, "hosts": ["a"]}, CREATED)
    write_profile(profile, tmp_path / "profile.yaml")

    assert read_profile(tmp_path / "profile.yaml", KNOBS) == profile
    text = (tmp_path / "profile.yaml").read_text()
    (tmp_path / "profile.yaml").write_text(text, encoding="utf-8-sig")  # as some editors do
    assert read_profile(tmp_path / "profile.yaml", KNOBS) == profile
    assert (profile.setting, profile.verdict.gain_percent) == (setting, verdict.gain_percent)
    assert [path.name for path in tmp_path.iterdir()] == ["profile.yaml"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("cycle_time_ms: 0.2", "cycle_time_ms: 99"), "cycle_time_ms = 99 is out of range"),
        (("cycle_time_ms: 0.2", "cycle_time: 0.2"), "unknown knob cycle_time"),
        (("cycle_time_ms: 0.2", "cycle_time_ms: fast"), "cycle_time_ms = 'fast' is not a number"),
        (("pairs: 24", "pairs: many"), "verdict.pairs must be a whole number, not a text"),
        (("version: 1", "version: 2"), "is not a profile of version 1"),
        (("setting:", "settings:"), "the document has no setting"),
        (
            ("fingerprint: {}", "fingerprint: {world: x}"),
            "fingerprint: world must be a whole number or nothing, not a text",
        ),
        (("version: 1", "version: [1"), r"is not a profile, .*; line \d+ is not YAML: "),
        (("version: 1", "version: !!python/name:os.system ''"), "could not determine"),
    ],
)
def test_a_wrong_profile_is_one_line(tmp_path: Path, edit: tuple[str, str], message: str) -> None:
    path = tmp_path / "profile.yaml"
    write_profile(make_profile(PROVED, DEFAULT, {}, CREATED), path)
    text = path.read_text()
    assert edit[0] in text
    path.write_text(text.replace(*edit))

    with pytest.raises(UsageError, match=message) as caught:
        read_profile(path, KNOBS)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"- 1\n", b"just text", b"a: 1\n", b"def f(): x: 1\n", b"a\x00b"]
)
def test_what_is_no_profile_is_told_what_a_profile_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(content)

    with pytest.raises(UsageError, match="is not a profile, such as profile") as own:
        read_profile(path, KNOBS)
    assert "unicode string" not in str(own.value)


@pytest.mark.parametrize("content", [b"", b"- 1\n", b"\xff\xfe\x00", b"just text"])
def test_what_is_no_profile_at_all_is_a_usage_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "profile.yaml"
    path.write_bytes(content)

    with pytest.raises(UsageError, match=r"profile\.yaml"):
        read_profile(path, KNOBS)


def test_a_missing_profile_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_profile(tmp_path / "profile.yaml", KNOBS)


def write_winner(folder: Path, world: int, gain: float = 0.07) -> None:
    folder.mkdir(parents=True)
    setting = {**DEFAULT, "cycle_time_ms": world / 10}
    verdict = judge(setting, DEFAULT, [[gain, gain + 0.01, gain] * 4] * 3, 0.01)
    write_profile(
        make_profile(verdict, DEFAULT, {"world": world}, CREATED), folder / "profile.yaml"
    )


@pytest.mark.parametrize(("world", "nearest"), [(6, 8), (100, 64)])
def test_the_nearest_past_winner_is_found(tmp_path: Path, world: int, nearest: int) -> None:
    for each in (2, 8, 64):
        write_winner(tmp_path / f"study-{each}", each)
    near = nearest_profile(Fingerprint(world=world), tmp_path, KNOBS)

    assert near is not None
    assert near.path == tmp_path / f"study-{nearest}" / "profile.yaml"
    assert near.profile.setting["cycle_time_ms"] == nearest / 10


def test_a_setting_chosen_without_proof_is_near_too_behind_a_proved_one(tmp_path: Path) -> None:
    chosen = {**DEFAULT, "cycle_time_ms": 0.3}
    verdict = dataclasses.replace(KEPT, setting=chosen, expected=Belief(1.8, -0.3, 3.9))
    path = tmp_path / "a-chosen" / "profile.yaml"
    path.parent.mkdir()
    write_profile(make_profile(verdict, DEFAULT, {"world": 4}, CREATED), path)

    near = nearest_profile(Fingerprint(world=4), tmp_path, KNOBS)
    assert near is not None
    assert near.profile.setting == chosen
    said = "expected +1.8 % over launches, not yet proved (95 %: -0.3 to +3.9 %); none faster"
    assert near.profile.unverified_text.startswith(said)

    expected = Belief(1.8, -0.3, 3.9, "in this launch", (-4.1, 8.0))
    of_one = dataclasses.replace(
        near.profile, verdict=dataclasses.replace(near.profile.verdict, expected=expected)
    )
    assert of_one.unverified_text.startswith(
        "expected +1.8 % in the only launch that was measured, not yet proved (95 %: -0.3 to "
        "+3.9 %; other launches (not measured): -4.1 to +8.0 %); none faster"
    )

    write_winner(tmp_path / "b-proved", 4)
    proved = nearest_profile(Fingerprint(world=4), tmp_path, KNOBS)
    assert proved is not None and proved.profile.verdict.improved


def test_only_winners_that_can_be_read_are_near(tmp_path: Path) -> None:
    write_winner(tmp_path / "no-gain", 4, gain=-0.07)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "profile.yaml").write_text("version: 1")

    assert nearest_profile(Fingerprint(world=4), tmp_path, KNOBS) is None
    assert nearest_profile(Fingerprint(world=4), tmp_path / "none", KNOBS) is None


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("verdict.json", CANDIDATE),
        ("profile.yaml", DEFAULT),
        ("plain.yaml", {"cycle_time_ms": 2.0, "cache_enabled": False}),
    ],
)
def test_a_setting_is_read_from_a_profile_a_verdict_or_plain_knobs(
    tmp_path: Path, name: str, setting: dict[str, object]
) -> None:
    verdict = judge(CANDIDATE, DEFAULT, [[0.0, 0.1, -0.1] * 4] * 3, 0.01)
    assert not verdict.improved
    write_verdict(verdict, tmp_path / "verdict.json")
    write_profile(make_profile(verdict, DEFAULT, {}, CREATED), tmp_path / "profile.yaml")
    (tmp_path / "plain.yaml").write_text("cycle_time_ms: 2\ncache_enabled: false\n")

    assert read_setting_file(tmp_path / name, KNOBS) == setting


@pytest.mark.parametrize("content", ["", "{}", "- 1", "1: 2", "candidate: null", "cycle: 1"])
def test_a_file_without_a_setting_is_a_usage_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text(content)

    with pytest.raises(UsageError, match=r"plain\.yaml:? ") as caught:
        read_setting_file(path, KNOBS)
    assert "\n" not in str(caught.value)


def test_a_verdict_without_a_candidate_names_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    write_verdict(nothing_verified(DEFAULT, 0.01, 20, "the default is kept"), path)

    with pytest.raises(UsageError, match="verified no setting; write one of the trials in report"):
        read_setting_file(path, KNOBS)


@pytest.mark.parametrize(
    ("setting", "improved", "is_unverified"),
    [(CANDIDATE, True, False), (CANDIDATE, False, True), (DEFAULT, False, False)],
)
def test_another_setting_that_was_not_proved_is_unverified(
    setting: dict[str, Value], improved: bool, is_unverified: bool
) -> None:
    profile = make_profile(dataclasses.replace(KEPT, setting=setting), DEFAULT, {}, CREATED)
    evidence = dataclasses.replace(profile.verdict, improved=improved)

    assert dataclasses.replace(profile, verdict=evidence).is_unverified == is_unverified
