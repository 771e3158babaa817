import collections
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.storage.study_store import read_study
from tests.kit.programs import environ
from tests.tuner import simulated_tuner


def run_tuner(run_dir: Path, kill_at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", simulated_tuner.__name__, str(run_dir), str(kill_at)],
        env=environ(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "kill_at",
    [
        pytest.param(100, id="calibrate", marks=pytest.mark.slow),
        pytest.param(300, id="search"),
        pytest.param(700, id="verify", marks=pytest.mark.slow),
    ],
)
def test_a_killed_study_goes_on_without_losing_a_pair(tmp_path: Path, kill_at: int) -> None:
    killed = run_tuner(tmp_path, kill_at)
    assert killed.returncode == -signal.SIGKILL
    before = read_pairs(tmp_path / "pairs.jsonl")
    assert not (tmp_path / "verdict.json").exists()

    resumed = run_tuner(tmp_path, 0)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert resumed.stdout == "improved\n"

    after = read_study(tmp_path)
    assert after.pairs[: len(before)] == before
    options = simulated_tuner.OPTIONS
    phases = collections.Counter(pair.phase for pair in after.pairs)
    assert phases["calibrate"] == options.pairs.calibration
    ended = [t for t in after.trials if t.state in ("complete", "pruned") and not t.is_duplicate]
    assert len(ended) == options.trials
    for trial in ended[1:]:
        same = [p for p in after.pairs if p.phase == "search" and p.setting == trial.setting]
        assert trial.pairs == len(same)
    assert max(p.launch for p in before) < after.pairs[len(before)].launch


@pytest.mark.slow
def test_a_finished_study_run_again_measures_nothing_twice(tmp_path: Path) -> None:
    first = run_tuner(tmp_path, 0)
    pairs = read_pairs(tmp_path / "pairs.jsonl")
    again = run_tuner(tmp_path, 0)

    assert first.stdout == again.stdout == "improved\n"
    assert read_pairs(tmp_path / "pairs.jsonl") == pairs
