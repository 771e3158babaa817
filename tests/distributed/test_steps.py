"""Steps of scripts that have a group of torch and no line for hvdtune."""

import torch
from torch import distributed as dist

from hvdtune.core.rank import runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.distributed.steps import StepMarker
from tests.distributed import members


def optimizer():
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    return torch.optim.SGD([parameter], lr=0.1)


class Wrapper(torch.optim.SGD):
    """Steps by the optimizer that it wraps, and is the first to begin."""

    def step(self, closure=None):
        self.inner.step()
        return super().step(closure)


def test_a_step_is_what_the_first_optimizer_does_between_two():
    marks = []
    marker = StepMarker(lambda: marks.append(len(marks)))
    first, second = optimizer(), optimizer()
    for number in range(3):
        first.step()
        second.step()
        second.step()
        assert len(marks) == number + 1
    marker.close()
    first.step()
    assert len(marks) == 3


def test_the_step_of_the_outermost_optimizer_counts():
    marks = []
    marker = StepMarker(lambda: marks.append(len(marks)))
    outer = Wrapper(optimizer().param_groups[0]["params"], lr=0.1)
    outer.inner = optimizer()
    outer.step()
    outer.step()
    marker.close()
    assert len(marks) == 2


def trains(rank, size):
    """The steps that this rank has marked, as its job counts them, and after a mark of its own."""
    counts = []
    native, steps = PROCESS.runtime, optimizer()

    class Counting:
        def mark_step(self):
            counts.append(1)
            native.mark_step()

        def __getattr__(self, name):
            return getattr(native, name)

    PROCESS.runtime = Counting()
    steps.step()
    steps.step()
    marked = len(counts)
    runtime.mark_step()
    steps.step()
    PROCESS.runtime = native
    dist.barrier()
    return marked, len(counts)


def test_the_first_group_of_a_process_marks_steps_until_the_script_does(tmp_path):
    assert members.run(trains, 2, tmp_path) == [(2, 3), (2, 3)]
