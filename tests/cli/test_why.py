"""`hvdtune timeline why`, `diff` and `report`."""

import dataclasses
import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from hvdtune.cli.app import main
from hvdtune.timeline import write_chrome
from tests.kit.synthetic import Training


def call(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["timeline", *map(str, words)])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


@pytest.fixture
def slow(tmp_path):
    write_chrome(Training([10.0, 14.0]).trace(), tmp_path / "slow.json")
    return tmp_path / "slow.json"


@pytest.mark.parametrize("command", ["why", "why-slow"])
def test_the_finding_is_printed_with_its_cost_and_remedy(capsys, slow, command):
    code, out, err = call(capsys, command, slow)
    assert (code, err) == (0, "")
    assert "1. rank 1 computes longer, and the others wait for it (slow-compute)" in out
    assert "costs  4.00 ms per step" in out
    assert "do     " in out and "seen   " in out


def test_the_answer_is_one_json_object(capsys, slow):
    code, out, _ = call(capsys, "why", "--json", slow)
    answer = json.loads(out)
    assert code == 0
    assert answer["verdict"] == "found"
    assert answer["findings"][0]["ranks"] == [1]


def test_short_traces_are_compared_in_a_sentence_without_a_table(capsys, slow, tmp_path):
    write_chrome(Training([10.0, 10.0], steps=3).trace(), tmp_path / "short.json")
    code, out, _ = call(capsys, "diff", slow, tmp_path / "short.json")
    assert (code, len(out.splitlines())) == (5, 1)
    assert f"to compare: {tmp_path / 'short.json'} has 2; at least 10 are needed." in out
    code, out, _ = call(capsys, "diff", "--json", slow, tmp_path / "short.json")
    assert code == 5 and json.loads(out)["rows"] == []


@pytest.mark.parametrize("path", ["run", "run/trace.json.gz"])
def test_run_folders_and_compressed_traces_are_good(capsys, slow, tmp_path, path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "trace.json.gz").write_bytes(gzip.compress(slow.read_bytes()))
    code, out, _ = call(capsys, "why", tmp_path / path)
    assert code == 0 and "slow-compute" in out


@pytest.mark.parametrize(
    ("training", "answer", "exit_code"),
    [
        pytest.param(
            Training([10.0, 10.0], bucket_ms=0.1), "No bottleneck found in 5", 0, id="no-bottleneck"
        ),
        pytest.param(Training([10.0, 14.0], steps=3), "INCOMPLETE: ", 5, id="incomplete"),
        pytest.param(
            Training([17.0, 17.0], asleep_ms=[12.0, 12.0]), "Not explained: in 5", 6, id="asleep"
        ),
    ],
)
def test_no_bottleneck_and_incomplete_are_answers(capsys, tmp_path, training, answer, exit_code):
    write_chrome(training.trace(), tmp_path / "trace.json")
    code, out, _ = call(capsys, "why", tmp_path / "trace.json")
    assert code == exit_code
    assert out.startswith(answer) and "rank 1" not in out


def test_two_traces_are_compared(capsys, slow, tmp_path):
    write_chrome(Training([10.0, 10.0]).trace(), tmp_path / "fast.json")
    code, out, _ = call(capsys, "diff", slow, tmp_path / "fast.json")
    assert code == 0
    assert "shorter in the second" in out
    code, out, _ = call(capsys, "diff", "--json", slow, tmp_path / "fast.json")
    rows = json.loads(out)["rows"]
    assert rows[0]["quantity"] == "step" and rows[0]["differs"] is True


def test_a_report_is_written_beside_the_trace(capsys, slow):
    code, out, _ = call(capsys, "report", slow)
    page = slow.with_name("slow.html")
    assert (code, out.strip()) == (0, str(page))
    assert "slow-compute" in page.read_text()
    code, out, _ = call(capsys, "report", "--json", slow)
    assert json.loads(out)["metrics"]["stragglers"]["rows"][0]["rank"] == 1


@pytest.mark.parametrize(
    ("words", "second"),
    [
        (["why", "slow.json", "again.json"], "again.json"),
        (["why", "."], "again.json"),
        (["why", "slow.json", "slow.json"], "slow.json"),
        (["report", "slow.json", "again.json"], "again.json"),
        (["report", "."], "again.json"),
        (["report", "slow.json", "slow.json"], "slow.json"),
        (["diff", "slow.json", "."], "again.json"),
        (["merge", "slow.json", "again.json", "-o", "both.json"], "again.json"),
    ],
)
def test_a_rank_in_two_files_is_named_with_them(capsys, slow, monkeypatch, words, second):
    monkeypatch.chdir(slow.parent)
    Path("again.json").write_bytes(slow.read_bytes())
    code, out, err = call(capsys, *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "rank 0 is in two files: " in err
    assert "slow.json" in err and second in err and "1 more rank" in err
    assert not Path("both.json").exists()


def test_a_step_time_that_is_not_known_is_null(capsys, tmp_path):
    write_chrome(Training([10.0, 14.0], steps=3).trace(), tmp_path / "short.json")
    code, out, _ = call(capsys, "why", "--json", tmp_path / "short.json")
    document = json.loads(out)
    assert (code, document["verdict"]) == (5, "incomplete")
    assert document["step_ms"] is None and document["steps"] == 0


def test_a_rank_with_a_step_twice_makes_a_trace_incomplete(capsys, tmp_path):
    trace = Training([10.0, 14.0]).trace()
    twice = tmp_path / "twice.json"
    write_chrome(dataclasses.replace(trace, recorded=pd.concat([trace.events] * 2)), twice)
    code, out, err = call(capsys, "why", twice)
    assert (code, err) == (5, "")
    assert out.startswith("INCOMPLETE: rank 0 has step 0 twice")
    assert call(capsys, "report", twice)[0] == 0
    code, out, _ = call(capsys, "diff", twice, twice)
    assert code == 5 and out.startswith("Too few steps to compare: ")


def test_a_report_of_the_folder_one_stands_in_has_its_name(capsys, slow, monkeypatch):
    monkeypatch.chdir(slow.parent)
    code, out, _ = call(capsys, "report", ".")
    page = slow.parent.with_name(slow.parent.name + ".html")
    assert (code, out.strip()) == (0, str(page))
    assert page.exists()


@pytest.mark.parametrize(
    "words", [["slow.json", "-o", "slow.json"], [".", "-o", "slow.json"], ["slow.html"]]
)
def test_a_report_never_replaces_its_trace(capsys, slow, monkeypatch, words):
    monkeypatch.chdir(slow.parent)
    before = slow.read_bytes()
    Path("slow.html").write_bytes(before)
    code, out, err = call(capsys, "report", *words)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "would overwrite itself" in err
    assert slow.read_bytes() == Path("slow.html").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["why", "nowhere.json"], 2, "no such file"),
        (["why"], 2, "TRACE"),
        (["diff", "one.json"], 2, "B"),
        (["why", "empty"], 2, "holds no trace"),
        (["report", "slow.json", "-o", "nowhere/report.html"], 1, "cannot write the report"),
    ],
)
def test_mistakes_are_one_line(capsys, slow, monkeypatch, words, code, problem):
    monkeypatch.chdir(slow.parent)
    Path("empty").mkdir()
    ended, _, err = call(capsys, *words)
    assert ended == code
    assert problem in err
    assert len(err.splitlines()) == 1
