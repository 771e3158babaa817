import random

import pytest

from hvdtune.tuner.stats.cusum import Change, Drift

STEPS = 10


def run(drift: Drift, rng: random.Random, steps: int, step_s: float) -> Change | None:
    """Slow wandering beside the noise of single steps, as on a shared machine."""
    mood = 0.0
    for _ in range(steps):
        mood = 0.99 * mood + rng.gauss(0, 0.004)
        change = drift.add(step_s * (1 + mood) * rng.lognormvariate(0, 0.05))
        if change is not None:
            return change
    return None


@pytest.mark.parametrize("seed", range(5))
def test_a_training_that_stays_as_it_is_raises_no_alarm(seed: int) -> None:
    assert run(Drift(STEPS), random.Random(seed), 100_000, 0.01) is None


@pytest.mark.parametrize("factor", [0.6, 0.85, 1.2, 1.5, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_lasting_change_is_found_and_its_size_told(factor: float, seed: int) -> None:
    drift, rng = Drift(STEPS), random.Random(seed)
    assert run(drift, rng, 5_000, 0.01) is None
    change = run(drift, rng, 5_000, 0.01 * factor)
    assert change is not None
    assert change.factor == pytest.approx(factor, rel=0.1)
    assert change.steps < 1_500


def test_a_passing_change_is_none() -> None:
    drift, rng = Drift(STEPS), random.Random(0)
    run(drift, rng, 5_000, 0.01)
    for _ in range(20):
        assert run(drift, rng, 10 * STEPS, 0.03) is None
        assert run(drift, rng, 200 * STEPS, 0.01) is None


def test_checkpoints_are_none() -> None:
    drift = Drift(STEPS)
    assert not any(drift.add(5.0 if step % 50 == 0 else 0.01) for step in range(50_000))
