"""Several tuners on one study, in each kind of database that is installed."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.search.samplers import sampler_for
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.pair_log import Pair
from hvdtune.tuner.storage.shared_study import REFERENCE_FILE, SharedStudy, adopt_reference
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome, read_study
from tests.kit.simulated_job import DEFAULT, KNOBS

OPTIONS = TuneOptions(trials=20, seed=3, sampler="tpe")
ONE_KNOB = make_space(KNOBS, DEFAULT, tunable=("cache_enabled",))
SLOWER = TrialOutcome("pruned", -0.1, 0.01, 3, "slower than the default")

Open = Callable[..., StudyStore]


@pytest.fixture
def open_store(tmp_path: Path, study_url: str, study_name: str) -> Open:
    """Opens the store of the tuner of that name, with its own run folder."""

    def opened(tuner: str, space=None, **share) -> StudyStore:
        folder = tmp_path / tuner
        folder.mkdir(exist_ok=True)
        shared = SharedStudy(study_url, study_name, **{"fingerprint": {"world": 2}, **share})
        space = space or make_space(KNOBS, DEFAULT)
        sampler = sampler_for(space, OPTIONS)
        return StudyStore(folder, space, OPTIONS, share=shared, sampler=sampler)

    return opened


def test_the_databases_password_is_in_no_file_that_others_have_prepared(tmp_path: Path) -> None:
    prepared = tmp_path / f"{REFERENCE_FILE}.part"
    prepared.write_text("x" * 10_000)
    prepared.chmod(0o666)
    share = SharedStudy("postgresql://tuner:password@database/studies", "study")
    written = adopt_reference(tmp_path, share)
    reference = tmp_path / REFERENCE_FILE
    assert adopt_reference(tmp_path, share) == written
    assert stat.S_IMODE(reference.stat().st_mode) == 0o600
    assert prepared.read_text() == "x" * 10_000


def test_tuners_are_asked_different_settings(open_store: Open) -> None:
    with open_store("one") as one, open_store("two") as two:
        asked = [store.ask()[1] for _ in range(6) for store in (one, two)]
    assert asked[0] == DEFAULT
    assert len({str(setting) for setting in asked}) == 12


@pytest.mark.parametrize(
    ("world", "counts"),
    [
        pytest.param(2, True, id="comparable"),
        pytest.param(4, False, id="of-another-world"),
    ],
)
def test_what_another_has_measured_counts_where_it_is_comparable(
    open_store: Open, world: int, counts: bool
) -> None:
    with open_store("one") as one, open_store("two", fingerprint={"world": world}) as two:
        number, setting = one.ask()
        one.tell(number, SLOWER)
        assert two.is_known(setting) == counts
        assert two.measured_trials == counts
        assert [trial.by.endswith(":one") for trial in two.trials()] == [True] * counts


def test_a_setting_that_another_is_measuring_is_set_aside(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hvdtune.tuner.storage.study_store._BUSY_WAIT_S", 0.0)
    with open_store("one", ONE_KNOB) as one, open_store("two", ONE_KNOB) as two:
        two.tell(two.ask()[0], SLOWER)
        _, measured_now = ask_new(one)
        number, setting = two.ask()
        while setting != measured_now:
            two.tell_duplicate(number, setting)
            number, setting = two.ask()
        assert two.is_known(setting)
        two.tell_duplicate(number, setting)
        assert two.measured_trials == 1
        assert two.trials()[-1].reason.endswith("of another tuner measures the same setting")


def test_a_tuner_waits_for_the_last_settings_of_others(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store("one", ONE_KNOB) as one, open_store("two", ONE_KNOB) as two:
        two.tell(two.ask()[0], TrialOutcome("complete", 0.0, 0.01, 8))
        number, setting = ask_new(one)
        monkeypatch.setattr("time.sleep", lambda _: one.tell(number, SLOWER))
        while True:
            again, same = two.ask()
            if same == setting:
                break
            two.tell_duplicate(again, same)
        assert two.is_known(setting)
        two.tell_duplicate(again, same)
        assert two.trials()[-1].reason == f"the same setting as trial {number}"


def test_pairs_of_others_count_and_say_whose_they_are(open_store: Open, tmp_path: Path) -> None:
    mine, theirs = _pair("search", 0.01), _pair("search", 0.02)
    with (
        open_store("one") as one,
        open_store("two") as two,
        one.open_pairs() as first,
        two.open_pairs() as second,
    ):
        first.append(theirs)
        second.append(mine)
        first.append(_pair("verify", 0.03))
        assert [pair.log_ratio for pair in second.of("search", DEFAULT)] == [0.01, 0.02]
        assert second.of("search")[1].by.endswith(":one")
        assert second.of("verify") == []
    view = read_study(tmp_path / "two")
    assert view.pairs[0] == mine
    assert [pair.phase for pair in view.pairs[1:]] == ["search", "verify"]


def test_pairs_that_did_not_reach_the_database_are_put_up_later(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store("one") as one, one.open_pairs() as log:
        log.append(_pair("search", 0.01))
        with monkeypatch.context() as patch:
            patch.setattr("hvdtune.tuner.storage.leases.LeaseTable.publish", _out_of_reach)
            with pytest.raises(StudyError):
                log.append(_pair("search", 0.02))
    with open_store("two") as two, two.open_pairs() as others:
        assert len(others.of("search")) == 1
        with open_store("one") as one, one.open_pairs():
            assert len(others.of("search")) == 2


@pytest.mark.parametrize(
    ("heartbeat_s", "dead_after_s", "is_asked"),
    [
        pytest.param(3600.0, 0.0, True, id="silent"),
        pytest.param(0.01, 60.0, False, id="alive"),
    ],
)
def test_what_a_tuner_was_measuring_goes_to_another_when_it_is_silent(
    open_store: Open,
    monkeypatch: pytest.MonkeyPatch,
    heartbeat_s: float,
    dead_after_s: float,
    is_asked: bool,
) -> None:
    with open_store("one", heartbeat_s=heartbeat_s) as one:
        _, setting = one.ask()
        # As seen from another host, where only its silence tells.
        monkeypatch.setattr("hvdtune.tuner.storage.leases.place", lambda: "elsewhere")
        with open_store("two", dead_after_s=dead_after_s) as two:
            assert any(two.ask()[1] == setting for _ in range(3)) == is_asked


def test_a_tuner_that_was_taken_for_dead_goes_on(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store("one", heartbeat_s=3600.0) as one:
        number, setting = one.ask()
        monkeypatch.setattr("hvdtune.tuner.storage.leases.place", lambda: "elsewhere")
        with open_store("two", dead_after_s=0.0) as two:
            ask_new(two)
            one.tell(number, SLOWER)
            assert not two.is_known(setting)
        assert one.ask()[0] > number


def test_a_study_of_other_knobs_is_refused(open_store: Open) -> None:
    with open_store("one"), pytest.raises(StudyError, match="choose another name for the study"):
        open_store("two", ONE_KNOB)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param(
            None,
            r"belongs to study study-\d+ in .*; set HVDTUNE_STORAGE to it again",
            id="no-study",
        ),
        pytest.param(
            "another", r"belongs to study .*: choose another run folder$", id="another-study"
        ),
    ],
)
def test_a_folder_keeps_to_its_study(
    open_store: Open, tmp_path: Path, study_url: str, name: str | None, message: str
) -> None:
    with open_store("one"):
        pass
    share = SharedStudy(study_url, name) if name else None
    with pytest.raises(StudyError, match=message):
        StudyStore(tmp_path / "one", make_space(KNOBS, DEFAULT), OPTIONS, share=share)


def ask_new(store: StudyStore) -> tuple[int, dict[str, object]]:
    number, setting = store.ask()
    while store.is_known(setting):
        store.tell_duplicate(number, setting)
        number, setting = store.ask()
    return number, setting


def _pair(phase: str, log_ratio: float) -> Pair:
    return Pair(0, phase, 0, DEFAULT, DEFAULT, log_ratio, 10.0, 10.0, 96, "ABBA", 1.5)


def _out_of_reach(*_: object) -> None:
    import sqlalchemy

    raise sqlalchemy.exc.OperationalError("INSERT", {}, OSError("server closed the connection"))
