from pathlib import Path

import pytest

from hvdtune.errors import UsageError
from hvdtune.launcher.measured import Metric, MetricLines


@pytest.mark.parametrize(
    ("pattern", "line", "seconds"),
    [
        pytest.param(r"step_time: ([0-9.]+)", "epoch 3 step_time: 0.25 s", 0.25, id="time"),
        pytest.param(r"step_time: ([0-9.]+)", "loss: 0.25", None, id="another-line"),
        pytest.param(r"(?P<rate>[\d.]+) img/s", "  50.0 img/s", 0.02, id="rate"),
        (r"time: ([-0-9.]+)", "time: .", None),
        (r"time: ([-0-9.]+)", "time: 0", None),
        (r"time: ([-0-9.]+)", "time: -3", None),
    ],
)
def test_the_group_is_the_time_of_a_step_or_the_rate(pattern, line, seconds):
    assert Metric(pattern).step_s(line) == seconds


@pytest.mark.parametrize("pattern", ["step", "(a)(b)", "(unclosed"])
def test_a_pattern_that_cannot_be_is_refused(pattern):
    with pytest.raises(UsageError, match="--metric-regex"):
        Metric(pattern)


def test_lines_of_the_first_rank_to_write_one_count():
    lines = MetricLines(Metric(r"t=(\S+)"), Path("launch-0.log"))
    lines.write("stdout", b"[1]<stdout>:hello\n[1]<stdout>:t=0.5\n[0]<stdout>:t=9\n")
    lines.write("stderr", b"[1]<stderr>:t=0.25\n")
    assert lines.steps() == [(500_000_000,), (250_000_000,)]
    assert lines.steps() == []


def test_where_no_line_matches_the_file_to_look_into_is_named():
    lines = MetricLines(Metric(r"t=(\S+)"), Path("output/launch-0.log"))
    lines.write("stdout", b"[0]<stdout>:hello\n")
    assert lines.steps() == []
    assert lines.none_found.startswith(r"no line of the output matched --metric-regex t=(\S+) ")
    assert lines.none_found.endswith("; the output is in output/launch-0.log")
