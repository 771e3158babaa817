"""Studies and comparisons of knobs that a script declares."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.core.config.script_knobs import declaration
from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.comparison import compare, parse_variant
from hvdtune.tuner.controller import TuneResult, tune
from hvdtune.tuner.results.profile import read_profile, read_setting_file
from hvdtune.tuner.space.search_space import KnobRange
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage import fsck
from hvdtune.tuner.storage.study_list import StudyPlace
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

ACCUMULATE = declaration("accumulate", (1, 2, 4), changes_results=False)
FUSED = declaration("fused", (False, True), changes_results=False)
LOSSY = declaration("bits", (32, 16), changes_results=True)
QUIET: dict[str, Any] = {"step_noise": 0.03, "slow_noise": 0.01}


def gain(setting: Setting) -> float:
    by_accumulating = {4: 0.15, 2: 0.05}.get(setting.get("script.accumulate"), 0.0)
    return by_accumulating + (0.3 if setting.get("script.bits") == 16 else 0.0)


class Bed:
    """Studies and comparisons of one script in one folder."""

    def __init__(self, run_dir: Path, **script: Any) -> None:
        self.run_dir = run_dir
        self.cluster = SimulatedCluster(Script(**{**QUIET, "gain": gain, **script}))
        self.said: list[str] = []

    def study(self, **default: Any) -> Study:
        return Study(self.cluster.start, KNOBS, {**DEFAULT, **default})

    def tune(self, **options: Any) -> TuneResult:
        chosen = TuneOptions(**{"trials": 8, **options})
        clock = self.cluster.clock
        return tune(
            self.study(), self.run_dir, chosen, lambda each: self.said.append(each.message), clock
        )

    def compare(self, variant: str, **default: Any) -> Verdict:
        options = TuneOptions(time_budget_s=1e9)
        second = parse_variant(variant)
        clock = self.cluster.clock
        return compare(self.study(**default), second, self.run_dir, options, clock=clock)


def test_a_knob_of_the_script_is_searched_proved_and_left_in_force(tmp_path: Path) -> None:
    bed = Bed(tmp_path, declares={2: ACCUMULATE, 3: FUSED})
    verdict = bed.tune(trials=16).verdict

    assert verdict.improved
    assert verdict.setting["script.accumulate"] == 4
    assert bed.cluster.jobs[-1].proposed[-1] == verdict.setting
    profile = read_profile(tmp_path / "profile.yaml", KNOBS)
    assert (profile.setting["script.accumulate"], profile.default["script.accumulate"]) == (4, 1)
    assert read_setting_file(tmp_path / "profile.yaml", KNOBS) == verdict.setting
    assert "| script.accumulate | 1 | **4** |" in (tmp_path / "report.md").read_text()
    view = read_study(tmp_path)
    assert view.trials[0].setting == {**DEFAULT, "script.accumulate": 1, "script.fused": False}
    assert {trial.setting["script.fused"] for trial in view.trials} == {False, True}
    assert fsck.check(StudyPlace(str(tmp_path), folder=tmp_path), KNOBS) == []


def test_a_study_of_scripts_knobs_is_made_anew_from_its_pairs(tmp_path: Path) -> None:
    bed = Bed(tmp_path, declares={0: ACCUMULATE})
    bed.tune(trials=4)
    before = [trial.setting for trial in read_study(tmp_path).trials]
    (tmp_path / "study.db").write_bytes(b"no database")
    place = StudyPlace(str(tmp_path), folder=tmp_path)
    for fault in fsck.check(place, KNOBS):
        if fault.mend is not None:
            fault.mend()
    assert [trial.setting for trial in read_study(tmp_path).trials] == before


@pytest.mark.parametrize(
    ("declared", "options", "searched"),
    [
        ([ACCUMULATE, FUSED], {}, {"script.accumulate", "script.fused", "cycle_time_ms"}),
        ([ACCUMULATE, FUSED], {"tunable": ("script.fused",)}, {"script.fused"}),
        ([ACCUMULATE], {"fixed": ("script.accumulate",)}, {"cycle_time_ms"}),
        ([LOSSY], {}, {"cycle_time_ms"}),
        ([LOSSY], {"tunable": ("script.bits",)}, {"script.bits"}),
        ([LOSSY], {"ranges": {"script.bits": KnobRange(choices=(32, 16))}},
         {"script.bits", "cycle_time_ms"}),
        ([ACCUMULATE], {"tunable": ("script.accumulate",),
                        "ranges": {"script.accumulate": KnobRange(choices=(2,))}},
         {"script.accumulate"}),
    ],
    ids=["all", "named", "fixed", "lossy", "lossy-named", "lossy-in-space-file", "range"],
)  # fmt: skip
def test_what_is_searched(
    tmp_path: Path, declared: list[str], options: dict[str, Any], searched: set[str]
) -> None:
    bed = Bed(tmp_path, declares=dict(enumerate(declared)))
    bed.tune(trials=10, **options)
    trials = [trial.setting for trial in read_study(tmp_path).trials]
    changed = {name for each in trials for name, value in each.items() if value != trials[0][name]}
    tried = changed - {"fusion_threshold_bytes", "chunk_bytes", "cache_enabled"}
    assert tried == searched
    if "ranges" in options and "script.accumulate" in searched:
        assert {each["script.accumulate"] for each in trials} == {1, 2}


@pytest.mark.parametrize(
    ("declared", "options", "error"),
    [
        ([], {"tunable": ("script.fused",)}, "unknown knob script.fused; the knobs are fusion"),
        ([FUSED], {"tunable": ("script.used",)}, "unknown knob script.used; .* script.fused"),
        (
            [FUSED],
            {"ranges": {"script.fused": KnobRange(choices=(3,))}},
            "not one of the script's values",
        ),
    ],
)
def test_what_the_script_does_not_have_is_refused(
    tmp_path: Path, declared: list[str], options: dict[str, Any], error: str
) -> None:
    bed = Bed(tmp_path, declares=dict(enumerate(declared)), steps_per_launch=400)
    with pytest.raises(UsageError, match=error):
        bed.tune(**options)


def test_a_knob_that_is_declared_late_keeps_its_default(tmp_path: Path) -> None:
    bed = Bed(tmp_path, declares={0: FUSED, 90: ACCUMULATE})
    verdict = bed.tune().verdict
    assert "script.accumulate" not in verdict.setting
    told = [
        text
        for text in bed.said
        if "knob script.accumulate was declared after the first step" in text
    ]
    assert len(told) == 1


def test_a_study_goes_on_with_the_same_knobs_of_the_script_only(tmp_path: Path) -> None:
    Bed(tmp_path, declares={0: ACCUMULATE}).tune(trials=3)
    assert Bed(tmp_path, declares={0: ACCUMULATE}).tune(trials=3).verdict.pairs >= 0
    with pytest.raises(StudyError, match="script knobs differ"):
        Bed(tmp_path, declares={0: FUSED}, steps_per_launch=400).tune(trials=3)


def test_a_script_without_knobs_has_the_study_it_had(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.tune(trials=3)
    assert read_study(tmp_path).trials[0].setting == DEFAULT


@pytest.mark.parametrize(
    ("percent", "in_use", "sentence", "code"),
    [
        (
            6,
            False,
            r"training is \d\.\d % \[.*\] faster with fused than without fused \(95 % CI",
            0,
        ),
        (6, True, r"training is \d\.\d % \[.*\] faster with fused than without fused \(95 % CI", 3),
        (-6, False, r"training is \d\.\d % \[.*\] faster without fused than with fused", 3),
        (
            0,
            False,
            r"no significant difference: training with fused is .* (slow|fast)er",
            3,
        ),
    ],
    ids=["faster", "slower-to-leave", "slower", "equal"],
)
def test_a_variant_is_compared_within_one_launch(
    tmp_path: Path, percent: float, in_use: bool, sentence: str, code: int
) -> None:
    def by_variant(setting: Setting) -> float:
        return math.log1p(percent / 100) if setting.get("script.fused") else 0.0

    bed = Bed(tmp_path, gain=by_variant, declares={1: ACCUMULATE, 2: FUSED})
    verdict = bed.compare("fused", **({"script.fused": True} if in_use else {}))
    assert verdict.exit_code == code
    assert (len(bed.cluster.jobs), verdict.launches) == (1, 1)
    assert bed.cluster.jobs[0].terminated
    assert re.search(sentence, verdict.text), verdict.text
    assert verdict.text in (tmp_path / "report.md").read_text()


def test_a_value_of_a_knob_is_compared(tmp_path: Path) -> None:
    bed = Bed(tmp_path, declares={1: ACCUMULATE})
    text = bed.compare("accumulate=2").text
    assert "faster with accumulate=2 than with accumulate=1" in text
    report = (tmp_path / "report.md").read_text()
    assert "| script.accumulate | 1 | **2** |" in report


@pytest.mark.parametrize(
    ("variant", "declared", "error"),
    [
        ("fused", [], "called neither hvd.variant nor hvd.knob"),
        ("fast", [FUSED, ACCUMULATE], "no knob fast; it has fused: False, True; accumulate: 1, 2"),
        ("accumulate", [ACCUMULATE], "has the values 1, 2, 4: name the one to compare with 1"),
        (
            "accumulate=8",
            [ACCUMULATE],
            "script.accumulate = 8 is not one of the script's values: 1, 2, 4",
        ),
        ("accumulate=1", [ACCUMULATE], "accumulate = 1 is the value that the script uses already"),
        ("a b", [], "is not a valid name of a knob"),
    ],
)
def test_a_variant_that_is_not_there_is_refused(
    tmp_path: Path, variant: str, declared: list[str], error: str
) -> None:
    bed = Bed(tmp_path, declares=dict(enumerate(declared)))
    with pytest.raises(UsageError, match=error):
        bed.compare(variant)
    assert all(job.terminated for job in bed.cluster.jobs)
