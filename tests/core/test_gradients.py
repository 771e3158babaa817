import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.core.gradients import (
    GROUP_BYTES,
    SMALL_BYTES,
    WATCHED,
    Gradient,
    PassBook,
    arrange,
    check_names,
)
from hvdtune.errors import UsageError


def gradients(sizes, dtype="float32", packable=True):
    return [
        Gradient(index, f"p{index}", dtype, nbytes // 4, nbytes, packable)
        for index, nbytes in enumerate(sizes)
    ]


@given(
    st.lists(st.sampled_from([0, 4, 1024, SMALL_BYTES - 4, SMALL_BYTES, 1 << 20]), max_size=60),
    st.sampled_from([0, 1, 2, 3]),
)
def test_every_gradient_travels_once_large_ones_alone(sizes, odd):
    rows = gradients(sizes)
    rows[:odd] = gradients(sizes[:odd], "float64")
    plan = arrange(rows)
    grouped = [member for group in plan.groups for member in group.members]
    assert sorted(row.parameter for row in (*plan.alone, *grouped)) == list(range(len(sizes)))
    assert all(member.nbytes < SMALL_BYTES for member in grouped)
    for group in plan.groups:
        assert len({member.dtype for member in group.members}) == 1
        assert len(group.members) > 1
        assert group.count == sum(member.count for member in group.members)


def test_groups_are_bounded_and_have_names_of_their_own():
    each = SMALL_BYTES - 4
    plan = arrange(gradients([each] * (3 * GROUP_BYTES // each)))
    assert len(plan.groups) >= 3
    assert all(group.count * 4 <= GROUP_BYTES for group in plan.groups)
    assert len({group.name for group in plan.groups}) == len(plan.groups)


def test_what_cannot_be_packed_travels_alone():
    assert arrange(gradients([4] * 5, packable=False)).groups == ()


@pytest.mark.parametrize("members", [2, WATCHED, WATCHED + 1, 1000])
def test_few_members_of_a_group_are_watched(members):
    (group,) = arrange(gradients([4] * members)).groups
    watched = group.watched()
    assert 1 <= len(watched) <= WATCHED
    assert watched[0] is group.members[0]


def test_a_gradient_is_due_after_its_passes_and_not_again_before_the_next_step():
    book = PassBook(passes_per_step=2)
    assert [book.is_due("w"), book.any_due(), book.is_due("w"), book.any_due()] == [
        False,
        False,
        True,
        True,
    ]
    with pytest.raises(UsageError, match="backward_passes_per_step"):
        book.is_due("w")
    book.end_step()
    assert not book.any_due()
    assert not book.is_due("w")


def test_names_must_be_there_and_unique():
    check_names([("a", 1), ("b", 2)], 2)
    with pytest.raises(UsageError, match="not: a"):
        check_names([("a", 1), ("a", 2)], 2)
    with pytest.raises(UsageError, match="1 names for 2"):
        check_names([("a", 1)], 2)
