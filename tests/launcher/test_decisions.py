"""Decisions about a fixed number of processes, event by event."""

import pytest

from hvdtune.core.job.channel import Closed, Formed, Left, Lost
from hvdtune.launcher.decisions import Abandon, Finish, FixedMembership, Start, Terminate


def started(*, is_formed=True):
    job = FixedMembership("x.py", ["rank 0", "rank 1"], (5.0, 3.0), has_ranks=True)
    assert job.decide(0.0) == [Start(0), Start(1)]
    if is_formed:
        job.note_event(Formed(()))
    assert job.decide(1.0) == []
    return job


def test_the_others_may_report_then_are_terminated_then_killed():
    job = started()
    job.note_exit(1, 3)
    assert job.decide(10.0) == []
    assert job.decide(15.0) == []
    assert job.decide(15.1) == [Terminate()]
    assert job.decide(18.0) == []
    assert job.decide(18.1) == [Finish()]
    assert job.decide(19.0) == []


def test_the_job_is_over_when_all_have_ended():
    job = started()
    job.note_exit(0, 0)
    assert job.decide(2.0) == []
    job.note_exit(1, 0)
    assert job.decide(3.0) == [Finish()]


def test_ranks_do_not_wait_for_one_that_ended_before_it_joined():
    job = started(is_formed=False)
    job.note_exit(1, 0)
    assert job.decide(2.0) == [
        Abandon(0, "rank 1 exited with code 0 before all ranks had called hvd.init()")
    ]
    assert job.decide(3.0) == []
    job.note_event(Lost(-1, "rank 1 exited"))
    assert job.decide(4.0) == []
    assert job.decide(9.1) == [Terminate()]


def test_ranks_may_end_one_after_another_and_form_another_job():
    job = started()
    job.note_exit(0, 0)
    assert job.decide(2.0) == []
    job.note_event(Closed())
    assert isinstance(job.decide(3.0)[0], Abandon)


def test_a_rank_that_all_others_gave_up_is_ended():
    job = started()
    job.note_event(Lost(1, "rank 1 does not answer"))
    assert job.decide(2.0) == []
    job.note_exit(0, 0)
    assert job.decide(3.0) == []
    assert job.decide(8.1) == [Terminate()]


TOO_LATE = {"is_formed": False, "failure": "too late"}


@pytest.mark.parametrize(
    ("exits", "known", "wanted"),
    [
        ([(0, 0), (1, 0)], {}, (0, "", 0)),
        (
            [(0, 0)],
            {"lost": "rank 1 does not answer"},
            (1, "rank 1 had not ended when all others had: rank 1 does not answer", 1),
        ),
        ([(1, 3), (0, 4)], {}, (3, "rank 1 exited with code 3", 1)),
        ([(1, 3), "terminate", (0, -15)], {}, (3, "rank 1 exited with code 3", 1)),
        ([(1, -6), (0, 1)], {}, (134, "rank 1 was killed by SIGABRT", 1)),
        (["terminate", (0, -15), (1, -15)], TOO_LATE, (1, "too late", 0)),
        ([], TOO_LATE, (1, "too late", 0)),
        ([(1, 9), (0, 1)], TOO_LATE, (9, "too late", 1)),
        (
            [(0, 0), (1, 0)],
            TOO_LATE,
            (0, "x.py ended without calling hvd.init(): its processes never formed a job", 0),
        ),
        ([], {"is_stopped": True}, (143, "x.py was stopped", 0)),
        ([(0, 5)], {"is_stopped": True}, (5, "rank 0 exited with code 5", 0)),
        # The rank that the job lost first is blamed.
        ([(0, 1), (1, 7)], {"left": [1, 0]}, (7, "rank 1 exited with code 7", 1)),
        ([(0, 1), (1, -9)], {"left": [1]}, (137, "rank 1 was killed by SIGKILL", 1)),
        (
            [(0, 1)],
            {"lost": "rank 1 has not answered"},
            (1, "rank 0 exited with code 1 because rank 1 has not answered", 0),
        ),
    ],
)
def test_the_verdict_on_an_ending(exits, known, wanted):
    job = started(is_formed=known.get("is_formed", True))
    if "failure" in known:
        job.note_event(Lost(-1, known["failure"]))
    for rank in known.get("left", ()):
        job.note_event(Left(rank))
    if "lost" in known:
        job.note_event(Lost(1, known["lost"]))
    for each in exits:
        if each == "terminate":
            job.decide(2.0)
            assert Terminate() in job.decide(7.1)
        else:
            job.note_exit(*each)
    assert job.verdict(is_stopped=known.get("is_stopped", False)) == wanted
