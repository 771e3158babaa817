import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from hvdtune.core.job.channel import Adopted, Formed, StepDone
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from studies.tuning.kill import Tally, one_study
from studies.tuning.offline import HEAD, one, summary
from studies.tuning.parameter_manager import BOX, ParameterManager
from studies.tuning.rates import Rates, injected, replayed_verdict
from studies.tuning.recordings import record, synthetic
from studies.tuning.recordings.grid import Grid, load, rebased
from studies.tuning.recordings.replay import Cluster
from studies.tuning.recordings.smooth import smoothed
from studies.tuning.slow_start import Result
from studies.tuning.switches import load as busy
from studies.tuning.switches import switch
from studies.tuning.tuners import TUNERS, Outcome


@pytest.fixture(scope="module")
def peak() -> Grid:
    return synthetic.make("synthetic-peak")


def quiet(grid: Grid) -> Grid:
    noise = dataclasses.replace(
        grid.noise, moods=(np.zeros(10),), settle=(), launch_effects=np.zeros(1)
    )
    return dataclasses.replace(grid, noise=noise)


def test_between_grid_points_a_gain_lies_between_theirs_and_off_is_below_the_smallest(peak):
    short, middle, long = (
        peak.gain({**peak.default, "cycle_time_ms": cycle}) for cycle in (0.2, 0.45, 1.0)
    )
    assert long < middle < short
    off, almost_off = (
        peak.gain({**peak.default, "fusion_threshold_bytes": size}) for size in (0, 1024)
    )
    assert almost_off == off < -1


def test_from_a_worse_default_there_is_more_to_gain(peak):
    worse = rebased(peak, {"cycle_time_ms": 20.0})

    assert worse.gain(worse.default) == 0
    assert worse.best == pytest.approx(peak.best - peak.gain(worse.default))
    assert worse.step_s > peak.step_s


def test_smoothing_takes_the_luck_out_of_few_pairs(peak):
    draw = np.random.default_rng(3)
    counts = np.full(peak.gains.shape, 3.0)
    sums = 3 * peak.gains + math.sqrt(3) * 0.03 * draw.standard_normal(peak.gains.shape)
    default_at = tuple(values.index(peak.default[axis]) for axis, values in peak.axes.items())

    found = smoothed(peak.axes, sums, counts, 0.03, default_at)

    assert found[default_at] == 0
    near = peak.gains > -0.5
    raw_error = float(np.std((sums / counts - peak.gains)[near]))
    assert float(np.std((found - peak.gains)[near])) < 0.7 * raw_error


def test_a_replayed_job_adopts_a_setting_inside_the_next_step(peak):
    job = Cluster(peak, seed=1).start()
    assert isinstance(job.next_event(1.0), Formed)
    version = job.propose({**peak.default, "cycle_time_ms": 0.2})
    events = [job.next_event(1.0) for _ in range(3)]

    assert events[0] == Adopted(version)
    steps = [event.version for event in events if isinstance(event, StepDone)]
    assert steps == [-1, version]


def test_a_run_under_a_setting_loses_what_its_gain_says(peak):
    cluster = Cluster(quiet(peak), seed=1, lengths=(50, 100))
    setting = {**peak.default, "cycle_time_ms": 20.0}
    for index in range(60):
        cluster.step(cluster.gain(setting), index)

    share = pytest.approx(math.expm1(-peak.gain(setting)))
    assert cluster.shares_lost(setting) == {50: share, 100: share}


def test_who_begins_with_the_best_setting_loses_nothing_against_who_knows_it(peak, monkeypatch):
    def begin_with(setting):
        def tuner(grid, seed):
            cluster = Cluster(quiet(grid), seed)
            cluster.step(cluster.gain(setting), 0)
            return Outcome(setting, 1, 1, 0, cluster.shares_lost(setting))

        return tuner

    monkeypatch.setitem(TUNERS, "knows", begin_with(peak.best_setting))
    monkeypatch.setitem(TUNERS, "keeps", begin_with(peak.default))
    knows, keeps = (one("synthetic-peak", Path(), name, seed=0) for name in ("knows", "keeps"))

    assert (knows["lost_percent_2000"], knows["lost_percent_50000"]) == (0, 0)
    assert keeps["lost_percent_10000"] == pytest.approx(100 * math.expm1(peak.best), abs=1e-3)


