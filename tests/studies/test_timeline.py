"""How the study of planted bottlenecks judges what is found."""

import pytest

from studies.timeline.study import is_right, is_true, summary


def found(kind, cost_ms, *ranks, sure="high"):
    return {
        "kind": kind,
        "ranks": [*ranks],
        "cost_ms_per_step": cost_ms,
        "percent": 20.0,
        "sure": sure,
        "finding": "",
    }


def case(*findings, load=0, kind="slow-compute", rank=1, truth_ms=10.0, processors=8):
    return {
        "kind": kind,
        "load": load,
        "crowded": False,
        "processors": processors,
        "ranks": 2,
        "rank": rank,
        "truth_ms": truth_ms,
        "without_ms": 40.0,
        "stolen": 0.0,
        "findings": [*findings],
    }


CROWD = found("oversubscribed", 30.0)


@pytest.mark.parametrize(
    ("row", "right"),
    [
        (case(found("slow-compute", 12.0, 1)), (True, True, True)),
        (case(found("slow-compute", 13.0, 1)), (True, True, False)),
        (case(found("slow-compute", 10.0, 0)), (True, False, True)),
        (case(CROWD, found("slow-compute", 10.0, 1)), (False, False, False)),
        (case(CROWD, found("slow-compute", 10.0, 1), load=3), (True, True, True)),
        (case(CROWD, found("slow-compute", 10.0, 1), processors=2), (True, True, True)),
        (case(CROWD, load=3, kind="oversubscribed", rank=None, truth_ms=30.0), (True,) * 3),
        (case(), (False, False, False)),
    ],
)
def test_the_first_finding_that_no_load_makes_true_is_judged(row, right):
    assert is_right(row) == right


def test_what_is_called_sure_is_wrong_where_nothing_of_it_was_planted():
    assert is_true(case(CROWD, load=1), CROWD)
    assert not is_true(case(CROWD), CROWD)
    innocent = found("slow-input", 2.0, 0)
    told = summary([case(found("slow-compute", 9.0, 1), innocent), case(CROWD, load=1)], 0.02)
    assert "Load 0: 0 of 0 balanced launches were accused; of 2 findings" in told
    assert "confidence is high, 1 are of nothing that was planted" in told
    assert "Load 1: 0 of 0 balanced launches were accused; of 1 findings" in told


def test_plants_that_cannot_be_measured_and_launches_that_took_too_long_are_counted_apart():
    rows = [case(truth_ms=0.5), {"kind": "channels", "load": 0, "given_up": "60 s"}]
    told = summary(rows, 0.02)
    assert "Left out: 1 whose plant costs less than 5 % of a step" in told
    assert "Given up: 1 that took too long." in told
