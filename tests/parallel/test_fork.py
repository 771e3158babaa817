"""Children of a rank made by fork: they have no part in the job and do it no harm."""

import os

import torch

import hvdtune.torch as hvd
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import UsageError
from tests.parallel.ranks import run

CALLS = {
    "allreduce": lambda handle: hvd.allreduce(torch.ones(2)),
    "barrier": lambda handle: hvd.barrier(),
    "synchronize": lambda handle: hvd.synchronize(handle),
    "rank": lambda handle: hvd.rank(),
    "init": lambda handle: hvd.init(),
}


def in_a_child(body):
    """Run the body in a child of this process and return what it says."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(write, body().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def try_everything():
    handle = hvd.allreduce_async(torch.ones(2), op=hvd.Sum, name="before")

    def child():
        said = [f"initialized: {hvd.is_initialized()}"]
        for name, call in CALLS.items():
            try:
                call(handle)
                said.append(f"{name}: no error")
            except UsageError as error:
                said.append(f"{name}: {error}")
        return "\n".join(said)

    said = in_a_child(child)
    total = hvd.synchronize(handle) + hvd.allreduce(torch.ones(2), op=hvd.Sum)
    return said, total.tolist()


def test_a_child_is_told_that_it_has_no_part_and_the_ranks_go_on():
    for said, total in run(try_everything, 2):
        first, *calls = said.splitlines()
        assert first == "initialized: False"
        for name, line in zip(CALLS, calls, strict=True):
            assert line.startswith(f"{name}: ") and "was forked from a rank of a job" in line
        assert total == [4.0, 4.0]


def step_in_a_child():
    """Every gradient is on its way when the child is made, which would only have to wait."""
    model = torch.nn.Linear(600, 600, bias=False)
    # Without a gradient while it is not frozen, so that the second pass does not wait.
    spare = torch.nn.Parameter(torch.zeros(1), requires_grad=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([*model.parameters(), spare], lr=1.0),
        named_parameters=model.named_parameters(),
    )
    model(torch.ones(1, 600)).sum().backward()  # which asks which gradients are sparse
    optimizer.step()
    spare.requires_grad_(True)
    model(torch.ones(1, 600)).sum().backward()
    spare.requires_grad_(False)
    assert PROCESS.in_flight
    state = optimizer.state_dict()

    def child():
        said = []
        for call in (lambda: optimizer.load_state_dict(state), optimizer.step, optimizer.step):
            try:
                call()
                said.append("no error")
            except UsageError as error:
                said.append(str(error))
        return "\n".join(said)

    said = in_a_child(child)
    optimizer.step()
    return said.splitlines(), model.weight.grad.unique().tolist(), hvd.allgather_object("all here")


def test_a_child_cannot_wait_for_what_its_parent_has_in_flight():
    for said, gradients, here in run(step_in_a_child, 2):
        assert all("was forked from a rank of a job" in line for line in said), said
        assert len(said) == 3
        assert gradients == [2.0]
        assert here == ["all here"] * 2


def write_gradients_in_a_child():
    model = torch.nn.Linear(300, 300)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.0), named_parameters=model.named_parameters()
    )
    for _ in range(3):
        optimizer.zero_grad(set_to_none=False)
        model(torch.ones(2, 300)).sum().backward()
        optimizer.step()

    def child():
        before = model.weight.grad[0, 0].item()
        model.weight.grad.fill_(777.0)
        return f"{before} {model.weight.grad[0, 0].item()}"

    said = in_a_child(child)
    optimizer.zero_grad(set_to_none=False)
    kept = model.weight.grad.abs().max().item()
    model(torch.ones(2, 300)).sum().backward()
    optimizer.step()
    return said, kept, model.weight.grad.unique().tolist()


def test_what_a_child_writes_into_shared_gradients_is_its_own():
    for said, kept, gradients in run(write_gradients_in_a_child, 2):
        assert said == "2.0 777.0"
        assert kept == 0.0
        assert gradients == [2.0]
