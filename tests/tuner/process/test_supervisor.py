"""The tuner as a process of its own; the job is simulated, and takes its time."""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import psutil
import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import JobEvent
from hvdtune.errors import StudyError
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.process import supervisor as supervisor_module
from hvdtune.tuner.process.messages import StartStudy
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.space.tune_options import (
    ONE_RUN,
    BlockOptions,
    PairOptions,
    ProofOptions,
    TuneOptions,
)
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster, SimulatedJob


def short_cycles_win(setting: Setting) -> float:
    return 0.3 if float(setting["cycle_time_ms"]) < 0.9 else 0.0


class Unhurried(SimulatedCluster):
    """Its steps take real time, too, so that they do not pile up at the tuner."""

    def start(self, launch: int = 0) -> SimulatedJob:
        job = super().start(launch)
        take = job.next_event

        def next_event(timeout_s: float) -> JobEvent | None:
            time.sleep(0.0005)
            return take(timeout_s)

        job.next_event = next_event  # type: ignore[method-assign]
        return job


def kill_before_ranks_form(supervisor: TunerSupervisor, cluster: SimulatedCluster) -> None:
    """The first tuner is killed when it has started the job, whose ranks form for the next one."""

    def start(launch: int) -> SimulatedJob:
        job = cluster.start(launch)
        if len(cluster.jobs) > 1:
            return job
        killed, take = supervisor.pid, job.next_event
        assert killed is not None
        os.kill(killed, signal.SIGKILL)

        def next_event(timeout_s: float) -> JobEvent | None:
            if supervisor.pid in (killed, None):
                time.sleep(0.0005)
                return None
            return take(timeout_s)

        job.next_event = next_event  # type: ignore[method-assign]
        return job

    supervisor._study = replace(supervisor._study, start_job=start)


class Bed:
    def __init__(self, run_dir: Path, script: Script | None = None) -> None:
        self.run_dir = run_dir
        self.cluster = Unhurried(script or Script(gain=short_cycles_win, step_noise=0.02, drift=0))
        self.said: list[StudyProgress] = []
        self.on_news: Callable[[StudyProgress], None] = lambda progress: None
        study = Study(self.cluster.start, KNOBS, DEFAULT)
        options = TuneOptions(
            trials=5,
            time_budget_s=600.0,
            tunable=("cycle_time_ms",),
            pairs=PairOptions(calibration=4, race=2),
            proof=ProofOptions(min_pairs=9, max_pairs=9, max_launches=3),
            blocks=BlockOptions(seconds=0.05, min_steps=4),
        )
        self.supervisor = TunerSupervisor(study, run_dir, options, self.take)

    def take(self, progress: StudyProgress) -> None:
        self.said.append(progress)
        if progress.message.startswith("the study stopped"):
            self.cluster.script.steps_per_launch = 0  # the training would go on for ever
        self.on_news(progress)

    def strike(self, number: int, at_pairs: int) -> None:
        """Sends the tuner a signal once, when so many pairs are on disk."""

        def look(progress: StudyProgress) -> None:
            if len(read_pairs(self.run_dir / "pairs.jsonl")) >= at_pairs:
                self.on_news = lambda progress: None
                assert self.supervisor.pid is not None
                os.kill(self.supervisor.pid, number)

        self.on_news = look

    def watch_restarts(self) -> list[Setting]:
        """Return a list that gets the last setting of a training that runs when a tuner starts."""
        proposed: list[Setting] = []
        engage = self.supervisor._start_worker

        def look() -> None:
            if self.cluster.jobs and not self.cluster.jobs[-1].terminated:
                proposed.append(self.cluster.jobs[-1].proposed[-1])
            engage()

        self.supervisor._start_worker = look  # type: ignore[method-assign]
        return proposed

    @property
    def messages(self) -> str:
        return "\n".join(progress.message for progress in self.said)


