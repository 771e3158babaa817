import math

import pytest

from hvdtune.core.job.channel import StepDone
from hvdtune.tuner.measure.blocks import (
    Block,
    BlockMeter,
    BlockShape,
    Order,
    PairTimes,
    orders,
    shape_for,
)

SHAPE = BlockShape(steps=4, settle_steps=2, step_s=0.01)


def step(version: int, *durations_s: float) -> StepDone:
    return StepDone(17, version, tuple(int(d * 1e9) for d in durations_s), 0)


STEPS = [step(1, 0.01)] * 4


def run(meter: BlockMeter, steps: list[StepDone]) -> int:
    for number, each in enumerate(steps, 1):
        meter.add(each)
        if meter.done:
            return number
    return 0


def test_a_block_begins_after_adoption_and_settling() -> None:
    meter = BlockMeter(7, SHAPE)
    steps = [step(6, 9.0), step(-1, 9.0), step(7, 9.0)] + [step(7, 0.01)] * 9

    # A settle step of 9 s is as long as settling may take in all.
    assert run(meter, steps) == 3 + 4
    assert meter.block() == Block(4, 0.04, numbers=(17,) * 4, shorter_s=0.01)


@pytest.mark.parametrize(
    ("shape", "steps", "taken", "total_s"),
    [
        pytest.param(SHAPE, [step(1, 0.02)] * 2 + STEPS, 6, 0.04, id="without-settle-steps"),
        pytest.param(
            SHAPE,
            [step(1, 0.01, 0.01)] * 2 + [step(1, 0.01, 0.012), step(1, 0.011, 0.01)] * 2,
            6,
            0.044,
            id="of-the-slowest-rank",
        ),
        pytest.param(
            BlockShape(2, 0, 0.01),
            [step(1, 0.01), step(-1, 5.0), step(0, 5.0), step(1, 0.01)],
            4,
            0.02,
            id="without-steps-of-another-version",
        ),
        pytest.param(
            BlockShape(50, 5, 0.01), [step(1, 0.5)] * 60, 2 + 3, 3 * 0.5, id="cut-short-when-slow"
        ),
    ],
)
def test_the_time_of_a_block(
    shape: BlockShape, steps: list[StepDone], taken: int, total_s: float
) -> None:
    meter = BlockMeter(1, shape)

    assert run(meter, steps) == taken
    assert meter.block().total_s == pytest.approx(total_s)


def test_the_longest_step_is_told() -> None:
    meter = BlockMeter(1, BlockShape(steps=20, settle_steps=0, step_s=0.01))
    run(meter, [step(1, 30.0)] + [step(1, 0.01)] * 19)

    assert meter.block().interference.longest_step == pytest.approx(3000)


@pytest.mark.parametrize("order", ["ABBA", "BAAB"])
def test_linear_drift_cancels_within_a_pair(order: Order) -> None:
    drifting = [math.exp(0.1 * k) for k in range(4)]
    blocks = [
        Block(10, 10 * drift * (0.02 if letter == "A" else 0.01))
        for letter, drift in zip(order, drifting, strict=True)
    ]

    times = PairTimes(order, tuple(blocks))
    assert times.reference_step_s / times.setting_step_s == pytest.approx(2)
    assert times.log_ratio == pytest.approx(math.log(2))
    assert times.steps == 40


def test_two_pairs_take_both_orders() -> None:
    drawn = [orders(str(seed)) for seed in range(50)]

    assert all(set(pair) == {"ABBA", "BAAB"} for pair in drawn)
    assert {pair[0] for pair in drawn} == {"ABBA", "BAAB"}


@pytest.mark.parametrize(
    ("step_s", "steps"), [(0.005, 50), (0.02, 13), (0.1, 8), (2.0, 8), (1e-5, 512)]
)
def test_blocks_last_a_quarter_second_or_eight_steps(step_s: float, steps: int) -> None:
    shape = shape_for(step_s, block_s=0.25, min_steps=8)

    assert shape.steps == steps
    assert shape.settle_steps == math.ceil(steps / 5)


def test_typical_steps_leave_the_longest_quarter_out() -> None:
    meter = BlockMeter(1, BlockShape(4, 0, 0.01))
    run(meter, [step(1, 0.01), step(1, 0.05), step(1, 0.01), step(1, 0.01)])

    assert meter.block().typical_step_s == pytest.approx(0.01)
    assert meter.block().step_s == pytest.approx(0.02)
