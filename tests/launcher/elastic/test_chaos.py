"""Which rank is killed or stopped when."""

import pytest

from hvdtune.launcher.elastic.chaos import Chaos, ChaosPlan, Fault


def struck(plan, *, members=(0, 1, 2), can_stop=(0, 1, 2), seconds=100):
    """The faults by second; each is followed by another generation."""
    chaos, generation, found = Chaos(plan), 0, {}
    for now_s in range(seconds):
        fault = chaos.strike(now_s, generation, members, can_stop)
        if fault is not None:
            found[now_s], generation = fault, generation + 1
    return found


def test_faults_come_in_their_time():
    assert [*struck(ChaosPlan(kill_every_s=30))] == [30, 60, 90]
    found = struck(ChaosPlan(kill_every_s=30, stop_every_s=50))
    assert [(now_s, fault.kind) for now_s, fault in found.items()] == [
        (15, "kill"),
        (45, "kill"),
        (50, "stop"),
        (75, "kill"),
    ]


def test_the_same_seed_strikes_the_same_ranks():
    plans = [ChaosPlan(kill_every_s=1, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (list(struck(plan).values()) for plan in plans)
    assert first == again != other
    assert {fault.worker for fault in first} == {0, 1, 2}


def test_the_last_rank_is_spared():
    assert struck(ChaosPlan(kill_every_s=1), members=(4,)) == {}


def test_what_cannot_be_stopped_is_not():
    found = struck(ChaosPlan(stop_every_s=1), can_stop=(1,))
    assert {*found.values()} == {Fault("stop", 1)}
    assert struck(ChaosPlan(stop_every_s=1), can_stop=()) == {}


def test_a_generation_is_struck_once():
    chaos = Chaos(ChaosPlan(kill_every_s=1, stop_every_s=1))
    assert chaos.strike(5.0, 0, (0, 1), (0, 1)) is not None
    assert chaos.strike(9.0, 0, (0, 1), (0, 1)) is None
    assert chaos.strike(9.0, 1, (0, 1), (0, 1)) is not None


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ([], "no state was committed"),
        ([1, 1], "never had more than one rank"),
        ([2, 2], "was over before the first fault was due"),
        ([2] * 40, ""),
    ],
)
def test_a_job_in_which_nobody_was_struck_says_why(sizes, why):
    chaos = Chaos(ChaosPlan(kill_every_s=30))
    for now_s, size in enumerate(sizes):
        chaos.strike(now_s, 0, range(size), ())
    assert why in chaos.why_none() and bool(why) == bool(chaos.why_none())
