"""Gradients and tensors that a script drops or changes while they are in flight."""

import gc
import threading
import weakref

import numpy as np
import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank.collectives import Reduction, allreduce_request
from hvdtune.core.rank.handles import start
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import (
    DuplicateNameError,
    HvdtuneError,
    RankLostError,
    ShutdownError,
    StepOrderError,
    UsageError,
)
from hvdtune.torch.gradients import InFlightGradient, describe
from tests.kit.flag import Flag
from tests.parallel.ranks import run
from tests.torch.in_flight import (
    ELEMENTS,
    averages,
    meet_twice,
    partial_pass,
    sevens,
    training,
)


def drop_after_backward(kind, dropped):
    model, optimizer = training(kind)
    if hvd.rank() == 1:
        dropped.wait()
        found = averages(model, optimizer, 3.0)
        meet_twice()
        return found
    with partial_pass(optimizer):
        model(1.0).backward()
    del model, optimizer
    kept = sevens()
    dropped.set()
    meet_twice()
    return {value for tensor in kept for value in tensor.unique().tolist()}, len(PROCESS.in_flight)


@pytest.mark.parametrize("kind", ["alone", "a group", "compressed", "made dense"])
def test_gradients_in_flight_live_on_when_the_optimizer_and_the_model_are_dropped(kind, tmp_path):
    (values, in_flight), average = run(drop_after_backward, 2, kind, Flag(tmp_path / "flag"))
    assert values == {7.0}
    assert average == {2.0}
    assert in_flight == 0


def other_data(tensor):
    tensor.data = torch.full_like(tensor.to_dense(), 5.0)


def other_rows(tensor):
    tensor.data = torch.full_like(tensor.to_dense(), 5.0).to_sparse(1)


def converted_and_back(tensor):
    tensor.data = tensor.data.half().float()


def other_storage(tensor):
    with torch.no_grad():
        tensor.set_(torch.full((ELEMENTS,), 5.0))


def change_after_backward(kind, change, dropped):
    model, optimizer = training(kind)
    if hvd.rank() == 1:
        dropped.wait()
        found = averages(model, optimizer, 3.0)
        hvd.barrier()
        return found
    with partial_pass(optimizer):
        model(1.0).backward()
    optimizer._send()  # which sparse ones wait for
    for parameter in model.parameters():
        change(parameter.grad)
    kept = sevens()
    dropped.set()
    with pytest.raises(StepOrderError, match="was changed before it was combined"):
        optimizer.synchronize()
    hvd.barrier()
    return {value for tensor in kept for value in tensor.unique().tolist()}


@pytest.mark.parametrize(
    ("kind", "change"),
    [("alone", other_data), ("a group", converted_and_back), ("sparse", other_rows)],
)
def test_a_gradient_that_is_given_other_memory_is_refused_and_the_others_get_its_values(
    kind, change, tmp_path
):
    ranks = run(change_after_backward, 2, kind, change, Flag(tmp_path / "flag"))
    assert ranks == [{7.0}, {2.0}]


