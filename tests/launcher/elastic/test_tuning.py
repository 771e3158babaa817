"""`hvdtune run --trials` in an elastic job: real ranks, a real tuner."""

import csv
import json
import re
from pathlib import Path

import pytest

from hvdtune.timeline import open_trace
from tests.kit.programs import run_cli

TRAINING = Path(__file__).with_name("tuned_training.py")
SEARCH = "--trials 2 --knobs cycle_time_ms -o run --json"


def test_a_rank_killed_during_a_study_leaves_a_verdict_for_the_others(tmp_path):
    options = f"-np 3 --min-np 1 -H localhost:3 {SEARCH} --timeline-filename t.json".split()
    words = (TRAINING, 1, "run/studies/localhost-3", 3)
    done = run_cli("run", *options, *words, folder=tmp_path, codes=(0, 3, 4))
    verdict = json.loads(done.stdout)
    assert verdict["membership"] == "2 ranks (localhost:2)"
    assert verdict["text"].startswith("with 2 ranks (localhost:2): ")
    assert verdict["script_exit_code"] == 0
    assert "training continues with 2 ranks (localhost:2)" in done.stderr
    log = (tmp_path / "run" / "output" / "launch-0.log").read_text()
    ends = re.findall(r"ended with 2: every step once: \[\(3, \d+\), \(2, \d+\)\]", log)
    assert len(ends) == 2, log
    studies = tmp_path / "run" / "studies"
    assert not (studies / "localhost-3" / "verdict.json").exists()
    assert len((studies / "localhost-2" / "pairs.jsonl").read_text().splitlines()) > 4
    events = open_trace(tmp_path / "t.json").events
    assert set(events[events["kind"] == "ALLREDUCE"]["rank"]) == {0, 1, 2}
    assert "trace: t.json" in done.stderr


@pytest.mark.slow
def test_autotune_follows_the_ranks_and_leaves_the_output_alone(tmp_path):
    table = "--autotune-bayes-opt-max-samples 2 --autotune-log-file log.csv"
    options = f"-np 3 --min-np 1 -H localhost:3 --autotune {table} --knobs cycle_time_ms -o run"
    words = (TRAINING, 1, "run/studies/localhost-3", 3)
    done = run_cli("run", *options.split(), *words, folder=tmp_path)
    assert len(re.findall(r"ended with 2: every step once", done.stdout)) == 2
    verdict = json.loads((tmp_path / "run/studies/localhost-2/verdict.json").read_text())
    assert f"autotune: {verdict['text']}" in done.stderr
    assert "generation 1 has 2 ranks on 1 host" in done.stderr
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert len(rows) >= 2
    assert {*open_trace(tmp_path / "run/trace.json").events["rank"]} == {0, 1, 2}


def test_a_job_that_fails_in_its_study_says_so(tmp_path):
    options = f"-np 2 --min-np 2 -H localhost:2 {SEARCH}".split()
    words = (TRAINING, 1, "run/studies/localhost-2", 2)
    done = run_cli("run", *options, *words, folder=tmp_path, codes=(137,))
    assert "1 rank of at least 2 is left" in done.stderr
    assert "Traceback" not in done.stderr
