import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
from hvdtune.tuner.controller import TuneResult, tune
from hvdtune.tuner.measure.progress import Reporter, StudyProgress
from hvdtune.tuner.measure.restart_run import ByRestarting, RestartRun
from hvdtune.tuner.measure.run import TrialFailed
from hvdtune.tuner.space.tune_options import BY_RESTARTING
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.study import Study
from tests.kit.simulated_command import DEFAULT, KNOBS, Script, SimulatedMachine

VIEWS = {**DEFAULT, "as_view": True}


def is_default(setting: Setting) -> bool:
    return setting == DEFAULT


def make(script: Script, budget_s: float = 1e6) -> tuple[RestartRun, SimulatedMachine]:
    machine = SimulatedMachine(script)
    options = replace(
        BY_RESTARTING,
        trials=10,
        time_budget_s=budget_s,
        blocks=replace(BY_RESTARTING.blocks, seconds=2.0),
    )
    reporter = Reporter(lambda progress: None, machine.clock, 10, budget_s)
    by = ByRestarting(machine.start)
    return RestartRun(by, DEFAULT, options, machine.clock, reporter), machine


def study(script: Script, run_dir: Path, **options: Any) -> tuple[TuneResult, SimulatedMachine]:
    machine = SimulatedMachine(script)
    by = ByRestarting(machine.start)
    names = tuple(knob.name for knob in KNOBS)
    chosen = replace(
        BY_RESTARTING,
        trials=8,
        time_budget_s=5000,
        blocks=replace(BY_RESTARTING.blocks, seconds=2.0),
        tunable=names,
        **options,
    )
    result = tune(Study(by, KNOBS, DEFAULT), run_dir, chosen, clock=machine.clock)
    return result, machine


def test_a_pair_is_two_fresh_launches_in_the_order_drawn() -> None:
    run, machine = make(Script(gain=lambda setting: 0.3 * (setting == VIEWS)))
    run.ensure_running()
    times = run.measure(VIEWS, "BAAB", run.choose_shape())

    assert [command.setting for command in machine.commands] == [DEFAULT, VIEWS, DEFAULT]
    assert times.order == "BA"
    assert times.log_ratio == pytest.approx(0.3, abs=0.15)


def test_a_launch_ends_when_it_has_its_steps_after_those_that_warm_it_up() -> None:
    run, machine = make(Script(step_s=0.02, step_noise=0.0, launch_noise=0.0))
    run.ensure_running()
    before = machine.clock.now()
    times = run.measure(VIEWS, "ABBA", run.choose_shape())

    assert (run.choose_shape().steps, run.choose_shape().settle_steps) == (100, 20)
    assert times.steps == 200
    assert machine.clock.now() - before == pytest.approx(2 * (4.0 + 120 * 0.02), abs=0.5)


def test_a_command_shorter_than_a_launch_should_be_is_measured_over_what_it_has() -> None:
    run, _ = make(Script(steps=30))
    run.ensure_running()

    assert (run.choose_shape().steps, run.choose_shape().settle_steps) == (20, 10)
    assert run.measure(VIEWS, "ABBA", run.choose_shape()).steps == 40


def test_a_command_that_tells_no_steps_is_measured_by_its_wall_time() -> None:
    gain = lambda setting: math.log(1.25) * (setting == VIEWS)  # noqa: E731
    run, _ = make(Script(steps=200, tells_steps=False, gain=gain, launch_noise=0, start_s=0))
    run.ensure_running()

    assert run.measured_by == "the wall time of the command"
    assert run.step_s == pytest.approx(4.0, abs=0.3)
    assert run.measure(VIEWS, "ABBA", run.choose_shape()).log_ratio == pytest.approx(0.22, abs=0.08)


def test_an_endless_command_without_steps_is_refused_when_the_time_is_up() -> None:
    run, machine = make(Script(steps=None, tells_steps=False), budget_s=60)
    with pytest.raises(StudyError, match="--metric-regex"):
        run.ensure_running()

    assert machine.commands[0].over


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            Script(fails=lambda setting, launch: setting == VIEWS),
            "exited with code 3; its last line: last words",
        ),
        (Script(hangs=lambda setting: setting == VIEWS), "no step for"),
    ],
    ids=["fails", "hangs"],
)
def test_a_setting_with_which_the_command_fails_is_given_up(script: Script, message: str) -> None:
    run, machine = make(script)
    run.ensure_running()
    with pytest.raises(TrialFailed, match=message):
        run.measure(VIEWS, "BAAB", run.choose_shape())

    assert machine.commands[-1].over


def test_a_failure_of_the_reference_is_not_blamed_on_the_setting() -> None:
    run, machine = make(Script(fails=lambda setting, launch: launch == 1))
    run.ensure_running()
    run.measure(VIEWS, "ABBA", run.choose_shape())

    assert [command.setting for command in machine.commands[1:]] == [DEFAULT, DEFAULT, VIEWS]


