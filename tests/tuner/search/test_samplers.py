import sys
from importlib.util import find_spec
from pathlib import Path

import optuna
import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import UsageError
from hvdtune.tuner.search.samplers import check_sampler, distributions, make_sampler, sampler_for
from hvdtune.tuner.space.search_space import KnobRange, make_space
from hvdtune.tuner.space.tune_options import SamplerName, TuneOptions
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome
from tests.kit.simulated_job import DEFAULT, KNOBS

NAMES: tuple[SamplerName, ...] = ("tpe", "random", "grid", "noisy_gp")
NEEDS_CMAES = pytest.mark.skipif(find_spec("cmaes") is None, reason="cmaes is not installed")


def gain(setting: Setting) -> float:
    cycle = float(setting["cycle_time_ms"])
    return 0.1 - 0.02 * abs(cycle - 5.0)


def run(path: Path, sampler: SamplerName, trials: int = 25, seed: int = 1) -> list[Setting]:
    space = make_space(KNOBS, DEFAULT, ranges={"cycle_time_ms": KnobRange(0.1, 10.0)})
    drawn = []
    options = TuneOptions(trials=trials, seed=seed, sampler=sampler)
    with StudyStore(path, space, options, sampler=sampler_for(space, options)) as store:
        for _ in range(trials):
            number, setting = store.ask()
            drawn.append(setting)
            if store.is_known(setting):
                store.tell_duplicate(number, setting)
            else:
                store.tell(number, TrialOutcome("complete", gain(setting), 0.005, 5))
    return drawn


@pytest.mark.parametrize("name", [*NAMES, pytest.param("cmaes", marks=NEEDS_CMAES)])
def test_every_sampler_starts_with_the_default_and_goes_on(
    tmp_path: Path, name: SamplerName
) -> None:
    drawn = run(tmp_path, name)
    assert drawn[0] == DEFAULT
    assert len({str(setting) for setting in drawn}) > 8


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("tpe", "noisy_gp") else pytest.mark.slow)
        for name in NAMES
    ],
)
def test_one_seed_draws_one_sequence(tmp_path: Path, name: SamplerName) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    assert run(tmp_path / "a", name, 16) == run(tmp_path / "b", name, 16)


def test_the_noisy_process_learns_where_the_gain_is(tmp_path: Path) -> None:
    late = run(tmp_path, "noisy_gp", 25)[12:]
    assert sum(3.0 < float(setting["cycle_time_ms"]) < 7.0 for setting in late) >= 8


def test_a_grid_is_searched_once(tmp_path: Path) -> None:
    space = make_space(KNOBS, DEFAULT, tunable=("cache_enabled", "cycle_time_ms"))
    options = TuneOptions(trials=8, sampler="grid")
    with StudyStore(tmp_path, space, options, sampler=sampler_for(space, options)) as store:
        asked = 0
        while not store.is_exhausted:
            number, _ = store.ask()
            store.tell(number, TrialOutcome("complete", 0.0, 0.01, 3))
            asked += 1
        settings = {str(trial.setting) for trial in store.trials()}

    assert asked == 1 + 8
    assert len(settings) in (8, 9)


def test_distributions_are_those_that_a_space_asks_for() -> None:
    space = make_space(KNOBS, DEFAULT, hosts=2)
    study = optuna.create_study()
    trial = study.ask(fixed_distributions=distributions(space))
    space.suggest(trial)
    assert set(trial.params) == {knob.name for knob in space.knobs}
    assert study.trials[0].distributions == distributions(space)


@pytest.mark.parametrize(("name", "package"), [("gp", "torch"), ("cmaes", "cmaes")])
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, name: SamplerName, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"{name} needs the package {package}: pip install"):
        check_sampler(name)


@pytest.mark.parametrize("name", ["cmaes", "noisy_gp"])
def test_cmaes_and_the_noisy_process_know_one_objective(name: SamplerName) -> None:
    with pytest.raises(UsageError, match="supports only one objective"):
        check_sampler(name, 2)


def test_tpe_knows_several_objectives() -> None:
    sampler = make_sampler("tpe", make_space(KNOBS, DEFAULT), seed=0, trials=20, objectives=2)
    assert isinstance(sampler, optuna.samplers.TPESampler)
