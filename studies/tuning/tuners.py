"""The tuners that are compared: each tunes a cluster in virtual time and ships a setting."""

from __future__ import annotations

import collections
import math
import statistics
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import optuna

from hvdtune.core.config.knobs import Setting, Value, load_knobs
from hvdtune.tuner.controller import tune
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.space.search_space import Space, key_of, make_space
from hvdtune.tuner.space.tune_options import ONE_RUN, TuneOptions
from hvdtune.tuner.study import Study
from studies.tuning.parameter_manager import WINDOW_STEPS, WINDOWS, ParameterManager
from studies.tuning.recordings.grid import Grid
from studies.tuning.recordings.replay import Cluster

TRIALS: Final = 40
READING_STEPS: Final = 50  # of a tuner that measures everything once
_BUDGET_S: Final = 480.0
_FRESH_DRAWS: Final = 25


@dataclass(frozen=True)
class Outcome:
    """What a tuner shipped and what it took.

    `steps` are those until the shipped setting was in force for good, over all launches; `lost` is
    the share by which a training of so many steps is longer than under the default, negative when
    it is shorter, without the time of launches; `kind` is the verdict's, "" where there is none;
    `used` are settings that were in use before that, each with the steps after which it was.
    """

    setting: dict[str, Value]
    steps: int
    launches: int
    trials: int
    lost: dict[int, float]
    kind: str = ""
    phases: dict[str, int] = field(default_factory=dict)
    used: tuple[tuple[int, Setting], ...] = ()


Tuner = Callable[[Grid, int], Outcome]


def ours(grid: Grid, seed: int) -> Outcome:
    """hvdtune as `hvdtune run --trials 40` runs it, verified in fresh launches."""
    return _ours(grid, seed, TuneOptions(trials=TRIALS, seed=seed))


def ours_in_one_run(grid: Grid, seed: int) -> Outcome:
    """hvdtune inside one run that is never restarted, as HOROVOD_AUTOTUNE is."""
    return _ours(grid, seed, replace(ONE_RUN, trials=TRIALS, time_budget_s=_BUDGET_S, seed=seed))


def _ours(grid: Grid, seed: int, options: TuneOptions) -> Outcome:
    cluster = Cluster(grid, seed)
    phases: collections.Counter[str] = collections.Counter()
    seen: dict[str, int] = {"trials": 0, "steps": 0}
    used: list[tuple[int, Setting]] = []

    def watch(progress: StudyProgress) -> None:
        phases[progress.phase] += cluster.steps - seen["steps"]
        seen["steps"] = cluster.steps
        seen["trials"] = max(seen["trials"], progress.trial)
        now = None if progress.in_use is None else progress.in_use.setting
        if now is not None and (not used or used[-1][1] != now):
            used.append((cluster.steps, now))

    study = Study(cluster.start, load_knobs(), grid.default, hosts=grid.hosts)
    with tempfile.TemporaryDirectory() as folder:
        verdict = tune(study, Path(folder), options, watch, cluster.clock).verdict
    shipped = dict(verdict.setting)
    return Outcome(
        shipped, cluster.steps, cluster.launches, seen["trials"], cluster.shares_lost(shipped),
        verdict.kind, dict(phases), tuple(used),
    )  # fmt: skip


def random_search(grid: Grid, seed: int) -> Outcome:
    """Forty settings drawn at random from our space, each read once; the fastest ships."""
    return _single_readings(grid, seed, optuna.samplers.RandomSampler(seed=seed))


def tpe_argmax(grid: Grid, seed: int) -> Outcome:
    """Forty settings of Optuna's TPE over our space, each read once; the fastest ships."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)
    return _single_readings(grid, seed, sampler)


def gp_argmax(grid: Grid, seed: int) -> Outcome:
    """Forty settings of Optuna's Gaussian process, told that readings are noisy; the same way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.GPSampler(seed=seed, deterministic_objective=False)
    return _single_readings(grid, seed, sampler)


def _single_readings(grid: Grid, seed: int, sampler: optuna.samplers.BaseSampler) -> Outcome:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    cluster = Cluster(grid, seed)
    cluster.new_launch()
    space = make_space(load_knobs(), grid.default, grid.hosts)
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial(space.params_of(space.default))
    readings: dict[str, tuple[float, dict[str, Value]]] = {}
    for _ in range(TRIALS):
        trial, setting = _unknown(study, space, readings)
        reading = statistics.mean(_take(cluster, setting, READING_STEPS))
        readings[key_of(setting)] = (reading, setting)
        study.tell(trial, math.log(reading))
    shipped = min(readings.values(), key=lambda each: each[0])[1]
    lost = cluster.shares_lost(shipped)
    return Outcome(shipped, cluster.steps, 1, TRIALS, lost)


def _unknown(
    study: optuna.Study, space: Space, readings: dict[str, tuple[float, dict[str, Value]]]
) -> tuple[optuna.Trial, dict[str, Value]]:
    for _ in range(_FRESH_DRAWS):
        trial = study.ask()
        setting = space.suggest(trial)
        if key_of(setting) not in readings:
            break
        study.tell(trial, math.log(readings[key_of(setting)][0]))
        trial = study.ask()
        setting = space.suggest(trial)
    return trial, setting


def horovod(grid: Grid, seed: int) -> Outcome:
    """Horovod's ParameterManager, with the switches that it tunes on such hosts."""
    switches = ("hierarchical_allgather", "cache_enabled")
    if grid.hosts > 1:
        switches = (
            "hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "cache_enabled",
        )  # fmt: skip
    return _horovod(grid, seed, switches)


def horovod_without_switches(grid: Grid, seed: int) -> Outcome:
    """The same with its switches fixed by the user: one combination only."""
    return _horovod(grid, seed, ())


def _horovod(grid: Grid, seed: int, switches: tuple[str, ...]) -> Outcome:
    cluster = Cluster(grid, seed)
    cluster.new_launch()
    manager = ParameterManager(grid.default, switches, seed)
    samples = 0
    while not manager.done:
        times = _take(cluster, manager.setting, WINDOWS * WINDOW_STEPS)
        windows = [
            grid.bytes * WINDOW_STEPS / (1e6 * sum(times[at : at + WINDOW_STEPS]))
            for at in range(0, len(times), WINDOW_STEPS)
        ]
        manager.tune(statistics.median(windows))
        samples += 1
    shipped = manager.setting
    return Outcome(shipped, cluster.steps, 1, samples, cluster.shares_lost(shipped))


def _take(cluster: Cluster, setting: Setting, steps: int) -> Sequence[float]:
    gain = cluster.gain(setting)
    return [cluster.step(gain, since_change) for since_change in range(steps)]


TUNERS: Final[dict[str, Tuner]] = {
    "hvdtune": ours,
    "hvdtune, one run": ours_in_one_run,
    "Horovod autotune": horovod,
    "Horovod, switches fixed": horovod_without_switches,
    "random search": random_search,
    "TPE, argmax": tpe_argmax,
    "GPSampler, argmax": gp_argmax,
}