def test_a_reference_that_fails_again_and_again_ends_the_study() -> None:
    run, _ = make(Script(fails=lambda setting, launch: launch > 0 and is_default(setting)))
    run.ensure_running()
    with pytest.raises(StudyError, match="cannot measure the reference setting, 3 times in a row"):
        run.measure(VIEWS, "ABBA", run.choose_shape())


def test_a_faster_setting_is_proved_over_launches_and_nothing_goes_on(tmp_path: Path) -> None:
    gain = lambda setting: 0.15 * bool(setting["as_view"])  # noqa: E731
    result, machine = study(Script(gain=gain, drift=0.05), tmp_path)

    assert result.verdict.improved, result.verdict.text
    assert result.verdict.setting["as_view"] is True
    assert result.job is None
    assert all(command.over for command in machine.commands)
    verified = [pair for pair in read_pairs(tmp_path / "pairs.jsonl") if pair.phase == "verify"]
    assert len({pair.launch for pair in verified}) == len(verified) >= 12


@pytest.mark.parametrize("seed", [0, 1])
def test_a_race_leaves_time_for_the_verification(tmp_path: Path, seed: int) -> None:
    def gain(setting: Setting) -> float:
        return 0.22 * (setting["bucket_mb"] > 60)

    machine = SimulatedMachine(Script(seed=seed, start_s=1.0, gain=gain))
    began_s, budget_s = machine.clock.now(), 300.0
    options = replace(
        BY_RESTARTING,
        trials=6,
        time_budget_s=budget_s,
        blocks=replace(BY_RESTARTING.blocks, seconds=3.0),
        seed=seed,
    )
    by = ByRestarting(machine.start)
    verdict = tune(Study(by, KNOBS, DEFAULT), tmp_path, options, clock=machine.clock).verdict

    assert verdict.improved, verdict.text
    assert machine.clock.now() - began_s < budget_s
    phases = [pair.phase for pair in read_pairs(tmp_path / "pairs.jsonl")]
    assert phases.count("verify") == options.proof.min_pairs


@pytest.mark.slow
def test_settings_that_differ_in_nothing_but_their_launches_are_not_told_apart(
    tmp_path: Path,
) -> None:
    wrong = 0
    for seed in range(4):
        result, _ = study(Script(seed=seed, launch_noise=0.1), tmp_path / str(seed), seed=seed)
        wrong += result.verdict.improved
    assert wrong <= 1


def timed(budget_s: float, run_dir: Path) -> tuple[str, SimulatedMachine]:
    """Tune a command of 8 s within a time budget; return the study's last words and its machine."""
    machine = SimulatedMachine(Script(steps=200, tells_steps=False))
    by = ByRestarting(machine.start)
    options = replace(
        BY_RESTARTING,
        trials=8,
        time_budget_s=budget_s,
        blocks=replace(BY_RESTARTING.blocks, seconds=2.0),
        tunable=("as_view",),
    )
    try:
        return tune(
            Study(by, KNOBS, DEFAULT), run_dir, options, clock=machine.clock
        ).verdict.text, machine
    except StudyError as error:
        return str(error), machine


@pytest.mark.parametrize(("budget_s", "launches"), [(36.0, 1), (300.0, 3)])
def test_a_budget_that_pays_for_no_answer_is_refused_when_that_is_known(
    tmp_path: Path, budget_s: float, launches: int
) -> None:
    said, machine = timed(budget_s, tmp_path)

    assert said.startswith("the time budget is too short: a pair of launches takes 1")
    assert "20 pairs (6 of the default against itself, 2 of one other setting, 12 to" in said
    assert len(machine.commands) == launches


def test_the_budget_that_is_asked_for_is_enough(tmp_path: Path) -> None:
    said, _ = timed(36.0, tmp_path / "short")
    asked_s = int(said.rpartition("--time-budget to ")[2].removesuffix("s or more"))
    said, machine = timed(asked_s, tmp_path / "enough")

    assert said.startswith("no setting beats the default by more than")
    assert machine.clock.now() - SimulatedMachine(Script()).clock.now() <= asked_s


@pytest.mark.parametrize(("budget_s", "is_limited"), [(1e6, True), (1e9, False)])
def test_progress_says_what_is_measured_and_how_many_pairs_there_is_time_for(
    budget_s: float, is_limited: bool
) -> None:
    told: list[StudyProgress] = []
    machine = SimulatedMachine(Script())
    options = replace(
        BY_RESTARTING,
        trials=10,
        time_budget_s=budget_s,
        blocks=replace(BY_RESTARTING.blocks, seconds=2.0),
    )
    reporter = Reporter(told.append, machine.clock, 10, budget_s)
    RestartRun(
        ByRestarting(machine.start), DEFAULT, options, machine.clock, reporter
    ).ensure_running()

    message = told[-1].message
    assert message.startswith("measured by the simulated steps: ")
    assert message.endswith("pairs of launches" if is_limited else "s")
    assert ("the time left" in message) == is_limited