CHANGES = {
    "other values": lambda gradient: gradient.add_(1.0),
    "other memory": other_data,
    "other memory of its own accord": lambda gradient: gradient.resize_(8),
    "less of its memory": lambda gradient: gradient.resize_(2),
    "no memory": lambda gradient: gradient.untyped_storage().resize_(0),
    "more memory": lambda gradient: gradient.untyped_storage().resize_(1 << 20),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_has_changed_in_a_gradient_in_flight_is_found(change):
    parameter = torch.zeros(4, requires_grad=True)
    parameter.grad = torch.ones(4)
    in_flight = InFlightGradient(describe(parameter, "p", hvd.Compression.none), parameter.grad)
    assert in_flight.check() is parameter.grad
    change(parameter.grad)
    with pytest.raises(StepOrderError, match="The gradient of p was changed"):
        in_flight.check()


def change_after_start(start, change, come):
    tensor = torch.full((ELEMENTS,), hvd.rank() + 1.0)
    handle = start(tensor) if hvd.rank() == 0 else None
    if handle is not None:
        change(tensor)
        kept = sevens()
        come.set()
        with pytest.raises(UsageError, match="while it was in flight"):
            hvd.synchronize(handle)
        hvd.barrier()
        return {value for each in kept for value in each.unique().tolist()}
    come.wait()
    hvd.synchronize(start(tensor))
    hvd.barrier()
    return set(tensor.unique().tolist())


def start_allreduce(tensor):
    return hvd.allreduce_async_(tensor, name="t")


def start_broadcast(tensor):
    return hvd.broadcast_async_(tensor, root_rank=0, name="t")


@pytest.mark.parametrize(
    ("start", "change", "result"),
    [(start_allreduce, other_storage, 1.5), (start_broadcast, other_data, 1.0)],
)
def test_a_tensor_that_is_given_other_memory_in_flight_is_refused_and_the_others_get_its_values(
    start, change, result, tmp_path
):
    ranks = run(change_after_start, 2, start, change, Flag(tmp_path / "flag"))
    assert ranks == [{7.0}, {result}]


class Lock:
    """A lock that says when somebody wants it."""

    def __init__(self, lock, wanted):
        self._lock = lock
        self._wanted = wanted

    def __enter__(self):
        self._wanted.set()
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


class Meeting(set):
    """Whoever adds to it first goes on when a second thread is done, or waits for a lock."""

    def __init__(self, start, went_on):
        super().__init__()
        self._start = start
        self._went_on = went_on

    def add(self, member):
        super().add(member)
        if len(self) == 1:
            self._went_on.clear()
            self._start()
            self._went_on.wait()


def hooks_on_two_threads():
    model, optimizer = training("a group")
    first, second = model.layers
    (operation,) = set(optimizer._operations.values())
    failures, went_on = [], threading.Event()

    def fire(parameter):
        try:
            parameter.backward(torch.ones(ELEMENTS))
        except HvdtuneError as error:
            failures.append(error)
        finally:
            went_on.set()

    other = threading.Thread(target=fire, args=[second])
    optimizer.pass_watch.lock = Lock(optimizer.pass_watch.lock, went_on)
    operation._ready = Meeting(other.start, went_on)
    fire(first)
    other.join()
    optimizer.synchronize()
    return failures, {value for p in (first, second) for value in p.grad.unique().tolist()}


def test_hooks_of_two_devices_send_what_they_complete_together_once():
    assert run(hooks_on_two_threads, 2) == [([], {1.0})] * 2


def leave_with_handles():
    """Nobody synchronizes them before the job is over."""
    memory = np.ones(ELEMENTS, np.float32)
    held = weakref.ref(memory)
    done = hvd.allreduce_async(torch.ones(2), op=hvd.Sum, name="done")
    failed = hvd.allreduce_async_(
        torch.frombuffer(memory, dtype=torch.float32), name=str(hvd.rank())
    )
    del memory
    hvd.barrier()
    native = weakref.ref(PROCESS.runtime)
    before = held() is not None
    hvd.shutdown()
    gc.collect()
    found = before, held() is None, native() is None, len(PROCESS.in_flight)
    with pytest.raises((ShutdownError, RankLostError)):
        hvd.synchronize(failed)
    return found, hvd.synchronize(done).tolist(), len(PROCESS.pending)


def test_shutdown_lets_go_of_the_memory_and_the_job_of_what_nobody_waited_for():
    expected = (True, True, True, 0), [2.0, 2.0], 0
    assert run(leave_with_handles, 2) == [expected, expected]


def fail_to_send(raised):
    """The second gradient has the name of an operation that is in flight on rank 0."""
    model, optimizer = training("alone")
    if hvd.rank() == 1:
        hvd.allreduce_(torch.full((ELEMENTS,), 3.0), name="layers.0")
        nothing_missing = torch.zeros(1, dtype=torch.int32)
        hvd.allreduce_(nothing_missing, op=hvd.Sum, name="complete.layers.0")
        raised.wait()
        hvd.allreduce_(torch.ones(2), name="layers.1")
        return None
    taken = hvd.allreduce_async_(torch.ones(2), name="layers.1")
    with pytest.raises(DuplicateNameError):
        model(1.0).backward()
    in_flight = {pending.batch for pending in PROCESS.pending.values()}
    only_taken = PROCESS.in_flight == in_flight
    optimizer.zero_grad()
    raised.set()
    return only_taken, hvd.synchronize(taken).tolist()


def test_a_step_of_which_a_part_could_not_be_sent_has_nothing_in_flight_when_it_raises(tmp_path):
    assert run(fail_to_send, 2, Flag(tmp_path / "flag")) == [(True, [1.0, 1.0]), None]


def lose_the_job_in_a_backward_pass():
    """torch keeps the graph of a backward pass, and the model, when a hook raises."""
    model, optimizer = training("alone")
    if hvd.rank() == 1:
        return None
    with pytest.raises(RankLostError):
        hvd.barrier()
    with pytest.raises(RankLostError):
        model(1.0).backward()
    held = [weakref.ref(parameter) for parameter in model.parameters()]
    del model, optimizer
    gc.collect()
    return [parameter() is None for parameter in held]


def test_a_model_is_freed_when_the_job_was_lost_in_a_backward_pass():
    assert run(lose_the_job_in_a_backward_pass, 2) == [[True, True], None]


def fail_to_become_ready():
    """As a CUDA error does."""

    def fail():
        raise RuntimeError("no device")

    tensor = torch.ones(2)
    request = allreduce_request("late", [("float32", (2,))], Reduction(hvd.Sum))
    address = tensor.data_ptr()
    handle = start(request, [address], [address], [tensor], lambda _: None, [fail])
    with pytest.raises(RuntimeError, match="no device"):
        hvd.synchronize(handle)
    return len(PROCESS.pending), len(PROCESS.in_flight)


def test_a_handle_whose_values_never_came_is_forgotten():
    assert run(fail_to_become_ready, 1) == [(0, 0)]