def test_parameter_manager_samples_every_combination_21_times_within_its_box(peak):
    manager = ParameterManager(peak.default, ("hierarchical_allgather", "cache_enabled"), seed=5)
    samples, settings = 0, []
    while not manager.done:
        settings.append(manager.setting)
        samples += 1
        manager.tune(100.0 + samples % 7)

    assert samples == 3 + 4 * 21
    sizes = [setting["fusion_threshold_bytes"] / 2**20 for setting in settings]
    assert BOX[0, 0] <= min(sizes) and max(sizes) <= BOX[0, 1]
    assert [(s["cache_enabled"], s["hierarchical_allgather"]) for s in settings[3::21]] == [
        (False, False), (False, True), (True, False), (True, True)
    ]  # fmt: skip


def test_parameter_manager_ships_its_largest_sample(peak):
    manager = ParameterManager(peak.default, (), seed=5)
    lucky = None
    for sample in range(24):
        if sample == 11:
            lucky = manager.setting
        manager.tune(500.0 if sample == 11 else 100.0 + sample)

    assert manager.done
    assert manager.setting == lucky


# Each goes through a whole study; those that CI leaves out take 20 seconds.
@pytest.mark.parametrize(
    "tuner",
    [pytest.param(n, marks=[pytest.mark.slow] * n.startswith("hvdtune")) for n in TUNERS],
)
def test_every_tuner_ends_and_is_told_of_in_a_line(tuner, tmp_path):
    row = one("synthetic-peak", tmp_path, tuner, seed=0)

    assert row["steps"] > 0
    assert row["trials"] >= 24
    assert summary(tuner, [row]).count("|") == HEAD.splitlines()[0].count("|")


def test_verifications_of_a_slowdown_claim_no_gain_and_mostly_hold_it(peak):
    grid = injected(peak, 5.0, effects=True)
    found = Rates(5.0)
    for seed in range(15):
        found.add(replayed_verdict(grid, TuneOptions(seed=seed)))

    assert found.gains == 0
    assert found.claims >= 13
    assert found.covered >= 12


@pytest.mark.slow
def test_a_recording_goes_on_where_it_was_and_is_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RUN_STEPS", 30)
    monkeypatch.setattr(record, "_WARM_S", 0.3)
    with record.starter("transformer") as jobs:
        for number in range(2):
            with (
                record.Recording("transformer", tmp_path) as recording,
                record.Launch(jobs, recording.launches) as launch,
            ):
                assert launch.number == number
                left = recording.left_of(0)
                default = {axis: launch.default[axis] for axis in left[0]}
                recording.add_run(launch)
                for setting in (left[0], default, default):
                    recording.add(0, launch, setting)
                assert len(recording.left_of(0)) == len(left) - 3

    found = load("transformer", tmp_path)
    assert found.pairs == 6
    assert found.gain(found.default) == 0
    assert len(found.noise.moods) == 2
    assert json.loads((tmp_path / "transformer.json").read_text())["ranks"] == 2


@pytest.mark.slow
def test_changing_settings_under_load_keeps_every_bit():
    with busy(1):
        assert "20 changes" in switch("transformer", 20, seed=3)


@pytest.mark.slow
def test_a_killed_tuner_s_study_loses_no_pair_and_comes_to_its_verdict(tmp_path: Path):
    tally = Tally()
    one_study(tmp_path, [1.5, 4.0, 7.0], tally)

    assert tally.kills == 3
    assert tally.lost == 0
    # Beside other work it is too noisy to decide.
    assert set(tally.verdicts) <= {"improved", "unstable", "noisy"}


def test_a_study_that_has_verified_nothing_is_not_decided() -> None:
    kept = Verdict(
        "default", {}, {"cycle_time_ms": 1.0}, -0.2, (-0.9, 0.5), 20, 3, 0.5, 20, 0.4, ""
    )
    nothing = dataclasses.replace(kept, candidate=None, gain_percent=None, ci_percent=None)
    decided = [Result(0, 3, 99.0, verdict, None).is_decided for verdict in (kept, nothing)]
    assert decided == [True, False]
