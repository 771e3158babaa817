"""What a session leaves behind when its request is refused, fails or is stopped."""

import contextlib

import pytest

from hvdtune.core.job.interrupt import Stopped
from hvdtune.errors import StudyError
from hvdtune.launcher.hosts import this_host
from hvdtune.launcher.job import ExitReport
from hvdtune.launcher.jobs import plan_job, rank_options
from hvdtune.workflows.api import CallerReporter
from hvdtune.workflows.requests import JobRequest, OutputRequest, RunRequest, TraceRequest
from hvdtune.workflows.session import Session


@pytest.fixture
def open_session(tmp_path):
    """Opens a session of two ranks that only end."""

    def open_session(**output):
        words = ("sh", "-c", "true")
        plan = plan_job(words, this_host(2), 2)
        job = JobRequest(words, plan, rank_options(plan.slots, {}))
        request = RunRequest(job, None, OutputRequest(**output))
        return Session(request, CallerReporter(verbose=False))

    return open_session


def test_a_refused_study_leaves_no_new_folder(open_session, tmp_path):
    with contextlib.suppress(StudyError), open_session(folder=tmp_path / "run") as session:
        session.open_folder({"knobs": "a"})
        raise StudyError("refused")
    assert [*tmp_path.iterdir()] == []


def test_a_refused_study_leaves_a_folder_that_existed(open_session, tmp_path):
    (tmp_path / "run").mkdir()
    with contextlib.suppress(StudyError), open_session(folder=tmp_path / "run") as session:
        session.open_folder({"knobs": "a"})
        raise StudyError("refused")
    assert (tmp_path / "run" / "failure.txt").read_text() == "refused"


def test_a_study_that_fails_after_a_launch_keeps_its_folder(open_session, tmp_path):
    with contextlib.suppress(StudyError), open_session(folder=tmp_path / "run") as session:
        session.open_folder({"knobs": "a"})
        session.open_job()
        session.start({}).wait()
        raise StudyError("failed")
    assert (tmp_path / "run" / "output" / "launch-0.log").exists()
    assert (tmp_path / "run" / "failure.txt").read_text() == "failed"


def test_a_launch_that_cannot_start_leaves_no_folder_for_recordings(open_session, tmp_path):
    trace = TraceRequest(tmp_path / "trace.json")
    with contextlib.suppress(StudyError), open_session(trace=trace) as session:
        session.open_job()
        session.start({})
        assert len([*tmp_path.glob(".trace.json.*")]) == 1
        raise StudyError("failed")
    assert [*tmp_path.iterdir()] == []


def test_a_signal_ends_the_launch_and_is_its_reason(open_session):
    with open_session() as session:
        session.open_job()

        def wait():
            session.start({})
            raise Stopped(15)

        result = session.finish(wait)
        assert (result.exit_code, result.reason) == (143, "stopped by SIGTERM")
        assert isinstance(session.latest.poll(), ExitReport)
