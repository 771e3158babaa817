import click
import pytest

from hvdtune.cli.options import parse_duration
from hvdtune.cli.terminal.display import format_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("8m", 480),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1m5s", 65),
        ("0.5m", 30),
    ],
)
def test_times_as_people_write_them(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "m", "-5", "8x", "5s8m", "eight", "1e3", "1h60m", "1m60s"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(click.BadParameter, match="is not a time such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-3, "0s"), (59.4, "59s"), (65, "1m05s"), (3599, "59m59s"), (3720, "1h02m")],
)
def test_times_for_people(seconds, text):
    assert format_duration(seconds) == text
