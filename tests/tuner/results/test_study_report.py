from collections.abc import Callable
from dataclasses import replace

import pytest

from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.calibration import Calibration
from hvdtune.tuner.results.study_report import render_comparison, render_floor, render_report
from hvdtune.tuner.stats.estimates import Noise
from hvdtune.tuner.stats.noise_floor import judge_noise_floor
from hvdtune.tuner.stats.verdict import Verdict, judge, nothing_verified
from hvdtune.tuner.storage.pair_log import Pair, by_launch, verified
from hvdtune.tuner.storage.trial import StudyView, TrialView
from tests.kit.simulated_job import DEFAULT

B = {**DEFAULT, "cycle_time_ms": 0.2}
SHAPE = BlockShape(steps=25, settle_steps=5, step_s=0.01)
CALIBRATION = Calibration(SHAPE, Noise(0.01, 4), Noise(0.01, 4))


def pairs_with_some_set_aside(setting) -> list[Pair]:
    """Two good ones and one set aside in each of the launches 2 and 5."""
    good = Pair(2, "verify", 1, setting, DEFAULT, 0.05, 9.5, 10.0, 96, "ABBA", 0.0)
    odd = replace(good, log_ratio=0.9, set_aside="the machine was busy")
    found = []
    for launch, letters in ((2, "A"), (5, "B")):
        of_launch = [replace(good, log_ratio=0.05), replace(good, log_ratio=0.06)]
        of_launch.append(replace(odd, at_fault=letters))
        found += [replace(pair, launch=launch) for pair in of_launch]
    return found


def launch_rows(report: str) -> list[list[str]]:
    _, _, table = report.partition("95 % CI within the launch |\n|---|---|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")][:3] for row in rows]


@pytest.mark.parametrize(
    "render",
    [
        lambda verdict, pairs: render_report(verdict, DEFAULT, CALIBRATION, [], pairs),
        lambda verdict, pairs: render_comparison(verdict, DEFAULT, CALIBRATION, pairs),
    ],
    ids=["report", "comparison"],
)
def test_the_verification_of_a_report_has_the_pairs_of_its_verdict(
    render: Callable[[Verdict, list[Pair]], str],
) -> None:
    pairs = pairs_with_some_set_aside(B)
    verdict = judge(B, DEFAULT, list(by_launch(verified(pairs)).values()), 0.01)

    assert verdict.pairs == 4
    assert launch_rows(render(verdict, pairs)) == [["2", "2", "+5.7"], ["5", "2", "+5.7"]]


def test_the_launches_of_a_floor_have_the_pairs_of_its_text() -> None:
    pairs = pairs_with_some_set_aside(DEFAULT)
    floor = judge_noise_floor([[0.05, 0.06], [0.05, 0.06]], 1.0, 120)

    assert floor.pairs == 4
    assert [row[:2] for row in launch_rows(render_floor(floor, SHAPE, pairs))] == [
        ["2", "2"],
        ["5", "2"],
    ]


@pytest.mark.parametrize(
    ("log_ratios", "interval"),
    [
        ((0.05,), "too few pairs"),
        ((-7.0, 7.0), "too few pairs"),
        ((0.05, 0.05, 0.05), "[5.1, 5.1]"),
    ],
    ids=["one", "two", "three"],
)
def test_a_launch_of_few_pairs_has_no_interval(log_ratios, interval) -> None:
    pair = pairs_with_some_set_aside(DEFAULT)[0]
    pairs = [replace(pair, log_ratio=each) for each in log_ratios]
    floor = judge_noise_floor([[0.05, 0.06], [0.05, 0.06]], 1.0, 120)

    (row,) = [row for row in render_floor(floor, SHAPE, pairs).splitlines() if row[:4] == "| 2 "]
    assert row.endswith(f"| {interval} |")


def test_only_the_setting_that_was_verified_last_is_shown_and_no_other_tuners_pairs() -> None:
    other = replace(pairs_with_some_set_aside(DEFAULT)[0], launch=1)
    theirs = replace(other, setting=B, by="another")
    assert verified([other, *pairs_with_some_set_aside(B), theirs])[0].launch == 2
    assert verified([theirs]) == []


def test_a_report_says_which_trials_are_not_in_its_table() -> None:
    first = TrialView(0, "complete", DEFAULT, 0.1, 0.2, 4, "", False, None, None)
    again = replace(first, number=1, is_duplicate=True)
    other = replace(first, number=2, setting=B)
    verdict = nothing_verified(DEFAULT, 0.01, 20, "the default is kept")
    report = render_report(verdict, DEFAULT, CALIBRATION, [first, again, other], [])
    assert "had been measured before: trial 1." in report
    assert "\n| 1 |" not in report and "\n| 2 |" in report
    assert "Not shown" not in render_report(verdict, DEFAULT, CALIBRATION, [first], [])
    view = StudyView((first, again, other), (), None, DEFAULT, None)
    assert view.trials_text == (
        "3 trials (3 complete): 1 of the default, 1 of other settings, 1 of a setting or fusion "
        "plan measured before"
    )
