"""The commands of docs/timeline-recording.md work, and it has what the code has."""

import json
import re

import pytest

from hvdtune.timeline import read
from tests.kit import scripts
from tests.kit.pages import ROOT, Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/timeline-recording.md")


def run(command, folder, script):
    (folder / "train.py").write_text(script)
    run_cli(*words_of(command), folder=folder)


def steps_in(path):
    events = read(path).events
    steps = events[events["kind"] == "STEP"]
    of_rank = [sorted(own["seq"]) for _, own in steps.groupby("rank")]
    assert len(of_rank) == 2 and of_rank[0] == of_rank[1]
    return of_rank[0]


COMMANDS = PAGE.commands()


@pytest.mark.parametrize("command", COMMANDS[:3])
def test_a_trace_has_the_steps_that_the_command_names(command, tmp_path):
    run(command, tmp_path, scripts.MEET.format(steps=200))  # the last one has no end
    name = "trace.json.gz" if ".gz" in command else "trace.json"
    wanted = {"100:120": range(100, 120), "::50": range(0, 199, 50)}
    steps = next((steps for text, steps in wanted.items() if text in command), range(199))
    assert steps_in(tmp_path / name) == list(steps)


@pytest.mark.slow
def test_recording_stops_at_the_size_of_the_page(tmp_path):
    assert "--timeline-max-mb 1 --timeline-when-full stop" in COMMANDS[3]
    run(COMMANDS[3], tmp_path, PAGE.block("script"))
    assert len(steps_in(tmp_path / "trace.json")) > 0


def test_horovods_format_is_an_array_of_its_events(tmp_path):
    run(COMMANDS[4], tmp_path, scripts.REDUCE.format(steps=20))
    events = json.loads((tmp_path / "trace.json").read_text())
    names = {event.get("name") for event in events}
    assert names >= {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "GLOO_ALLREDUCE", "QUEUE", "0", "1"}


SOURCE = (ROOT / "csrc" / "wire" / "message.cc").read_text()
TABLE = re.search(r"kCutReasonCount> kNames = \{(.*?)\}", SOURCE, re.DOTALL)[1]
REASONS = re.findall(r'"(.*?)"', TABLE)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_the_core_is_explained(reason):
    assert len(REASONS) == 7
    assert f"| {reason} |" in PAGE.text


@pytest.mark.parametrize(
    ("source", "constant", "said"),
    [
        ("timeline/recording.cc", "kDrainEveryMs = 25", "every 25 ms"),
        ("timeline/recording.h", "timeout = std::chrono::seconds(5)", "by 5 s at most"),
    ],
)
def test_the_times_are_those_of_the_core(source, constant, said):
    assert constant in (ROOT / "csrc" / source).read_text()
    assert said in PAGE.text
