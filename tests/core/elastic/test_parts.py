"""Who holds copies of what a rank has for itself, and who gets which after a change of ranks."""

import pytest

from hvdtune.core.elastic.parts import (
    FROM_DISK,
    Agreement,
    PartStore,
    PerRank,
    Told,
    Version,
    copy_ranks,
    divided_anew,
    plan_routes,
)
from hvdtune.core.elastic.state import ObjectState
from hvdtune.errors import ArgumentError, StateLostError, UsageError

TWO_HOSTS = [(0, 0), (0, 1), (1, 0), (1, 1)]  # host and local rank
V3 = Version(generation=4, commits=7, size=3)


def told(*held, newest=V3):
    """Ranks that hold parts of V3, each of its own length."""
    return [Told(newest, {V3: {part: 10 + part for part in parts}}) for parts in held]


def routes(*held):
    return [(r.part, r.source, r.target, r.length) for r in plan_routes(V3, told(*held))]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_every_rank_holds_as_many_copies_as_it_has(copies):
    holders = [copy_ranks(rank, TWO_HOSTS, copies) for rank in range(4)]
    assert all(
        rank not in ranks and len(set(ranks)) == copies for rank, ranks in enumerate(holders)
    )
    assert [sum(rank in ranks for ranks in holders) for rank in range(4)] == [copies] * 4


def test_copies_are_on_other_hosts_where_there_are_some():
    assert all(TWO_HOSTS[copy_ranks(rank, TWO_HOSTS, 1)[0]][0] != rank // 2 for rank in range(4))
    assert copy_ranks(1, [(0, 0), (0, 1), (0, 2)], 2) == [2, 0]
    assert copy_ranks(0, [(0, 0)], 1) == []


def test_each_part_goes_to_one_rank_in_the_order_of_parts():
    assert [target for _, _, target, _ in routes({0, 1, 2}, {0, 1, 2})] == [0, 0, 1]
    assert [target for _, _, target, _ in routes({0, 1, 2}, set(), set(), set())] == [0, 1, 2]


def test_a_part_that_is_there_is_not_sent():
    assert routes({0}, {1}, {2}) == [(0, 0, 0, 10), (1, 1, 1, 11), (2, 2, 2, 12)]
    assert routes({0, 2}, {1, 0}) == [(0, 0, 0, 10), (1, 1, 0, 11), (2, 0, 1, 12)]


def test_a_part_that_nobody_holds_is_lost_with_a_sentence():
    with pytest.raises(StateLostError, match=r"per-rank state of rank 2 of 3 \(commit 7\) is lost"):
        routes({0, 1}, {1})


def test_what_a_version_was_divided_into_counts_where_its_only_holder_is_lost():
    alone, divided = Version(5, 858, 1), Version(6, 858, 2)
    newcomer = Told(alone, {divided: {0: 5, 1: 5}})
    assert divided_anew(alone, [newcomer]) == divided
    assert divided_anew(alone, [Told(alone, {alone: {0: 9}}), newcomer]) == alone
    # Half of it is not enough, and neither are the values of another commit.
    for lengths in ({divided: {1: 5}}, {Version(6, 859, 2): {0: 5, 1: 5}}):
        assert divided_anew(alone, [Told(alone, lengths)]) == alone


def test_what_other_ranks_find_on_the_disk_does_not_count():
    version = V3._replace(generation=FROM_DISK)
    found = [Told(version, {version: dict.fromkeys(range(3), 5)})] * 2
    assert {route.source for route in plan_routes(version, found)} == {0}
    with pytest.raises(StateLostError):
        plan_routes(version, [Told(None, {}), *found])


def test_a_rank_without_parts_knows_that_there_are_some():
    store = PartStore({"own": PerRank(0, sum)})
    store.settle(V3)
    with pytest.raises(StateLostError):
        store.divide(Agreement(V3, [store._told()]))


def test_a_state_with_values_per_rank_looks_for_hosts_in_a_commit_only():
    state = ObjectState(lambda value: value, lambda: 0, own=PerRank([1], sum))
    assert state.own == [1]
    with pytest.raises(UsageError, match="checks for new hosts only in commit"):
        state.check_host_updates()


def test_what_cannot_be_a_value_of_each_rank_is_refused():
    for copies in (-1, "1"):
        with pytest.raises(ArgumentError, match="must be a whole number of at least 0"):
            PerRank(0, sum, copies=copies)
    with pytest.raises(ArgumentError, match="merge None: must be a function"):
        PerRank(0, None)
