import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.blocks import Block, BlockShape, Interference, Order
from hvdtune.tuner.measure.live_run import LiveRun
from hvdtune.tuner.measure.outliers import Disturbance, OutlierDetector
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Reporter
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import estimate
from hvdtune.tuner.storage.pair_log import Pair, PairLog, counted
from tests.kit.simulated_job import DEFAULT, Script, SimulatedCluster

SHAPE = BlockShape(steps=25, settle_steps=5, step_s=0.01)
OTHER = {**DEFAULT, "cycle_time_ms": 0.2}


def blocks(*interferences: Interference) -> list[Block]:
    return [Block(10, 0.1, interference) for interference in interferences]


def detector(*steal: float) -> OutlierDetector:
    usual = OutlierDetector()
    usual.add(Interference(steal=share) for share in steal)
    return usual


QUIET, STOLEN = Interference(), Interference(steal=0.3)
PAUSED = Interference(longest_step=40.0)


RARE = Disturbance("B", "other virtual machines took 30% of the processors' time")
PAUSE = Disturbance("AB", "a step 40.0 times as long as the others")


@pytest.mark.parametrize(
    ("usual", "order", "seen", "found"),
    [
        pytest.param([0.0] * 20, "ABBA", [QUIET, STOLEN, QUIET, QUIET], RARE, id="far-from-usual"),
        pytest.param(
            [0.2, 0.3, 0.4] * 8, "ABBA", [QUIET, STOLEN, STOLEN, QUIET], None, id="usual-here"
        ),
        pytest.param([0.0] * 2, "BAAB", [QUIET, STOLEN, QUIET, QUIET], None, id="too-early"),
        pytest.param([0.0] * 2, "BAAB", [QUIET, PAUSED, QUIET, PAUSED], PAUSE, id="a-long-pause"),
    ],
)
def test_blocks_far_from_the_usual_are_at_fault(
    usual: list[float], order: Order, seen: list[Interference], found: Disturbance | None
) -> None:
    assert detector(*usual).detect(order, blocks(*seen)) == found


def test_a_machine_that_becomes_busy_becomes_the_usual() -> None:
    usual = detector(*[0.0] * 64)
    assert usual.detect("ABBA", blocks(*[STOLEN] * 4)) is not None
    usual.add([STOLEN] * 40)
    assert usual.detect("ABBA", blocks(*[STOLEN] * 4)) is None


def pair(at_fault: str, set_aside: str = "something else") -> Pair:
    return Pair(0, "search", 1, OTHER, DEFAULT, 0.0, 1, 1, 100, "ABBA", 0, {}, set_aside, at_fault)


@pytest.mark.parametrize(
    ("at_fault", "count"), [("ABAB", 1), ("ABB", 1), ("BBB", 4), ("AAA", 4), ("BBBBBA", 7)]
)
def test_pairs_set_aside_count_where_one_side_is_at_fault_far_more_often(
    at_fault: str, count: int
) -> None:
    pairs = [pair(letter) for letter in at_fault] + [pair("", "")]
    assert len(counted(pairs, pairs)) == count


class Rig:
    """A bench in virtual time."""

    def __init__(self, script: Script, log: PairLog) -> None:
        self.cluster = SimulatedCluster(script)
        options = TuneOptions()
        self.notices: list[str] = []
        reporter = Reporter(
            lambda progress: self.notices.append(progress.message), self.cluster.clock, 1, 1e9
        )
        live = LiveRun(
            self.cluster.start, DEFAULT, options, self.cluster.clock, reporter, host=self.cluster
        )
        self.runner = PairRunner(live, log, reporter, DEFAULT, seed=script.seed)

    def measure(self, setting: Setting, pairs: int) -> list[float]:
        for _ in range(8):
            self.runner.pair("calibrate", DEFAULT, SHAPE)
        for _ in range(pairs):
            self.runner.pair("search", setting, SHAPE)
        return self.runner.log_ratios("search", setting)


