"""Operations of TensorFlow that are in flight while something happens to a rank."""

import pytest

from tests.memory import programs
from tests.memory.test_programs import drawn, problems_of

pytestmark = pytest.mark.timeout(300)


def test_what_is_in_flight_has_an_owner_whatever_a_rank_does():
    assert problems_of(drawn(10, "tensorflow", 2)) == {}


def test_the_memory_of_survivors_is_their_own_again():
    assert problems_of(drawn(1, "tensorflow", 2, programs.KILL, lethal=True)) == {}
