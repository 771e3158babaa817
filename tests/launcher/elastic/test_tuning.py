"""`hvdtune run --trials` in an elastic job: real ranks, a real tuner."""

import json
import re
from pathlib import Path

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
    assert "the job goes on with 2 ranks (localhost:2)" in done.stderr
    log = (tmp_path / "run" / "output" / "launch-0.log").read_text()
    ends = re.findall(r"ended with 2: every step once: \[\(3, \d+\), \(2, \d+\)\]", log)
    assert len(ends) == 2, log
    studies = tmp_path / "run" / "studies"
    assert not (studies / "localhost-3" / "verdict.json").exists()
    assert len((studies / "localhost-2" / "pairs.jsonl").read_text().splitlines()) > 4
    events = open_trace(tmp_path / "t.json").events
    assert set(events[events["kind"] == "ALLREDUCE"]["rank"]) == {0, 1, 2}
    assert "trace: t.json" in done.stderr


def test_a_job_that_fails_in_its_study_says_so(tmp_path):
    options = f"-np 2 --min-np 2 -H localhost:2 {SEARCH}".split()
    words = (TRAINING, 1, "run/studies/localhost-2", 2)
    done = run_cli("run", *options, *words, folder=tmp_path, codes=(137,))
    assert "1 rank of at least 2 is left" in done.stderr
    assert "Traceback" not in done.stderr
