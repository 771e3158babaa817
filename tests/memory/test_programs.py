"""Random programs of operations in flight: a short form of what `tests.memory.soak` does."""

import itertools
import os

import pytest

from tests.memory import programs
from tests.memory.job import run_job
from tests.memory.programs import draw
from tests.memory.soak import soak

# They take the heartbeat timeout, or so.
NEEDS_TIME = (programs.STOP_LONG, programs.STOP_SHORT)


def drawn(count, framework, size, *disturbances, lethal=False):
    """Return programs that need no time, of one of the disturbances if there are any."""
    every = (draw(seed, framework, size, lethal=lethal) for seed in itertools.count())
    chosen = (
        program
        for program in every
        if program.disturbance not in NEEDS_TIME
        and (not disturbances or program.disturbance in disturbances)
    )
    return list(itertools.islice(chosen, count))


def problems_of(todo, **options):
    endings = run_job(todo, **options)
    assert len(endings) == len(todo) or any(ending.problems for ending in endings)
    return {str(ending.program): ending.problems for ending in endings if ending.problems}


@pytest.mark.parametrize(("size", "transport"), [(2, "auto"), (3, "auto"), (2, "tcp")])
def test_what_is_in_flight_has_an_owner_whatever_a_rank_does(size, transport):
    assert problems_of(drawn(12, "torch", size), transport=transport) == {}


@pytest.mark.parametrize("size", [2, 3])
def test_torch_distributed_owns_what_is_in_flight(size):
    todo = drawn(8, "distributed", size)
    todo += drawn(2, "distributed", size, programs.COLLECT)
    assert problems_of(todo + drawn(2, "distributed", size, programs.RAISE)) == {}


@pytest.mark.parametrize("framework", ["torch", "distributed"])
@pytest.mark.parametrize("disturbance", [programs.KILL, programs.EXIT])
def test_the_memory_of_survivors_is_their_own_again(disturbance, framework):
    assert problems_of(drawn(1, framework, 2, disturbance, lethal=True)) == {}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("framework", programs.KINDS)
def test_many_programs(framework):
    count = int(os.environ.get("HVDTUNE_TEST_PROGRAMS", "300"))
    share = count if framework in ("torch", "distributed") else count // 10
    endings = soak(framework, share, seed=1, seconds=3000.0)
    assert {str(e.program): e.problems for e in endings if e.problems} == {}