def measured(script: Script, path: Path, pairs: int = 24) -> tuple[list[float], Rig]:
    with PairLog(path / f"{script.seed}.jsonl") as log:
        rig = Rig(script, log)
        return rig.measure(OTHER, pairs), rig


@pytest.mark.parametrize(
    ("disturbance", "set_aside", "outliers"),
    [
        pytest.param({"bursts_per_s": 0.2}, 3, 0, id="bursts-of-others"),
        pytest.param({"pause_every": 300}, 5, 2, id="an-evaluation"),
    ],
)
def test_a_disturbed_pair_is_measured_again_and_counted(
    tmp_path: Path, disturbance: dict[str, Any], set_aside: int, outliers: int
) -> None:
    script = Script(**disturbance, step_noise=0.02, slow_noise=0.005, drift=0.0)
    values, rig = measured(script, tmp_path)

    assert len(values) == 24
    assert rig.runner.set_aside >= set_aside
    assert sum(abs(value) > 0.1 for value in values) <= outliers


def test_of_many_repeats_the_first_and_every_tenth_are_told(tmp_path: Path) -> None:
    script = Script(bursts_per_s=0.2, step_noise=0.02, slow_noise=0.005, drift=0.0)
    _, rig = measured(script, tmp_path, pairs=150)

    count = rig.runner.set_aside
    assert count >= 20
    told = [notice.partition(":")[0] for notice in rig.notices if "measured again" in notice]
    tenths = range(10, count + 1, 10)
    every_tenth = [f"{n} pairs measured again so far; reason for this one" for n in tenths]
    assert told == ["a pair is measured again"] * 5 + every_tenth


@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_repeats_end_on_a_machine_that_is_always_disturbed(tmp_path: Path, rate: float) -> None:
    values, rig = measured(Script(bursts_per_s=rate), tmp_path)

    assert len(rig.runner.log.pairs) <= 2 * (24 + 8) + 5
    assert len(values) >= 24


def mean_and_coverage(scripts: Sequence[Script], truth: float, path: Path) -> tuple[float, float]:
    means, covered = [], 0
    for script in scripts:
        values, _ = measured(script, path)
        own = estimate(values)
        means.append(own.mean)
        covered += own.low <= truth <= own.high
    return sum(means) / len(means), covered / len(scripts)


@pytest.mark.slow
def test_disturbances_from_outside_favour_neither_side(tmp_path: Path) -> None:
    quiet = Script(bursts_per_s=0.15, step_noise=0.04, slow_noise=0.01)
    scripts = [dataclasses.replace(quiet, seed=seed) for seed in range(30)]
    mean, coverage = mean_and_coverage(scripts, 0.0, tmp_path)

    assert abs(mean) < 0.004
    assert coverage >= 0.84


def test_disturbances_that_a_setting_causes_are_not_taken_from_its_account(tmp_path: Path) -> None:
    def bursts(setting: Setting) -> float:
        return 0.4 if setting == OTHER else 0.0

    kept, every = [], []
    for seed in range(15):
        script = Script(seed, own_bursts_per_s=bursts, step_noise=0.04, slow_noise=0.01)
        values, rig = measured(script, tmp_path)
        kept.append(sum(values) / len(values))
        every += [pair.log_ratio for pair in rig.runner.log.pairs if pair.phase == "search"]
    truth = sum(every) / len(every)

    assert truth < -0.02
    assert sum(kept) / len(kept) == pytest.approx(truth, abs=0.004)


def test_readings_are_of_the_blocks_own_time() -> None:
    cluster = SimulatedCluster(Script(bursts_per_s=1e9, burst_s=1e9, drift=0.0))
    reporter = Reporter(lambda progress: None, cluster.clock, 1, 1e9)
    live = LiveRun(cluster.start, DEFAULT, TuneOptions(), cluster.clock, reporter, host=cluster)
    live.ensure_running()
    times = live.measure(OTHER, "ABBA", SHAPE)

    assert [block.interference.steal for block in times.blocks] == pytest.approx(
        [0.5] * 4, rel=0.01
    )
