"""The race of the best trials, and what becomes of it when the tuner is killed."""

from pathlib import Path

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.space.tune_options import ProofOptions, TuneOptions
from hvdtune.tuner.storage.pair_log import Pair, PairLog, read_pairs
from hvdtune.tuner.storage.study_reader import PAIRS_FILE
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

OPTIONS = TuneOptions(
    trials=20,
    time_budget_s=1e6,
    proof=ProofOptions(max_pairs=20, launches=1),
)


def slight(setting: Setting) -> float:
    """Too little to be used before the verdict, and more than one setting has it."""
    return 0.03 if setting["cycle_time_ms"] < 0.5 else 0.0


class Killed(BaseException):
    """The tuner is no more."""


def study_once(run_dir: Path, seed: int) -> None:
    cluster = SimulatedCluster(Script(seed=seed, gain=slight, step_noise=0.15))
    tune(Study(cluster.start, KNOBS, DEFAULT), run_dir, OPTIONS, clock=cluster.clock)


def kill_after(run_dir: Path, seed: int, race_pairs: int, patch: pytest.MonkeyPatch) -> None:
    """Runs a study whose tuner dies when so many pairs of the race are on disk."""
    append = PairLog.append

    def append_and_die(log: PairLog, pair: Pair) -> None:
        append(log, pair)
        if sum(each.phase == "race" for each in log.pairs) == race_pairs:
            raise Killed

    with patch.context() as patched, pytest.raises(Killed):
        patched.setattr(PairLog, "append", append_and_die)
        study_once(run_dir, seed)


def raced(run_dir: Path) -> list[str]:
    """The settings of the race's pairs, in order."""
    pairs = read_pairs(run_dir / PAIRS_FILE)
    return [key_of(pair.setting) for pair in pairs if pair.phase == "race" and not pair.set_aside]


@pytest.mark.parametrize(
    ("seed", "race_pairs"),
    [(0, 6), *(pytest.param(n, n + 6, marks=pytest.mark.slow) for n in (1, 2)), (3, 9)],
)
def test_a_race_goes_on_with_those_that_were_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, race_pairs: int
) -> None:
    kill_after(tmp_path, seed, race_pairs, monkeypatch)
    before = raced(tmp_path)
    study_once(tmp_path, seed)

    entrants, first_round = set(before), OPTIONS.pairs.race_entrants
    assert len(entrants) <= first_round
    later = raced(tmp_path)[len(before) :]
    assert set(later) <= entrants
    # Nobody who has dropped out comes back: after the first round three are left at most.
    assert len(set(raced(tmp_path)[first_round:])) <= 3


def test_what_is_far_behind_does_not_race(tmp_path: Path) -> None:
    def gain(setting: Setting) -> float:
        return 2.0 if setting["hierarchical_allreduce"] else 0.7 * (setting["cycle_time_ms"] == 2.0)

    settings = [{**DEFAULT, "hierarchical_allreduce": True}, {**DEFAULT, "cycle_time_ms": 2.0}]
    cluster = SimulatedCluster(Script(gain=gain))
    study = Study(cluster.start, KNOBS, DEFAULT, hosts=2, first_settings=settings)
    options = TuneOptions(trials=3, time_budget_s=1e6, proof=ProofOptions(launches=1))
    verdict = tune(study, tmp_path, options, clock=cluster.clock).verdict

    # Its pairs are those after which it is used from then on.
    assert set(raced(tmp_path)) == {key_of(settings[0])}
    assert verdict.improved


@pytest.mark.parametrize(("budget_s", "least"), [(14.0, 8), (18.0, 20)])
def test_a_race_is_shortened_where_the_verification_needs_the_time(
    tmp_path: Path, budget_s: float, least: int
) -> None:
    gain = lambda setting: 0.06 * (setting["cycle_time_ms"] < 0.5)  # noqa: E731
    cluster = SimulatedCluster(Script(seed=0, gain=gain))
    began_s = cluster.clock.now()
    options = TuneOptions(trials=12, time_budget_s=budget_s)
    tune(Study(cluster.start, KNOBS, DEFAULT), tmp_path, options, clock=cluster.clock)

    assert 0 < len(raced(tmp_path)) < 12
    verified = [p for p in read_pairs(tmp_path / PAIRS_FILE) if p.phase == "verify"]
    assert len(verified) >= least
    assert cluster.clock.now() - began_s < budget_s
