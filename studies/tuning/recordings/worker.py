"""A rank that does what a backward pass does to the core, without a framework.

Arithmetic, then the tensors it made ready are submitted, and so on; the step ends when all are
reduced. Runs until it is ended.
"""

import dataclasses
import json
import math
import os
import sys
from typing import Any

import numpy as np

from hvdtune.core.config.environment import Config
from hvdtune.core.gradients.request_batcher import RequestBatcher
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request
from studies.tuning.recordings.scenarios import SCENARIOS, Scenario
from tests.parallel.netns import Host

_SIDE = 96


def main() -> None:
    """Arguments: the scenario, as JSON the hosts of tests.parallel.netns, if any, by name, --check.

    With --check every step reduces the same random values, and a step whose results differ in a
    bit from the first one's ends the rank with an error.
    """
    scenario = SCENARIOS[sys.argv[1]]
    places: dict[str, dict[str, Any]] = json.loads(sys.argv[2])
    config = Config.from_environ()
    if places:
        place = Host(**places[config.place.host])
        place.enter()
        rendezvous = dataclasses.replace(config.rendezvous, own_address=place.address)
        config = dataclasses.replace(config, rendezvous=rendezvous)
    checked = "--check" in sys.argv[3:]
    if not checked:
        # Each rank keeps to a core, or where the scheduler puts it would be most of the noise.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[config.place.rank % len(cores)]})
    runtime.init(config=config)
    step = CheckedStep(scenario) if checked else Step(scenario)
    while True:
        step.run()
        runtime.mark_step()


class Step:
    """One training step, again and again. All ranks hold the same values, so averages stay."""

    def __init__(self, scenario: Scenario) -> None:
        # Together by bytes alone: the grids were recorded so.
        self._batcher = RequestBatcher(scenario.together_bytes, flush_after_s=math.inf)
        self._gradients = []
        for tensor in reversed(list(scenario.tensors())):
            values = np.ones(tensor.count, dtype=np.float32)
            request = allreduce_request(
                tensor.name, [("float32", [tensor.count])], Reduction(ReduceOp.AVERAGE)
            )
            self._gradients.append((request, values))
        total = sum(values.nbytes for _, values in self._gradients)
        self._bytes_per_product = math.ceil(total / scenario.products)
        self._matrix = np.full((_SIDE, _SIDE), 1.0 / _SIDE, dtype=np.float32)
        self._product = np.empty_like(self._matrix)

    def run(self) -> None:
        """Returns when all tensors are reduced."""
        due = 0
        for request, values in self._gradients:
            due += values.nbytes
            while due >= self._bytes_per_product:
                np.dot(self._matrix, self._matrix, out=self._product)
                due -= self._bytes_per_product
            self._batcher.add(request, [values.ctypes.data], values.nbytes, [values])
            self._batcher.flush_when_due()
        self._batcher.wait()


class CheckedStep(Step):
    """A step whose results are known."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        draw = np.random.default_rng(runtime.rank())
        self._own = [draw.standard_normal(len(v), dtype=np.float32) for _, v in self._gradients]
        self._expected: list[np.ndarray] = []

    def run(self) -> None:
        """Raises SystemExit naming the first tensor that is not as it was."""
        for own, (_, values) in zip(self._own, self._gradients, strict=True):
            values[:] = own
        super().run()
        if not self._expected:
            self._expected = [values.copy() for _, values in self._gradients]
        for expected, (request, values) in zip(self._expected, self._gradients, strict=True):
            if expected.tobytes() != values.tobytes():
                raise SystemExit(f"{request.name} has other bits under {runtime.setting()}")


if __name__ == "__main__":
    main()
