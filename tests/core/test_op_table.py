"""The core's tables against those that Python keeps for itself: traces open without the core."""

import pytest

from hvdtune.core import _native
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.errors import UsageError
from hvdtune.timeline.model.schema import COLLECTIVES, KINDS

EVENTS = {row["name"]: row["event"] for row in _native.op_table()}


def test_timelines_name_each_operation_as_the_core_does():
    named = {name: code for name, code in EVENTS.items() if not name.endswith("_process_set")}
    assert {name.lower(): KINDS[name].code for name in COLLECTIVES} == named


def test_changes_of_process_sets_are_recorded_as_barriers():
    assert EVENTS["add_process_set"] == EVENTS["remove_process_set"] == EVENTS["barrier"]


def test_the_core_has_each_of_horovods_reductions():
    assert sorted(op.name.lower() for op in ReduceOp) == sorted(_native.reductions())


@pytest.mark.parametrize(
    ("operation", "reduction", "why"),
    [
        ("reducescatter", "adasum", "not Adasum"),
        ("reducescatter", "median", "no reduction median"),
        ("gossip", "sum", "no operation gossip"),
    ],
)
def test_a_reduction_that_cannot_be_is_refused_by_the_core(operation, reduction, why):
    with pytest.raises(UsageError, match=why):
        _native.check_reduction(operation, reduction)
