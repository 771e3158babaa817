from collections.abc import Callable
from typing import Any

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.live_run import LiveRun
from hvdtune.tuner.measure.progress import Reporter, StudyProgress
from hvdtune.tuner.measure.run import JobCrashed, ScriptEnded, TrialFailed
from hvdtune.tuner.space.tune_options import LimitOptions, TuneOptions
from tests.kit.simulated_job import DEFAULT, Script, SimulatedCluster

SHAPE = BlockShape(steps=10, settle_steps=2, step_s=0.01)
FAST = {**DEFAULT, "cycle_time_ms": 0.2}


def is_fast(setting: Setting) -> bool:
    return setting == FAST


def make(script: Script, **options: Any) -> tuple[LiveRun, SimulatedCluster, list[StudyProgress]]:
    cluster = SimulatedCluster(script)
    seen: list[StudyProgress] = []
    chosen = TuneOptions(**options)
    reporter = Reporter(seen.append, cluster.clock, chosen.trials, chosen.time_budget_s)
    return LiveRun(cluster.start, DEFAULT, chosen, cluster.clock, reporter), cluster, seen


def test_a_pair_proposes_its_setting_and_the_default_in_order() -> None:
    live, cluster, _ = make(Script(gain=lambda setting: 0.5 * is_fast(setting), drift=0.0))
    live.ensure_running()
    times = live.measure(FAST, "BAAB", SHAPE)

    assert cluster.jobs[0].proposed == [FAST, DEFAULT, DEFAULT, FAST]
    assert times.log_ratio == pytest.approx(0.5, abs=0.1)
    assert live.job_info is not None
    assert live.job_info.size == 2


def test_warm_up_steps_do_not_set_the_step_time() -> None:
    live, _, _ = make(Script(step_s=0.02, step_noise=0.0, slow_noise=0.0, drift=0.0))
    live.ensure_running()

    assert live.step_s == pytest.approx(0.02)
    assert live.cost(SHAPE).launch_s > 6.0


def test_the_natural_end_asks_for_the_pair_again_in_the_next_launch() -> None:
    live, cluster, _ = make(Script(steps_per_launch=100))
    live.ensure_running()
    live.measure(FAST, "ABBA", SHAPE)
    with pytest.raises(ScriptEnded):
        live.measure(FAST, "ABBA", SHAPE)
    live.ensure_running()

    assert (live.launch, len(cluster.jobs)) == (1, 2)


def test_a_crash_shows_the_last_lines_and_fails_the_trial() -> None:
    live, _, seen = make(Script(crashes_with=is_fast))
    live.ensure_running()
    with pytest.raises(JobCrashed, match=r"rank 1 was killed \(rank 1 was lost: seg"):
        live.measure(FAST, "ABBA", SHAPE)

    assert seen[-1].lines == ("[1]: Segmentation fault",)


def test_crash_after_crash_ends_the_study() -> None:
    live, cluster, _ = make(Script(crashes_with=is_fast), limits=LimitOptions(max_crashes=3))
    for _ in range(2):
        live.ensure_running()
        with pytest.raises(JobCrashed):
            live.measure(FAST, "ABBA", SHAPE)
    live.ensure_running()
    with pytest.raises(StudyError, match="3 times in a row; its last line"):
        live.measure(FAST, "ABBA", SHAPE)

    assert len(cluster.jobs) == 3


def test_a_finished_pair_forgives_earlier_crashes() -> None:
    live, cluster, _ = make(Script(crashes_with=is_fast), limits=LimitOptions(max_crashes=2))
    for _ in range(4):
        live.ensure_running()
        live.measure(DEFAULT, "ABBA", SHAPE)
        with pytest.raises(JobCrashed):
            live.measure(FAST, "ABBA", SHAPE)

    assert len(cluster.jobs) == 4


def test_a_refused_setting_fails_the_trial_and_the_default_returns() -> None:
    live, cluster, _ = make(Script(refuses=is_fast))
    live.ensure_running()
    with pytest.raises(TrialFailed, match="refused the setting: not with this topology"):
        live.measure(FAST, "BAAB", SHAPE)

    assert cluster.jobs[0].proposed == [FAST, DEFAULT]
    live.measure(DEFAULT, "ABBA", SHAPE)
    assert live.launch == 0


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (Script(crashes_at_start=True), "before it could be measured; its last line: ImportE"),
        (Script(forms=False), "did not form a job within 120 s"),
        (
            Script(stalls_with=lambda setting: True),
            "no optimizer step within 300 s; is the optimizer an hvd",
        ),
    ],
    ids=["it-fails", "ranks-form-no-job", "ranks-never-step"],
)
def test_a_script_that_never_gets_going_is_not_tried_again(script: Script, message: str) -> None:
    live, cluster, _ = make(
        script,
        limits=LimitOptions(form_s=120.0, first_step_s=300.0),
    )
    with pytest.raises(StudyError, match=message):
        live.ensure_running()

    (job,) = cluster.jobs
    assert job.poll() is not None


def test_a_setting_that_stalls_the_run_fails_its_trial() -> None:
    live, cluster, _ = make(Script(stalls_with=is_fast), limits=LimitOptions(stall_s=300.0))
    live.ensure_running()
    with pytest.raises(JobCrashed, match="no step for 300 s"):
        live.measure(FAST, "ABBA", SHAPE)
    live.ensure_running()

    assert cluster.jobs[0].terminated
    assert len(cluster.jobs) == 2


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (0, "the script ended without an optimizer step"),
        (50, "3 launches of the script in a row ended before a pair"),
    ],
)
def test_a_script_too_short_to_measure_is_reported(steps: int, message: str) -> None:
    live, _, _ = make(Script(steps_per_launch=steps))

    def until_it_gives_up() -> None:
        while True:
            live.ensure_running()
            measure_or_end(lambda: live.measure(FAST, "ABBA", SHAPE))

    with pytest.raises(StudyError, match=message):
        until_it_gives_up()


def measure_or_end(measure: Callable[[], object]) -> None:
    try:
        measure()
    except ScriptEnded:
        return


def test_the_run_is_left_with_the_setting() -> None:
    live, cluster, _ = make(Script(steps_per_launch=500))
    live.ensure_running()
    job = live.detach(FAST)
    cluster.jobs[0].run_to_end()

    assert job is cluster.jobs[0]
    assert cluster.jobs[0].setting == FAST
    assert not cluster.jobs[0].terminated
    assert live.detach(DEFAULT) is None
