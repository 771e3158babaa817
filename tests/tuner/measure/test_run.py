"""The contract of Run, which live runs and runs by restarting keep alike."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.progress import Reporter
from hvdtune.tuner.measure.restart_run import ByRestarting
from hvdtune.tuner.measure.run import Run, StartJob
from hvdtune.tuner.measure.runs import make_run
from hvdtune.tuner.space.tune_options import BY_RESTARTING, TuneOptions
from tests.kit import simulated_command, simulated_job
from tests.kit.virtual_clock import VirtualClock

FIRST_LAUNCH = 4


@dataclass
class Case:
    run: Run
    default: Setting
    faster: Setting
    count_launches: Callable[[], int]


def make(
    start: StartJob | ByRestarting, default: Setting, options: TuneOptions, clock: VirtualClock
) -> Run:
    reporter = Reporter(lambda progress: None, clock, 10, options.time_budget_s)
    return make_run(start, default, options, clock, reporter, first_launch=FIRST_LAUNCH)


def live(*, fails: bool = False) -> Case:
    default = simulated_job.DEFAULT
    faster = {**default, "cycle_time_ms": 0.2}
    script = simulated_job.Script(
        gain=lambda setting: 0.3 * (setting == faster), drift=0.0, crashes_at_start=fails
    )
    cluster = simulated_job.SimulatedCluster(script)
    run = make(cluster.start, default, TuneOptions(time_budget_s=1e6), cluster.clock)
    return Case(run, default, faster, lambda: len(cluster.jobs))


def restarting(*, fails: bool = False) -> Case:
    default = simulated_command.DEFAULT
    faster = {**default, "as_view": True}
    script = simulated_command.Script(
        gain=lambda setting: 0.3 * (setting == faster), fails=lambda setting, number: fails
    )
    machine = simulated_command.SimulatedMachine(script)
    options = replace(
        BY_RESTARTING,
        trials=10,
        time_budget_s=1e6,
        blocks=replace(BY_RESTARTING.blocks, seconds=2.0),
    )
    run = make(ByRestarting(machine.start), default, options, machine.clock)
    return Case(run, default, faster, lambda: len(machine.commands))


BOTH_RUNS = [live, restarting]


@pytest.mark.parametrize("make_case", BOTH_RUNS)
def test_a_run_that_is_ready_is_not_started_again(make_case: Callable[[], Case]) -> None:
    case = make_case()
    assert (case.run.launch, case.run.step_s) == (FIRST_LAUNCH - 1, 0.0)
    case.run.ensure_running()
    case.run.ensure_running()

    assert (case.count_launches(), case.run.launch) == (1, FIRST_LAUNCH)
    assert case.run.step_s > 0


@pytest.mark.parametrize("make_case", BOTH_RUNS)
def test_the_shape_of_blocks_suits_the_time_of_a_step(make_case: Callable[[], Case]) -> None:
    run = make_case().run
    shape = run.choose_shape()

    assert shape.step_s == run.step_s > 0
    assert shape.steps > shape.settle_steps > 0


@pytest.mark.parametrize("make_case", BOTH_RUNS)
def test_a_pair_says_how_much_faster_a_setting_is(make_case: Callable[[], Case]) -> None:
    case = make_case()
    shape = case.run.choose_shape()
    before = case.run.steps_taken
    times = case.run.measure(case.faster, "BAAB", shape)

    assert times.order[0] == "B"
    assert times.log_ratio == pytest.approx(0.3, abs=0.15)
    assert case.run.steps_taken >= before + times.steps


@pytest.mark.parametrize("make_case", BOTH_RUNS)
def test_pairs_cost_what_the_latest_took(make_case: Callable[[], Case]) -> None:
    case = make_case()
    shape = BlockShape(100, 20, case.run.choose_shape().step_s)
    assert case.run.cost(shape).pair_s == shape.pair_s
    case.run.measure(case.default, "ABBA", shape)

    assert case.run.cost(shape).pair_s != shape.pair_s


@pytest.mark.parametrize("make_case", BOTH_RUNS)
@pytest.mark.parametrize("end", ["stop", "restart"])
def test_a_run_that_was_stopped_measures_again(make_case: Callable[[], Case], end: str) -> None:
    case = make_case()
    shape = case.run.choose_shape()
    getattr(case.run, end)()
    case.run.ensure_running()

    assert case.run.measure(case.default, "ABBA", shape).steps > 0
    assert case.count_launches() > 1


@pytest.mark.parametrize("make_case", BOTH_RUNS)
def test_a_script_goes_on_under_a_setting_where_its_run_is_resumable(
    make_case: Callable[[], Case],
) -> None:
    case = make_case()
    case.run.ensure_running()
    goes_on = case.run.resumable is not None

    assert (case.run.training_steps > 0) == goes_on
    assert (case.run.detach(case.faster) is not None) == goes_on
    assert case.run.detach(case.faster) is None


@pytest.mark.parametrize("make_case", BOTH_RUNS)
def test_a_script_that_fails_by_default_ends_the_study(make_case: Callable[..., Case]) -> None:
    case = make_case(fails=True)
    with pytest.raises(StudyError):
        case.run.ensure_running()

    assert case.count_launches() == 1
