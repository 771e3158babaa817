"""A study of an elastic job: each membership by itself. The job is simulated."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hvdtune.core.job.channel import NEVER_ADOPTED, Closed, Formed, RankAddress
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.run import membership_of, study_folder
from hvdtune.tuner.process.messages import ProposeRequest
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.space.tune_options import ONE_RUN
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import EarlierRuns, Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedJob
from tests.tuner.process.test_supervisor import (
    Unhurried,
    kill_before_ranks_form,
    short_cycles_win,
)

OPTIONS = replace(
    ONE_RUN,
    is_elastic=True,
    trials=4,
    time_budget_s=600.0,
    tunable=("cycle_time_ms",),
    pairs=replace(ONE_RUN.pairs, calibration=4, race=2),
    proof=replace(ONE_RUN.proof, min_pairs=9, max_pairs=9),
    blocks=replace(ONE_RUN.blocks, min_steps=4),
    keep_timelines=0,
)


class Bed:
    """A job of 2 ranks that goes on with others when a study of its ranks has so many pairs."""

    def __init__(self, run_dir: Path, earlier: EarlierRuns | None = None) -> None:
        self.run_dir = run_dir
        self.cluster = Unhurried(Script(gain=short_cycles_win, step_noise=0.02, drift=0))
        self.changes: list[tuple[int, int, int]] = []  # ranks, pairs, ranks then
        self.messages: list[str] = []
        study = Study(self.cluster.start, KNOBS, DEFAULT, earlier=earlier)
        self.supervisor = TunerSupervisor(study, run_dir, OPTIONS, self.take)

    @property
    def job(self) -> SimulatedJob:
        return self.cluster.jobs[-1]

    def pairs(self, ranks: int) -> int:
        return len(read_pairs(self.folder(ranks) / "pairs.jsonl"))

    def folder(self, ranks: int) -> Path:
        return self.run_dir / "studies" / f"localhost-{ranks}"

    def take(self, progress: StudyProgress) -> None:
        self.messages.append(progress.message)
        if self.changes and self.pairs(self.changes[0][0]) >= self.changes[0][1]:
            self.job.form_anew(self.changes.pop(0)[2])

    def step_until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            list(self.supervisor._serve())


def test_ranks_that_form_while_a_new_tuner_starts_are_heard_of(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    kill_before_ranks_form(bed.supervisor, bed.cluster)
    with bed.supervisor as supervisor:
        assert supervisor.tune().verdict.membership == "2 ranks (localhost:2)"
    assert len(bed.cluster.jobs) == 1


@pytest.mark.parametrize("at_pairs", [2, pytest.param(9, marks=pytest.mark.slow)])
def test_other_ranks_are_measured_apart_and_the_verdict_says_for_whom_it_holds(
    tmp_path: Path, at_pairs: int
) -> None:
    bed = Bed(tmp_path)
    bed.changes = [(2, at_pairs, 3)]
    with bed.supervisor as supervisor:
        verdict = supervisor.tune().verdict
    assert verdict.improved and verdict.membership == "3 ranks (localhost:3)"
    assert verdict.text.startswith("with 3 ranks (localhost:3): +")
    assert "training continues with 3 ranks (localhost:3)" in "\n".join(bed.messages)
    assert at_pairs <= bed.pairs(2) < bed.pairs(3)
    there = read_study(bed.folder(3))
    assert [pair.phase for pair in there.pairs[:4]] == ["calibrate"] * 4
    assert there.verdict is not None and read_study(bed.folder(2)).verdict is None
    assert len(bed.cluster.jobs) == 1


def test_ranks_that_are_back_go_on_with_their_study(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.changes = [(2, 6, 1), (1, 2, 2)]
    with bed.supervisor as supervisor:
        assert supervisor.tune().verdict.membership == "2 ranks (localhost:2)"
    pairs = read_study(bed.folder(2)).pairs
    assert sum(pair.phase == "calibrate" and not pair.set_aside for pair in pairs) == 4
    assert {pair.launch for pair in pairs} == {0, 1}  # of either stay


def test_after_the_verdict_other_ranks_have_the_default_until_its_own_are_back(
    tmp_path: Path,
) -> None:
    bed = Bed(tmp_path)
    with bed.supervisor as supervisor:
        verdict = supervisor.tune().verdict
        assert verdict.setting != DEFAULT
        bed.job.form_anew(1)
        before = bed.job._steps
        bed.step_until(lambda: bed.job._steps > before + 200)
        assert bed.job.setting == DEFAULT
        bed.job.form_anew(2)
        bed.step_until(lambda: bed.job.setting == verdict.setting)


def test_a_tuner_that_dies_while_ranks_change_is_followed_by_one_that_awaits_them(
    tmp_path: Path,
) -> None:
    bed = Bed(tmp_path)
    supervisor, engage = bed.supervisor, bed.supervisor._start_worker
    take = supervisor._progress

    def die_at_the_end_of_a_generation(progress: StudyProgress) -> None:
        take(progress)
        if bed.pairs(2) >= 3 and supervisor.pid is not None:
            supervisor._progress = take
            supervisor._note_membership(Closed())
            os.kill(supervisor.pid, signal.SIGKILL)

    def engage_then_form() -> None:
        engage()
        if bed.cluster.jobs:
            bed.job.form(3)

    supervisor._progress = die_at_the_end_of_a_generation
    supervisor._start_worker = engage_then_form  # type: ignore[method-assign]
    with supervisor:
        assert supervisor.tune().verdict.membership == "3 ranks (localhost:3)"
    assert "the tuner died" in "\n".join(bed.messages)
    assert len(bed.cluster.jobs) == 1


def test_what_is_meant_for_other_ranks_is_not_proposed(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    supervisor = bed.supervisor
    supervisor._job = bed.cluster.start()
    ranks = (RankAddress(0, "a", 1), RankAddress(1, "b", 2))
    for event in (Formed(ranks), Closed(), Formed(ranks[:1])):
        supervisor._note_membership(event)
    late = supervisor._answer(ProposeRequest(DEFAULT, formed=1))
    assert late.value == NEVER_ADOPTED and not bed.job.proposed
    assert supervisor._answer(ProposeRequest(DEFAULT, formed=2)).value == 1


def test_a_membership_names_its_hosts() -> None:
    ranks = tuple(RankAddress(n, host, n) for n, host in enumerate(["b", "a", "b"]))
    assert membership_of(Formed(ranks)) == "3 ranks (a:1,b:2)"
    many = ",".join(f"host-{n}:8" for n in range(200))
    name = study_folder(Path("run"), f"1600 ranks ({many})").name
    assert len(name) < 128 and name.startswith("host-0-8,host-1-8")


@pytest.mark.slow
def test_a_later_run_begins_with_what_an_earlier_one_has_ended_with_on_as_many_ranks(
    tmp_path: Path,
) -> None:
    study = {"default": dict(DEFAULT), "objectives": ["step_time"]}
    run = {"command": ["train.py"], "hosts": [], "study": study, "variables": {}}
    beds = [Bed(tmp_path / name, EarlierRuns(run, (tmp_path,))) for name in "abc"]
    for bed in beds:
        bed.run_dir.mkdir()
        (bed.run_dir / "run.json").write_text(json.dumps(run))
    beds[2].changes = [(2, 0, 3)]
    verdicts = []
    for bed in beds:
        with bed.supervisor as supervisor:
            verdicts.append(supervisor.tune().verdict)

    first, second, third = verdicts
    assert "of this job is known" not in "\n".join(beds[0].messages)
    assert "1 earlier launch of this job is known" in "\n".join(beds[1].messages)
    assert first.improved and second.setting == first.setting
    assert second.membership == "2 ranks (localhost:2)"
    phases = {pair.phase for pair in read_pairs(beds[1].folder(2) / "pairs.jsonl")}
    assert phases == {"calibrate", "verify"}
    # Of three ranks nothing is known.
    assert third.membership == "3 ranks (localhost:3)"
    assert any(pair.phase == "search" for pair in read_pairs(beds[2].folder(3) / "pairs.jsonl"))