def test_a_tuner_of_its_own_comes_to_a_verdict_and_watches_on(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    with bed.supervisor as supervisor:
        outcome = supervisor.tune()
        assert supervisor.pid is not None and psutil.Process(supervisor.pid).is_running()
        assert outcome.goes_on and outcome.verdict.improved
        job = bed.cluster.jobs[-1]
        assert job.proposed[-1] == outcome.verdict.setting
        bed.cluster.script.steps_per_launch = job._steps + 100
        assert supervisor.follow().returncode == 0
    assert not (tmp_path / "study.db-wal").exists()  # the database was closed


@pytest.mark.parametrize(
    "at_pairs",
    [
        pytest.param(2, marks=pytest.mark.slow),
        8,
        pytest.param(14, marks=pytest.mark.slow),
        pytest.param(18, marks=pytest.mark.slow),
    ],
)
def test_a_killed_tuner_leaves_the_default_and_is_followed_by_another_on_the_same_launch(
    tmp_path: Path, at_pairs: int
) -> None:
    bed = Bed(tmp_path)
    bed.strike(signal.SIGKILL, at_pairs)
    at_death = bed.watch_restarts()
    with bed.supervisor as supervisor:
        outcome = supervisor.tune()
    # A launch that the tuner was about to replace has ended.
    assert at_death in ([DEFAULT], [])
    assert bed.messages.count("the tuner died; training continues with the default") == 1
    assert outcome.verdict.improved
    pairs = read_pairs(tmp_path / "pairs.jsonl")
    launches = [pair.launch for pair in pairs]
    assert launches == sorted(launches)
    # The death itself started no launch: each but the last was ended by the study.
    assert len(bed.cluster.jobs) == len(set(launches))


@pytest.mark.slow
def test_a_tuner_that_is_killed_while_the_script_starts_is_followed_by_another_on_that_launch(
    tmp_path: Path,
) -> None:
    bed = Bed(tmp_path)
    kill_before_ranks_form(bed.supervisor, bed.cluster)
    with bed.supervisor as supervisor:
        assert supervisor.tune().verdict.improved
    assert bed.messages.count("the tuner died") == 1
    launches = {pair.launch for pair in read_pairs(tmp_path / "pairs.jsonl")}
    assert launches == set(range(len(bed.cluster.jobs)))


@pytest.mark.slow
def test_a_tuner_that_is_killed_while_it_watches_leaves_the_verdicts_setting(
    tmp_path: Path,
) -> None:
    bed = Bed(tmp_path)
    with bed.supervisor as supervisor:
        outcome = supervisor.tune()
        job = bed.cluster.jobs[-1]
        bed.cluster.script.steps_per_launch = job._steps + 500
        assert supervisor.pid is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        assert supervisor.follow().returncode == 0
        assert job.proposed[-1] == outcome.verdict.setting
        assert not job.terminated


# Killed tuners are replaced in the fast ones.
@pytest.mark.slow
def test_a_frozen_tuner_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeout_s = supervisor_module._FROZEN_S
    monkeypatch.setattr(supervisor_module, "_FROZEN_S", 3.0)
    bed = Bed(tmp_path)
    bed.strike(signal.SIGSTOP, 5)
    engage = bed.supervisor._start_worker

    def engage_and_be_patient() -> None:
        if bed.cluster.jobs:
            # On a busy machine a healthy tuner may read nothing for seconds.
            monkeypatch.setattr(supervisor_module, "_FROZEN_S", timeout_s)
        engage()

    bed.supervisor._start_worker = engage_and_be_patient  # type: ignore[method-assign]
    with bed.supervisor as supervisor:
        assert supervisor.tune().verdict.improved
    assert "the tuner died" in bed.messages


# Says that a long message comes, and keeps silent until nobody is there any more.
_STOPS_WITHIN_A_MESSAGE = """
import os, struct, sys
wire = int(sys.argv[1])
os.write(wire, struct.pack("!i", 100_000) + b"its begin")
while os.read(wire, 4096): pass
"""


def test_a_tuner_that_freezes_within_a_message_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", _STOPS_WITHIN_A_MESSAGE]
    monkeypatch.setattr(supervisor_module, "module_command", lambda module: command)
    monkeypatch.setattr(supervisor_module, "_FROZEN_S", 0.01)
    tuner = supervisor_module._Tuner(cast(StartStudy, None))
    try:
        tuner.wait(60.0)
        with pytest.raises(supervisor_module._WorkerGone):
            tuner.next()
    finally:
        tuner.end()


def test_a_tuner_that_always_dies_leaves_the_training_to_its_end(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script())
    killed: set[int] = set()

    def kill(progress: StudyProgress) -> None:
        if progress.pairs == 0 and bed.cluster.jobs:
            assert bed.supervisor.pid is not None
            psutil.Process(bed.supervisor.pid).kill()
            killed.add(bed.supervisor.pid)
        if len(killed) == 3 and bed.cluster.script.steps_per_launch is None:
            bed.cluster.script.steps_per_launch = bed.cluster.jobs[-1]._steps + 2_000

    bed.on_news = lambda progress: kill(progress) if bed.supervisor.pid else None
    with (
        bed.supervisor as supervisor,
        pytest.raises(StudyError, match="the tuner died 3 times in a row"),
    ):
        supervisor.tune()
    assert bed.cluster.jobs[-1].poll() is not None
    assert not bed.cluster.jobs[-1].terminated


def test_what_stops_a_study_is_raised_here(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(crashes_at_start=True))
    with (
        bed.supervisor as supervisor,
        pytest.raises(StudyError, match="ImportError: no x") as raised,
    ):
        supervisor.tune()
    assert raised.value.exit_code == 1


def test_a_study_that_goes_along_with_one_run_ends_with_it(tmp_path: Path) -> None:
    script = Script()
    cluster = Unhurried(script)
    study = Study(cluster.start, KNOBS, DEFAULT)

    def end_in_search(progress: StudyProgress) -> None:
        if progress.trial > 0:
            script.steps_per_launch = 0

    with TunerSupervisor(
        study, tmp_path, replace(ONE_RUN, trials=20, time_budget_s=600.0), end_in_search
    ) as supervisor:
        outcome = supervisor.tune()
    assert not outcome.goes_on and "the script ended after" in outcome.verdict.text
    assert len(cluster.jobs) == 1


class Enough(Exception):
    """A study is left at its first pair."""


def test_leaving_it_leaves_no_tuner(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    pids: list[int] = []

    def leave(progress: StudyProgress) -> None:
        if progress.pairs:
            assert bed.supervisor.pid is not None
            pids.append(bed.supervisor.pid)
            raise Enough

    bed.on_news = leave
    with pytest.raises(Enough), bed.supervisor as supervisor:
        supervisor.tune()
    assert not psutil.pid_exists(pids[0])


def test_a_users_modules_are_not_taken_for_the_standard_librarys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    bed = Bed(tmp_path / "run")

    def leave(progress: StudyProgress) -> None:
        if progress.pairs:
            raise Enough

    bed.on_news = leave
    with pytest.raises(Enough), bed.supervisor as supervisor:
        supervisor.tune()


def test_a_tuner_that_follows_another_has_what_is_left_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[StartStudy] = []
    monkeypatch.setattr(supervisor_module, "_Tuner", begun.append)
    supervisor = Bed(tmp_path).supervisor
    supervisor._start_worker()
    supervisor._end_s -= 400.0
    supervisor._start_worker()
    supervisor._end_s -= 400.0
    supervisor._start_worker()

    first, second, third = (begin.options.time_budget_s for begin in begun)
    assert 500.0 < first <= 600.0
    assert 100.0 < second <= 200.0
    assert third == 0.0
