"""Steps of scripts that have a group of torch and no line for hvdtune."""

import time
from functools import partial

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from hvdtune.core.rank import runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.distributed.steps import StepMarker
from hvdtune.recording import start_timeline, stop_timeline
from hvdtune.timeline.analysis.findings import why
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.reading.opening import open_trace
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


def waits_for_a_loader(rank, size, folder):
    """DDP with several buckets, whose DataLoader is slow on rank 1."""
    layers = nn.Sequential(*(nn.Linear(200, 200) for _ in range(6)))
    model = DistributedDataParallel(layers, bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    start_timeline(folder / "trace.json")

    def collate(rows):
        time.sleep(0.03 * rank)
        return torch.ones(8, 200)

    for _ in DataLoader(range(20), collate_fn=collate):
        optimizer.zero_grad()
        model(torch.ones(8, 200)).square().mean().backward()
        optimizer.step()
    stop_timeline()


def test_a_slow_loader_of_one_rank_of_ddp_is_found_and_all_others_wait_in_every_step(tmp_path):
    members.run(partial(waits_for_a_loader, folder=tmp_path), 2, tmp_path)
    trace = open_trace(tmp_path / "trace.json")
    found = why(trace, job_metadata_of(trace)).findings[0]
    assert (found.kind, found.ranks) == ("slow-input", (1,))
    steps = breakdown.steady_steps(trace)
    waited = steps[steps["rank"] == 0]
    assert len(waited) >= 15 and (waited["blocked_ms"] > waited["step_ms"] / 2).all()
