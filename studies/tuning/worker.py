"""A rank that does what a backward pass does to the core, without a framework.

Arithmetic, then the tensors it made ready are submitted, and so on; the step ends when all are
reduced. Runs until it is ended.
"""

import dataclasses
import json
import math
import sys
from typing import Any

import numpy as np

from hvdtune.core import runtime
from hvdtune.core.collectives import ReduceOp, Reduction, allreduce_request
from hvdtune.core.config import Config
from hvdtune.core.gradients import Outbox
from studies.tuning.scenarios import SCENARIOS, Scenario
from tests.parallel.netns import Host

_SIDE = 96


def main() -> None:
    """Arguments: the scenario, and as JSON the hosts of tests.parallel.netns, if any, by name."""
    scenario = SCENARIOS[sys.argv[1]]
    places: dict[str, dict[str, Any]] = json.loads(sys.argv[2])
    config = Config.from_environ()
    if places:
        place = Host(**places[config.host])
        place.enter()
        config = dataclasses.replace(config, address=place.address)
    runtime.init(config=config)
    step = Step(scenario)
    while True:
        step.run()
        runtime.mark_step()


class Step:
    """One training step, again and again. All ranks hold the same values, so averages stay."""

    def __init__(self, scenario: Scenario) -> None:
        self._outbox = Outbox(flush_bytes=scenario.together_bytes)
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
            self._outbox.add(request, [values.ctypes.data], values.nbytes)
        self._outbox.wait()


if __name__ == "__main__":
    main()
