from pathlib import Path

import pytest

from hvdtune.errors import UsageError
from hvdtune.launcher.measured import Metric, MetricLines


def test_the_group_is_the_time_of_a_step():
    metric = Metric(r"step_time: ([0-9.]+)")
    assert metric.step_s("epoch 3 step_time: 0.25 s") == 0.25
    assert metric.step_s("loss: 0.25") is None


def test_a_group_named_rate_is_the_more_the_better():
    assert Metric(r"(?P<rate>[\d.]+) img/s").step_s("  50.0 img/s") == 0.02


@pytest.mark.parametrize("text", ["time: .", "time: 0", "time: -3"])
def test_what_is_no_time_is_no_step(text):
    assert Metric(r"time: ([-0-9.]+)").step_s(text) is None


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
