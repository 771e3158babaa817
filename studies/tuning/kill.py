"""Kills a tuner at random instants and looks at what its study has lost.

    python -m studies.tuning.kill                   # 50 kills over 5 studies, about 6 minutes
    python -m studies.tuning.kill --kills 4 --studies 1

A study tunes the fusion threshold of a real job whose default sends each of a thousand tensors
alone, so its verdict is known. Its tuner is killed with SIGKILL at a random instant, a new one
goes on in the same folder, and so on, until one is let live to the end. Lost is every pair that a
killed tuner had acknowledged and the next one does not know. Resumed is a study whose pairs and
trials have been read back: timed within the new process, and from its start, the interpreter and
its imports included.
"""

from __future__ import annotations

import argparse
import functools
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hvdtune.core.config.knobs import default_setting, load_knobs
from hvdtune.tuner.controller import tune
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.space.tune_options import BlockOptions, PairOptions, ProofOptions, TuneOptions
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.storage.study_store import PAIRS_FILE, STUDY_FILE, read_study
from hvdtune.tuner.study import Study
from studies.tuning.recordings.jobs import starter

SCENARIO: Final = "many-small"
TRIALS: Final = 6
_LONGEST_LIFE_S: Final = 12.0
_RESUME_LIMIT_S: Final = 2.0


@dataclass
class Tally:
    """What happened over all studies."""

    kills: int = 0
    lost: int = 0
    pairs: int = 0
    verdicts: list[str] = field(default_factory=list)
    resumed_s: list[float] = field(default_factory=list)
    restarted_s: list[float] = field(default_factory=list)

    def line(self) -> str:
        return (
            f"{self.kills} kills in {len(self.verdicts)} studies: {self.lost} of {self.pairs} "
            f"acknowledged pairs lost; verdicts {', '.join(self.verdicts)}; read back in "
            f"{_spread(self.resumed_s)}, from the process's start {_spread(self.restarted_s)}"
        )

    def faults(self) -> list[str]:
        """The problems found."""
        found = [f"{self.lost} pairs lost"] if self.lost else []
        if set(self.verdicts) != {"improved"}:
            found.append(f"verdicts {self.verdicts}")
        slow = [seconds for seconds in self.restarted_s if seconds > _RESUME_LIMIT_S]
        if slow:
            found.append(f"{len(slow)} resumptions took longer than {_RESUME_LIMIT_S:g} s")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--studies", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--life", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.life is not None:
        live(arguments.life)
        return
    tally = Tally()
    for number in range(arguments.studies):
        with tempfile.TemporaryDirectory() as folder:
            share = range(number, arguments.kills, arguments.studies)
            lives = random.Random(f"{arguments.seed} {number}")
            one_study(Path(folder), [lives.uniform(0.5, _LONGEST_LIFE_S) for _ in share], tally)
        print(tally.line(), flush=True)
    if faults := tally.faults():
        raise SystemExit("missed: " + "; ".join(faults))


def one_study(folder: Path, lives_s: Sequence[float], tally: Tally) -> None:
    """Lets a tuner of this study live for so long, then the next; the last one to its end."""
    acknowledged = 0
    for life_s in lives_s:
        last = run_tuner(folder, life_s, tally)
        if last is None:
            # It was done before the blow: what is left to kill is a study that is finished.
            continue
        acknowledged = max(acknowledged, last)
        kept = len(read_pairs(folder / PAIRS_FILE))
        if kept:
            read_study(folder)
        tally.kills += 1
        tally.lost += max(0, acknowledged - kept)
    run_tuner(folder, None, tally)
    study = read_study(folder)
    tally.pairs += len(study.pairs)
    assert study.verdict is not None
    tally.verdicts.append(str(study.verdict["kind"]))


def run_tuner(folder: Path, life_s: float | None, tally: Tally) -> int | None:
    """One tuner's life. How many pairs it knew of when it was killed, None if it came to its end.

    Raises RuntimeError when it fails by itself.
    """
    began = time.monotonic()
    command = [sys.executable, "-m", "studies.tuning.kill", "--life", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tuner:
        assert tuner.stdout is not None
        known = 0
        resumes = (folder / STUDY_FILE).exists()
        killer = threading.Timer(life_s or 0.0, tuner.kill)
        if life_s is not None:
            killer.start()
        for line in tuner.stdout:
            word, _, rest = line.partition(" ")
            if word == "resumed":
                known = int(rest.split()[0])
                if resumes:
                    tally.resumed_s.append(float(rest.split()[1]))
                    tally.restarted_s.append(time.monotonic() - began)
                resumes = False
            elif word == "pair":
                known = int(rest)
        code = tuner.wait()
        killer.cancel()
    if code == -signal.SIGKILL:
        return known
    if code != 0:
        raise RuntimeError(f"the tuner of {folder} failed with exit code {code}")
    return None


def live(folder: Path) -> None:
    """A tuner: works on the study in the folder and says on stdout what it has on disk."""
    began = time.monotonic()
    knobs = load_knobs()
    default = {**default_setting(), "fusion_threshold_bytes": 0}
    # Short: what is tried is that it can be killed anywhere.
    options = TuneOptions(
        trials=TRIALS,
        time_budget_s=900.0,
        seed=1,
        tunable=("fusion_threshold_bytes",),
        pairs=PairOptions(calibration=5, max_per_trial=4, race=2),
        proof=ProofOptions(min_pairs=12, max_pairs=12, max_launches=3),
        blocks=BlockOptions(seconds=0.1),
    )
    log = folder / PAIRS_FILE

    def tell(progress: StudyProgress) -> None:
        if progress.phase == "start":
            print(f"resumed {len(read_pairs(log))} {time.monotonic() - began:.3f}", flush=True)
        elif progress.pairs:
            print(f"pair {_lines(log)}", flush=True)

    with starter(SCENARIO) as jobs:
        study = Study(functools.partial(jobs.start, default), knobs, default)
        result = tune(study, folder, options, tell)
        if result.job is not None:
            result.job.terminate()


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s (longest {max(seconds):.2f} s)"


if __name__ == "__main__":
    main()
