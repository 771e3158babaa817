"""The decisions about membership, over all orders of events in a small job."""

import pytest

from hvdtune.launcher.elastic.membership import ElasticLimits
from tests.launcher.elastic.explorer import explore


def test_no_order_of_one_failure_ends_in_a_hang() -> None:
    count, outcomes = explore(ElasticLimits(1, 2, hosts_are_fixed=True), failures=1)
    assert count > 100
    assert "" in outcomes


def test_no_order_in_which_hosts_go_and_return_loses_the_state() -> None:
    _, outcomes = explore(ElasticLimits(1, 2), 2, faults=("lose host",), hosts=("a", "b"))
    assert "" in outcomes
    assert not [why for why in outcomes if "state" in why]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_order_of_two_failures_ends_in_a_hang() -> None:
    count, outcomes = explore(ElasticLimits(1, 3, hosts_are_fixed=True), failures=2)
    assert count > 100_000
    assert "" in outcomes
