import contextlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
from hvdtune.tuner.comparison import compare, measure_noise_floor
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.results.profile import read_profile
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.noise_floor import NoiseFloor
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster, no_launch_gain
from tests.tuner.verdict_rates import launch_noise

LaunchGain = Callable[[Setting, random.Random], float]

B = {**DEFAULT, "cycle_time_ms": 0.2}
QUIET = {"step_noise": 0.03, "slow_noise": 0.01}


def five_percent_with_b(setting: Setting) -> float:
    return math.log1p(0.05) if setting == B else 0.0


def is_b(setting: Setting) -> bool:
    return setting == B


class Bed:
    def __init__(self, run_dir: Path, script: Script) -> None:
        self.run_dir = run_dir
        self.cluster = SimulatedCluster(script)
        self.study = Study(self.cluster.start, KNOBS, DEFAULT, fingerprint={"transport": "auto"})

    def compare(self, b: Setting = B, interrupt_after: int = 0, **options: Any) -> Verdict:
        pairs = 0

        def tell(progress: StudyProgress) -> None:
            nonlocal pairs
            pairs += progress.phase == "verify" and progress.pairs > 0
            if pairs == interrupt_after:
                raise KeyboardInterrupt

        chosen = TuneOptions(time_budget_s=1e9, **options)
        return compare(
            self.study,
            b,
            self.run_dir,
            chosen,
            tell if interrupt_after else None,
            self.cluster.clock,
        )

    def floor(self) -> NoiseFloor:
        options = TuneOptions(time_budget_s=1e9)
        return measure_noise_floor(self.study, self.run_dir, options, clock=self.cluster.clock)


def test_a_faster_setting_is_proved_in_at_least_three_launches(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=five_percent_with_b, **QUIET))
    verdict = bed.compare()

    assert (verdict.kind, verdict.exit_code) == ("improved", 0)
    assert verdict.launches >= 3
    assert verdict.ci_percent is not None
    assert verdict.ci_percent[0] < 5 < verdict.ci_percent[1]
    assert all(job.terminated for job in bed.cluster.jobs)


def test_a_comparison_leaves_its_files(tmp_path: Path) -> None:
    verdict = Bed(tmp_path, Script(gain=five_percent_with_b, **QUIET)).compare()

    assert json.loads((tmp_path / "verdict.json").read_text())["text"] == verdict.text
    assert verdict.text in (tmp_path / "report.md").read_text()
    profile = read_profile(tmp_path / "profile.yaml", KNOBS)
    assert (profile.setting, profile.default) == (B, DEFAULT)
    assert profile.fingerprint == {"world": 2, "hosts": ["localhost"], "transport": "auto"}
    phases = {pair.phase for pair in read_pairs(tmp_path / "pairs.jsonl")}
    assert phases == {"calibrate", "verify"}


@pytest.mark.parametrize(
    ("b", "launch_gain", "studies", "claims"),
    [
        pytest.param(DEFAULT, no_launch_gain, 8, 0, id="identical-settings"),
        pytest.param(B, launch_noise, 10, 1, id="levels-of-launches"),
    ],
)
def test_what_is_no_gain_is_no_improvement(
    tmp_path: Path, b: Setting, launch_gain: LaunchGain, studies: int, claims: int
) -> None:
    improved = 0
    for seed in range(studies):
        script = Script(seed=seed, launch_gain=launch_gain, **QUIET)
        improved += Bed(tmp_path / str(seed), script).compare(b, seed=seed).improved

    assert improved <= claims


def test_an_interrupted_comparison_goes_on_with_its_pairs(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(gain=five_percent_with_b, **QUIET))
    with pytest.raises(KeyboardInterrupt):
        bed.compare(interrupt_after=4)
    before = read_pairs(tmp_path / "pairs.jsonl")
    assert bed.cluster.jobs[-1].terminated

    again = Bed(tmp_path, Script(seed=3, step_s=0.013, gain=five_percent_with_b, **QUIET))
    verdict = again.compare()
    after = read_pairs(tmp_path / "pairs.jsonl")
    assert verdict.improved
    assert after[: len(before)] == before
    assert {pair.steps for pair in after} == {before[0].steps}
    assert len([pair for pair in after if pair.phase == "calibrate"]) == 5


def test_only_pairs_that_are_still_to_be_measured_are_called_fresh(tmp_path: Path) -> None:
    said: list[str] = []

    def tell(progress: StudyProgress) -> None:
        if progress.phase == "verify" and progress.message:
            said.append(progress.message)
        if progress.phase == "verify" and progress.pairs == 4:
            raise KeyboardInterrupt

    bed = Bed(tmp_path, Script(gain=five_percent_with_b, **QUIET))
    with pytest.raises(KeyboardInterrupt):
        compare(bed.study, B, tmp_path, TuneOptions(time_budget_s=1e9), tell, bed.cluster.clock)
    planned = int(said[0].removesuffix(" fresh pairs"))

    again = Bed(tmp_path, Script(gain=five_percent_with_b, **QUIET))
    with contextlib.suppress(KeyboardInterrupt):
        compare(again.study, B, tmp_path, TuneOptions(time_budget_s=1e9), tell, again.cluster.clock)
    assert said[1] == f"{planned - 4} fresh pairs, 4 measured before"


def test_pairs_against_another_setting_are_not_gone_on_with(tmp_path: Path) -> None:
    bed = Bed(tmp_path, Script(**QUIET))
    bed.floor()
    other = Study(bed.cluster.start, KNOBS, B)

    with pytest.raises(StudyError, match=r"another setting. Choose another run folder.$"):
        compare(other, DEFAULT, tmp_path, TuneOptions(), clock=bed.cluster.clock)


@pytest.mark.parametrize(
    ("script", "message", "exit_code"),
    [
        (
            Script(crashes_with=is_b),
            r"B \(cycle_time_ms=0.2\) cannot be measured: rank 1 was killed",
            139,
        ),
        (Script(crashes_at_start=True), "ImportError", 1),
        (Script(refuses=is_b), r"B \(.*\) cannot be measured: the ranks refused .* kept", 1),
    ],
    ids=["b-crashes", "the-script-cannot-start", "the-ranks-refuse-b"],
)
def test_what_cannot_be_measured_ends_with_the_scripts_code(
    tmp_path: Path, script: Script, message: str, exit_code: int
) -> None:
    with pytest.raises(StudyError, match=message) as caught:
        Bed(tmp_path, script).compare()
    assert caught.value.exit_code == exit_code


def test_a_quiet_machine_has_a_low_floor(tmp_path: Path) -> None:
    floor = Bed(tmp_path, Script(**QUIET)).floor()

    assert (floor.kind, floor.exit_code) == ("floor", 0)
    assert floor.noise_floor_percent < 1
    assert (floor.pairs, floor.launches) == (20, 3)
    assert floor.pairs_needed <= 48
    assert json.loads((tmp_path / "verdict.json").read_text())["kind"] == "floor"
    assert floor.text in (tmp_path / "report.md").read_text()


def test_a_loud_machine_says_what_a_verification_would_take(tmp_path: Path) -> None:
    floor = Bed(tmp_path, Script(step_noise=0.4, slow_noise=0.1)).floor()

    assert (floor.kind, floor.exit_code) == ("noisy", 4)
    assert floor.text.endswith(f"or verify with {floor.pairs_needed} pairs")
