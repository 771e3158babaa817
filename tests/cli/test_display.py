import io

import pytest
from rich.console import Console
from rich.live import Live

from hvdtune.cli.run import _print
from hvdtune.cli.terminal.display import LiveDisplay, PlainDisplay, headline, measurement
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.storage.in_use import InUse
from hvdtune.workflows.results import MeasuredRun

_DEFAULT = {"cycle_time_ms": 1.0, "chunk_bytes": 524288}
_SLOW = {"cycle_time_ms": 5.0, "chunk_bytes": 524288}


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (StudyProgress("start", seconds_left=480), "start, launch 0, 8m00s left"),
        (
            StudyProgress("search", trial=3, trials=40, launch=1, seconds_left=65),
            "search, trial 3/40, launch 1, 1m05s left",
        ),
    ],
)
def test_the_headline_says_where_the_study_stands(progress, text):
    assert headline(progress) == text


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (StudyProgress("search"), ""),
        (StudyProgress("search", setting=_DEFAULT), "default"),
        (
            StudyProgress("search", setting=_SLOW, gain_percent=-2.04, pairs=1),
            "cycle_time_ms=5  -2.0 % (1 pair)",
        ),
        (
            StudyProgress(
                "race",
                setting=_SLOW,
                gain_percent=3.21,
                plus_minus_percent=1.1,
                pairs=4,
                steps_per_s=52.13,
                best_gain_percent=4.0,
            ),
            "cycle_time_ms=5  +3.2 +- 1.1 % (4 pairs)  52.1 steps/s  best so far +4.0 %",
        ),
        (
            StudyProgress("search", setting=_SLOW, best_gain_percent=-7.5),
            "cycle_time_ms=5  best so far the default",
        ),
    ],
)
def test_the_reading_gives_gain_error_and_pairs(progress, text):
    assert "  ".join(measurement(progress, _DEFAULT)) == text


def test_plain_lines_come_per_trial_and_per_message(capfd):
    display = PlainDisplay(_DEFAULT)
    display.show(StudyProgress("search", trials=2, message="up to 2 trials"))
    for pairs in (1, 2, 3):
        display.show(
            StudyProgress("search", trials=2, setting=_SLOW, gain_percent=1.0, pairs=pairs)
        )
    ended = StudyProgress("search", 1, 2, _SLOW, gain_percent=1.0, pairs=3, best_gain_percent=1.0)
    display.show(ended)
    display.show(StudyProgress("search", trial=1, trials=2, message="crashed", lines=("boom",)))
    assert capfd.readouterr().err.splitlines() == [
        "hvdtune: search, trial 0/2, launch 0, 0s left: up to 2 trials",
        "hvdtune: search, trial 1/2, launch 0, 0s left: cycle_time_ms=5  +1.0 % (3 pairs)  "
        "best so far +1.0 %",
        "hvdtune: search, trial 1/2, launch 0, 0s left: crashed",
        "    boom",
    ]


def test_a_trial_of_which_nothing_was_measured_now_has_no_line(capfd):
    display = PlainDisplay(_DEFAULT)
    display.show(StudyProgress("search", trial=3, trials=6, message="up to 6 trials"))
    display.show(StudyProgress("search", trial=4, trials=6, best_gain_percent=2.0))
    assert capfd.readouterr().err.splitlines() == [
        "hvdtune: search, trial 3/6, launch 0, 0s left: up to 6 trials"
    ]


def test_a_terminal_shows_what_is_in_use_in_place_of_the_default():
    shown = io.StringIO()
    console = Console(file=shown, width=120)
    with Live(console=console, auto_refresh=False) as live:
        display = LiveDisplay(_DEFAULT, console, live)
        display.show(StudyProgress("search"))
        assert "in use" not in shown.getvalue()
        display.show(StudyProgress("search", in_use=InUse(_SLOW, 0.1823)))
    words = "in use: cycle_time_ms=5, +20.0 %, not yet proved; trials are compared with it"
    assert words in shown.getvalue()


@pytest.mark.parametrize(
    ("tail", "shown"),
    [
        (
            ("Traceback", "KeyError"),
            "last lines of rank 1 (launch 2):\n    Traceback\n    KeyError\n",
        ),
        ((), ""),
    ],
    ids=["of-the-rank-that-failed", "a-quiet-script"],
)
def test_the_last_lines_are_shown_with_their_rank(tail, shown, tmp_path, capsys):
    result = MeasuredRun(run_dir=tmp_path, launch=2, tail=tail, tail_rank=1)
    said = {"text": "too noisy to decide", "in_use": "in use: the default", "advice": "Keep it."}
    _print(result, said, as_json=False, tail=True)
    told = "verdict: too noisy to decide\nin use: the default\nKeep it.\n"
    assert capsys.readouterr().out.startswith(shown + told)
