"""Later studies by restarting begin with what earlier ones have ended with, in virtual time."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import tune
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.restart_run import ByRestarting
from hvdtune.tuner.results.earlier_studies import Past, past_of
from hvdtune.tuner.results.fingerprint import parse_fingerprint
from hvdtune.tuner.space.tune_options import BY_RESTARTING
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.study import Study
from tests.kit.simulated_command import DEFAULT, KNOBS, Script, SimulatedMachine

FINGERPRINT = {"world": 2, "cores": 8, "mode": "restart", "adapter": "command"}
MEASURED = {"mode": "restart", "adapter": "command", "launch_time": 2.0}
GAIN = 0.1


def views_win(setting: Setting) -> float:
    return GAIN if setting["as_view"] else 0.0


class Studies:
    """Of one command, each in a folder of its own below `parent`."""

    def __init__(self, parent: Path) -> None:
        self.parent = parent
        self.messages: list[str] = []

    def past(self, run: int, **measured: Any) -> Past:
        here = parse_fingerprint(FINGERPRINT)
        return past_of(run_json(**measured), here, [self.parent], self.parent / f"run-{run}")

    def run(self, number: int, script: Script) -> Verdict:
        folder = self.parent / f"run-{number}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(run_json()))
        machine = SimulatedMachine(script)
        by, known = ByRestarting(machine.start), self.past(number).known
        study = Study(by, KNOBS, DEFAULT, fingerprint=FINGERPRINT, known=known)
        names = tuple(knob.name for knob in KNOBS)
        options = replace(
            BY_RESTARTING,
            trials=8,
            time_budget_s=5000,
            blocks=replace(BY_RESTARTING.blocks, seconds=2.0),
            tunable=names,
        )
        self.messages.clear()
        return tune(study, folder, options, self._note, machine.clock).verdict

    def phases(self, number: int) -> set[str]:
        return {pair.phase for pair in read_pairs(self.parent / f"run-{number}" / "pairs.jsonl")}

    def _note(self, progress: StudyProgress) -> None:
        self.messages.append(progress.message)


def run_json(**measured: Any) -> dict[str, Any]:
    study = {"default": dict(DEFAULT), **MEASURED, **measured}
    return {"command": ["train.py"], "hosts": [], "study": study, "variables": {}}


def test_a_later_study_measures_what_is_known_without_a_search(tmp_path: Path) -> None:
    studies = Studies(tmp_path)
    first = studies.run(0, Script(gain=views_win))
    assert first.improved
    assert "search" in studies.phases(0)
    known = studies.past(1).known
    assert known is not None and known.setting == first.setting
    assert len(known.launches) == first.pairs

    later = studies.run(1, Script(seed=1, gain=views_win))
    assert studies.phases(1) == {"calibrate", "verify"}
    assert later.improved and later.setting == first.setting
    assert later.in_use.startswith("to use: ")
    assert later.evidence is not None and later.evidence.earlier == first.pairs
    assert later.pairs == BY_RESTARTING.proof.min_pairs
    low, high = later.evidence.ci_percent or (math.nan, math.nan)
    assert low < 100 * math.expm1(GAIN) < high
    assert "in launches of this study, 12 pairs" in later.text


def test_what_has_become_slower_is_searched_anew(tmp_path: Path) -> None:
    studies = Studies(tmp_path)
    assert studies.run(0, Script(gain=views_win)).improved
    verdict = studies.run(1, Script(seed=1, gain=lambda setting: -3 * views_win(setting)))
    assert "back to the default" in "\n".join(studies.messages)
    assert "search" in studies.phases(1)
    assert not verdict.setting["as_view"]


def test_launches_that_were_measured_in_another_way_are_those_of_another_job(
    tmp_path: Path,
) -> None:
    studies = Studies(tmp_path)
    studies.run(0, Script(gain=views_win))
    longer = studies.past(1, launch_time=9.0)
    assert longer.known is None
    assert "it measured its launches differently" in longer.refused
    assert studies.past(1, mode=None, adapter="hvdtune") == Past()  # a study in a live run
