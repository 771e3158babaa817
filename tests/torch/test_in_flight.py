"""Gradients and tensors that somebody drops, or stops waiting for, while they are in flight."""

import gc
import signal
import threading
import weakref
from contextlib import contextmanager, suppress

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
    MismatchError,
    RankLostError,
    ShutdownError,
    StepOrderError,
    UsageError,
)
from hvdtune.torch.gradients import InFlightGradient, describe
from tests.kit.flag import Flag
from tests.parallel.ranks import run

ELEMENTS = 1 << 19  # the memory of one goes back to the system when it is freed


class Model(torch.nn.Module):
    """Its gradients are all `factor`."""

    def __init__(self, elements=ELEMENTS, layers=2):
        super().__init__()
        self.layers = torch.nn.ParameterList([torch.zeros(elements) for _ in range(layers)])

    def forward(self, factor):
        return sum(layer.sum() for layer in self.layers) * factor


class SparseModel(torch.nn.Module):
    """Every row of its sparse gradient is `factor`."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(ELEMENTS // 64, 64, sparse=True)
        torch.nn.init.zeros_(self.table.weight)

    def forward(self, factor):
        return self.table(torch.arange(ELEMENTS // 64)).sum() * factor


KINDS = {
    "alone": (Model, {}),
    "a group": (Model, {"groups": 1}),
    "compressed": (Model, {"compression": hvd.Compression.fp16}),
    "sparse": (SparseModel, {}),
    "made dense": (SparseModel, {"sparse_as_dense": True}),
}


def training(kind):
    make, options = KINDS[kind]
    model = make()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), **options
    )
    model(1.0).backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def averages(model, optimizer, factor):
    """Returns the values that occur in the gradients of the next step."""
    model(factor).backward()
    optimizer.synchronize()
    found = set()
    for parameter in model.parameters():
        found.update(parameter.grad.to_dense().unique().tolist())
    return found


def sevens():
    """Returns tensors that lie where memory has been freed."""
    gc.collect()
    return [torch.full((ELEMENTS,), 7.0) for _ in range(8)]


def meet_twice():
    """After the first time everything before has ended, and the second lets go of it."""
    hvd.barrier()
    hvd.barrier()


def drop_after_backward(kind, dropped):
    model, optimizer = training(kind)
    if hvd.rank() == 1:
        dropped.wait()
        found = averages(model, optimizer, 3.0)
        meet_twice()
        return found
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
    model(1.0).backward()
    optimizer._send()  # which sparse ones wait for
    for parameter in model.parameters():
        change(parameter.grad)
    kept = sevens()
    dropped.set()
    with pytest.raises(StepOrderError, match="was changed"):
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
    with pytest.raises(StepOrderError, match="the gradient of p was changed"):
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
    optimizer._hooks_lock = Lock(optimizer._hooks_lock, went_on)
    operation._ready = Meeting(other.start, went_on)
    fire(first)
    other.join()
    optimizer.synchronize()
    return failures, {value for p in (first, second) for value in p.grad.unique().tolist()}


def test_hooks_of_two_devices_send_what_they_complete_together_once():
    assert run(hooks_on_two_threads, 2) == [([], {1.0})] * 2


class TimeLimitError(Exception):
    pass


def _is_waiting(frame):
    while frame is not None:
        if frame.f_code.co_name in ("finish", "finish_one"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def time_limit():
    """A signal whose handler raises, once the block waits for operations."""

    def handle(number, frame):
        if _is_waiting(frame):
            raise TimeLimitError

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(TimeLimitError):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def interrupt_a_step(kind, dropped, then):
    trained = [*training(kind)]
    if hvd.rank() == 1:
        dropped.wait()
        found = averages(*trained, 3.0)
        meet_twice()
        return found
    trained[0](1.0).backward()
    with time_limit():
        trained[1].step()
    with pytest.raises(StepOrderError):
        trained[1].zero_grad()
    return then(trained, dropped)


def go_on(trained, dropped):
    model, optimizer = trained
    before = [parameter.detach().clone() for parameter in model.parameters()]
    dropped.set()
    optimizer.step()
    meet_twice()
    optimizer.zero_grad()
    moved = set()
    for parameter, was in zip(model.parameters(), before, strict=True):
        moved.update((was - parameter.detach()).unique().tolist())
    return moved, len(PROCESS.in_flight) + len(PROCESS.pending)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_was_interrupted_goes_on_where_it_was(kind, tmp_path):
    (moved, in_flight), average = run(interrupt_a_step, 2, kind, Flag(tmp_path / "flag"), go_on)
    assert moved == average == {2.0}
    assert in_flight == 0


def give_up(trained, dropped):
    trained.clear()
    kept = sevens()
    dropped.set()
    meet_twice()
    return {value for tensor in kept for value in tensor.unique().tolist()}, len(
        PROCESS.in_flight
    ) + len(PROCESS.pending)


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_interrupted_step_sent_lives_on_when_the_optimizer_is_dropped(kind, tmp_path):
    (values, in_flight), average = run(interrupt_a_step, 2, kind, Flag(tmp_path / "flag"), give_up)
    assert values == {7.0}
    assert average == {2.0}
    assert in_flight == 0


def forget_a_step(trained, dropped):
    optimizer = trained[1]
    state = optimizer.state_dict()
    dropped.set()
    optimizer.load_state_dict(state)
    optimizer.zero_grad()
    meet_twice()
    return len(PROCESS.in_flight) + len(PROCESS.pending)


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_was_interrupted_is_given_up_by_load_state_dict(kind, tmp_path):
    in_flight, average = run(interrupt_a_step, 2, kind, Flag(tmp_path / "flag"), forget_a_step)
    assert average == {2.0}
    assert in_flight == 0


def interrupt_the_first_step(dropped):
    """The ranks ask each other which gradients are sparse, and this is what is interrupted."""
    model = SparseModel()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    if hvd.rank() == 1:
        dropped.wait()
        return averages(model, optimizer, 3.0)
    model(1.0).backward()
    with time_limit():
        optimizer.step()
    dropped.set()
    optimizer.synchronize()
    return set(model.table.weight.grad.to_dense().unique().tolist())


def test_a_first_step_that_was_interrupted_goes_on_where_it_was(tmp_path):
    assert run(interrupt_the_first_step, 2, Flag(tmp_path / "flag")) == [{2.0}, {2.0}]


def interrupt_a_handle(come):
    tensor = torch.full((ELEMENTS,), hvd.rank() + 1.0)
    if hvd.rank() == 1:
        come.wait()
        hvd.allreduce_(tensor, name="t")
        return set(tensor.unique().tolist())
    handle = hvd.allreduce_async_(tensor, name="t")
    with time_limit():
        hvd.synchronize(handle)
    come.set()
    hvd.synchronize(handle)
    return set(tensor.unique().tolist())


def test_a_handle_whose_synchronize_was_interrupted_can_be_synchronized_again(tmp_path):
    assert run(interrupt_a_handle, 2, Flag(tmp_path / "flag")) == [{1.5}, {1.5}]


class Ending:
    """A runtime whose call ends, and then a signal handler raises before Python has the result."""

    def __init__(self, native):
        self._native = native

    def finish(self, *arguments):
        assert self._native.finish(*arguments)
        raise TimeLimitError

    def __getattr__(self, name):
        return getattr(self._native, name)


def interrupt_at_the_end(start):
    """The signal comes in the moment in which the operation is done."""
    tensor = torch.arange(4.0)
    handle = start(tensor)
    batch = PROCESS.pending[handle].batch
    batch._native = Ending(batch._native)
    with pytest.raises(TimeLimitError):
        hvd.synchronize(handle)
    result = hvd.synchronize(handle)
    return result.tolist(), len(PROCESS.pending), len(PROCESS.in_flight)


@pytest.mark.parametrize(
    "start",
    [hvd.allreduce_async, hvd.allreduce_async_, hvd.allgather_async],
    ids=lambda f: f.__name__,
)
def test_a_handle_keeps_the_result_of_an_operation_that_ended_as_a_signal_came(start):
    assert run(interrupt_at_the_end, 1, start) == [([0.0, 1.0, 2.0, 3.0], 0, 0)]


def interrupt_a_failure(come):
    """The signal comes while the exception of a failed operation is being made."""
    tensor = torch.ones(2 + hvd.rank())
    if hvd.rank() == 1:
        come.wait()
        handle = hvd.allreduce_async_(tensor, name="t")
    else:
        handle = hvd.allreduce_async_(tensor, name="t")
        batch, make = PROCESS.pending[handle].batch, MismatchError.__init__

        def interrupted(*arguments):
            MismatchError.__init__ = make
            raise TimeLimitError

        MismatchError.__init__ = interrupted
        come.set()
        with pytest.raises(TimeLimitError):
            batch.finish()
    with pytest.raises(MismatchError):
        hvd.synchronize(handle)
    return len(PROCESS.pending), len(PROCESS.in_flight)


def test_a_failure_is_told_though_a_signal_came_while_it_was_made(tmp_path):
    assert run(interrupt_a_failure, 2, Flag(tmp_path / "flag")) == [(0, 0), (0, 0)]


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


class Sent(Exception):
    """Raised by a signal handler, as it were, when what a step sends has been added."""


def interrupt_sending(kind):
    """A signal comes as soon as the first operation of a step has been added."""
    model, optimizer = training(kind)
    batcher = optimizer._batcher
    if hvd.rank() == 0:

        def flush():
            del batcher.flush
            raise Sent

        batcher.flush = flush
    with suppress(Sent):
        model(1.0 + 2 * hvd.rank()).backward()
    optimizer.synchronize()
    values = set()
    for parameter in model.parameters():
        values.update(parameter.grad.unique().tolist())
    return values, len(PROCESS.in_flight)


def test_what_a_step_had_sent_when_a_signal_came_is_not_sent_again():
    assert run(interrupt_sending, 2, "a group") == [({2.0}, 0)] * 2


def interrupt_a_sparse_gradient():
    """A signal comes while the first sparse gradient is prepared to be sent."""
    model, optimizer = training("sparse")
    coalesce = torch.Tensor.coalesce
    if hvd.rank() == 0:

        def interrupted(tensor):
            torch.Tensor.coalesce = coalesce
            raise Sent

        torch.Tensor.coalesce = interrupted
    with suppress(Sent):
        model(1.0 + 2 * hvd.rank()).backward()
    optimizer.synchronize()
    return set(model.table.weight.grad.to_dense().unique().tolist())


def test_a_sparse_gradient_that_a_signal_kept_from_being_sent_is_sent_by_the_next_call():
    assert run(interrupt_a_sparse_gradient, 2) == [{2.0}, {2.0}]


def interrupt_receiving():
    """A signal comes when a compressed gradient has its combined value."""
    model, optimizer = training("compressed")
    copy = torch.Tensor.copy_

    def interrupted(tensor, *arguments):
        copy(tensor, *arguments)
        torch.Tensor.copy_ = copy
        raise Sent

    model(1.0 + 2 * hvd.rank()).backward()
    optimizer._send()
    optimizer._batcher.flush()
    torch.Tensor.copy_ = interrupted
    with pytest.raises(Sent):
        optimizer.synchronize()
    optimizer.synchronize()
    return {value for p in model.parameters() for value in p.grad.unique().tolist()}


def test_a_gradient_that_was_being_received_when_a_signal_came_is_received_by_the_next_call():
    assert run(interrupt_receiving, 2) == [{2.0}, {2.0}]


def fail_to_send(raised):
    """The second gradient has the name of an operation that is in flight on rank 0."""
    model, optimizer = training("alone")
    if hvd.rank() == 1:
        hvd.allreduce_(torch.full((ELEMENTS,), 3.0), name="layers.0")
        raised.wait()
        hvd.allreduce_(torch.ones(2), name="layers.1")
        return None
    taken = hvd.allreduce_async_(torch.ones(2), name="layers.1")
    model(1.0).backward()
    with pytest.raises(DuplicateNameError):
        optimizer.step()
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
    model(1.0).backward()
    with pytest.raises(RankLostError):
        optimizer.step()
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


def interrupt_blocking_calls(come):
    def tensors():
        return [torch.full((ELEMENTS,), hvd.rank() + 1.0) for _ in range(3)]

    if hvd.rank() == 1:
        come.wait()
        given = tensors()
        combined = hvd.allreduce(given[0], name="t")
        hvd.broadcast_parameters(given, root_rank=0)
        meet_twice()
        return [set(tensor.unique().tolist()) for tensor in (combined, *given)]
    with time_limit():
        hvd.allreduce_(tensors()[0], name="t")
    with time_limit():
        hvd.broadcast_parameters(tensors(), root_rank=0)
    kept = sevens()
    come.set()
    meet_twice()
    found = {value for tensor in kept for value in tensor.unique().tolist()}
    return found, len(PROCESS.pending), len(PROCESS.in_flight)


def test_blocking_calls_that_were_interrupted_end_when_the_other_ranks_have_come(tmp_path):
    abandoned, theirs = run(interrupt_blocking_calls, 2, Flag(tmp_path / "flag"))
    assert abandoned == ({7.0}, 0, 0)
    assert theirs == [{1.5}, {1.0}, {1.0}, {1.0}]
