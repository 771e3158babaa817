"""Changes the setting of a running job again and again, under load, and looks for other bits.

    python -m studies.tuning.switches                     # 500 changes, every scenario, as root
    python -m studies.tuning.switches few-huge --count 50

Settings are drawn from the whole live space. The ranks compare every result with the first, bit for
bit; as many processes as there are cores compute at the same time. A change that is not in force
within a minute, with the two steps after it, is a hang.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import optuna

from hvdtune.core.config.knobs import Value, default_setting, load_knobs
from hvdtune.core.job.channel import Formed, StepDone
from hvdtune.errors import HvdtuneError
from hvdtune.launcher.job import Job
from hvdtune.tuner.space.search_space import make_space
from studies.tuning.recordings.jobs import starter, tail
from studies.tuning.recordings.scenarios import SCENARIOS

_Event = TypeVar("_Event")
_HANG_S = 60.0
_FORM_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*", default=list(SCENARIOS), metavar="SCENARIO")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for name in arguments.scenarios:
        with load(len(os.sched_getaffinity(0))):
            print(switch(name, arguments.count, arguments.seed), flush=True)


def switch(name: str, count: int, seed: int) -> str:
    """Makes that many changes; what happened, in a line.

    Raises HvdtuneError when a result had other bits or a change was not adopted.
    """
    steps, slowest_s = 0, 0.0
    with starter(name, "--check") as jobs, ExitStack() as stack:
        job = jobs.start(default_setting())
        stack.callback(job.terminate)
        _await(job, Formed, _FORM_S)
        for setting in _settings(SCENARIOS[name].hosts, count, seed):
            began = time.monotonic()
            version = job.propose(setting)
            # Two steps wholly under it: its results have been compared.
            under = 0
            while under < 2:
                step = _await(job, StepDone, _HANG_S)
                steps += 1
                under += step.version == version
                if time.monotonic() - began > _HANG_S:
                    raise HvdtuneError(f"{setting} was not in force after {_HANG_S:g} s")
            slowest_s = max(slowest_s, time.monotonic() - began)
    return (
        f"{name}: {count} changes in {steps} steps, every result bit-equal; the slowest change "
        f"and its two steps took {slowest_s:.2f} s"
    )


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes compute while the block runs."""
    workers = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _spin() -> None:
    while True:
        pass


def _settings(hosts: int, count: int, seed: int) -> Iterator[dict[str, Value]]:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = make_space(load_knobs(), default_setting(), hosts)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    for _ in range(count):
        yield space.suggest(study.ask())


def _await(job: Job, kind: type[_Event], limit_s: float) -> _Event:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        event = job.next_event(0.5)
        if isinstance(event, kind):
            return event
        if (report := job.poll()) is not None:
            raise HvdtuneError(f"the job has ended: {report.reason}: {tail(job)}")
    raise HvdtuneError(f"no {kind.__name__} of the job within {limit_s:g} s")


if __name__ == "__main__":
    main()
