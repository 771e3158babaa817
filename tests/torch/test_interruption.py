"""Calls that a signal handler interrupts, and what is called after them."""

import copy
import signal
import sys
from contextlib import contextmanager, nullcontext, suppress
from unittest import mock

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import (
    MismatchError,
    StepOrderError,
)
from tests.kit.flag import Flag
from tests.parallel.ranks import run
from tests.torch.in_flight import (
    ELEMENTS,
    KINDS,
    Model,
    SparseModel,
    averages,
    meet_twice,
    partial_pass,
    sevens,
    training,
)


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


def interrupt_a_step(kind, dropped, then, where="step"):
    trained = [*training(kind)]
    if hvd.rank() == 1:
        dropped.wait()
        found = averages(*trained, 3.0)
        meet_twice()
        return found
    if where == "step":
        with partial_pass(trained[1]):
            trained[0](1.0).backward()
        with time_limit():
            trained[1].step()
    else:
        with time_limit():
            trained[0](1.0).backward()
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


@pytest.mark.parametrize("where", ["backward", "step"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_was_interrupted_goes_on_where_it_was(kind, where, tmp_path):
    flag = Flag(tmp_path / "flag")
    (moved, in_flight), average = run(interrupt_a_step, 2, kind, flag, go_on, where)
    assert moved == average == {2.0}
    assert in_flight == 0


@contextmanager
def interrupted_behind(name):
    """The block ends as if a signal handler had raised when the function of this name returns."""

    def interrupt(frame, event, _):
        if event == "return" and frame.f_code.co_name == name:
            raise TimeLimitError  # which ends this function's own calls, too

    sys.setprofile(interrupt)
    try:
        with pytest.raises(TimeLimitError):
            yield
    finally:
        sys.setprofile(None)


def interrupt_the_first_submission():
    model = torch.nn.Linear(3, 2)
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 1.0), model.named_parameters()
    )
    loss = model(torch.full((1, 3), float(hvd.rank()))).sum()
    if hvd.rank() == 1:
        with interrupted_behind("_submit_now"):
            loss.backward()
    else:
        loss.backward()
    optimizer.step()
    return model.weight.grad.unique().tolist(), len(PROCESS.in_flight) + len(PROCESS.pending)


def test_a_step_that_was_interrupted_in_its_first_submission_goes_on():
    assert run(interrupt_the_first_submission, 2) == [([0.5], 0)] * 2


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


class InterruptedSGD(torch.optim.SGD):
    """Its first step is interrupted on rank 0."""

    interrupted = False

    def step(self):
        if hvd.rank() == 0 and not self.interrupted:
            self.interrupted = True
            raise TimeLimitError
        super().step()


def interrupt_an_update():
    model = Model()
    optimizer = hvd.DistributedOptimizer(
        InterruptedSGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    model(1.0).backward()
    if hvd.rank() == 0:
        with pytest.raises(TimeLimitError):
            optimizer.step()
        with pytest.raises(StepOrderError, match="may be inconsistent"):
            optimizer.step()
    else:
        optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    optimizer.zero_grad()
    model(1.0 + hvd.rank()).backward()
    optimizer.step()
    return {value for p in model.parameters() for value in p.detach().unique().tolist()}


def test_an_update_that_was_interrupted_is_not_combined_again():
    assert run(interrupt_an_update, 2) == [{-2.5}, {-2.5}]


def closure_of(model, optimizer, after_backward=lambda: None, around=nullcontext):
    """A closure that does everything, and the list of its losses."""
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = model(1.0 + hvd.rank())
        with around():
            loss.backward()
        after_backward()
        losses.append(loss.item())
        return loss

    return closure, losses


def interrupt_a_step_with_a_closure(come, then):
    model, optimizer = training("alone")
    closure, losses = closure_of(model, optimizer, around=lambda: partial_pass(optimizer))
    if hvd.rank() == 1:
        come.wait()
        optimizer.step(closure)
    else:
        with time_limit():
            optimizer.step(closure)
        come.set()
        if then == "synchronize":
            optimizer.synchronize()
        assert optimizer.step(closure).item() == losses[0]
    optimizer.zero_grad()
    meet_twice()
    values = {value for p in model.parameters() for value in p.detach().unique().tolist()}
    return values, len(losses), len(PROCESS.in_flight) + len(PROCESS.pending)


@pytest.mark.parametrize("then", ["step", "synchronize"])
def test_a_closure_whose_gradients_were_in_flight_is_not_called_again(then, tmp_path):
    found = run(interrupt_a_step_with_a_closure, 2, Flag(tmp_path / "flag"), then)
    assert found == [({-2.5}, 1, 0)] * 2


def interrupt_the_backward_pass_of_a_closure(come):
    model, optimizer = training("alone")
    closure, _ = closure_of(model, optimizer)
    if hvd.rank() == 1:
        come.wait()
        optimizer.step(closure)
    else:
        with time_limit():
            optimizer.step(closure)
        come.set()
        with pytest.raises(StepOrderError, match="while the closure computed"):
            optimizer.step(closure)
        optimizer.step()
    return {value for p in model.parameters() for value in p.detach().unique().tolist()}


def test_a_closure_that_was_interrupted_while_its_backward_pass_waited_needs_no_other(tmp_path):
    flag = Flag(tmp_path / "flag")
    assert run(interrupt_the_backward_pass_of_a_closure, 2, flag) == [{-2.5}] * 2


def interrupt_once(call):
    """Raises at call number `call` on rank 0."""
    calls = []

    def interrupt():
        calls.append(None)
        if hvd.rank() == 0 and len(calls) == call:
            raise TimeLimitError

    return interrupt


def interrupt_a_closure(call, what):
    """LBFGS moves parameters between two evaluations of its closure."""
    model = Model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2), model.named_parameters()
    )
    closure, _ = closure_of(model, optimizer, interrupt_once(call))
    at_first = copy.deepcopy(optimizer.state_dict())
    if hvd.rank() == 1:
        optimizer.step(closure)
    else:
        with pytest.raises(TimeLimitError):
            optimizer.step(closure)
        with pytest.raises(StepOrderError, match=what):
            optimizer.step(closure)
        optimizer.synchronize()
        for _ in range(2 - call):  # what the other rank still evaluates
            optimizer.zero_grad()
            model(1.0).backward()
            optimizer.synchronize()
    optimizer.zero_grad()
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    optimizer.load_state_dict(at_first)
    optimizer.step(closure)
    return {value for p in model.parameters() for value in p.detach().unique().tolist()}


@pytest.mark.parametrize(
    ("call", "what"), [(1, "while the closure computed"), (2, "may be inconsistent")]
)
def test_a_closure_that_was_interrupted_in_its_backward_pass_is_not_called_again(call, what):
    first, second = run(interrupt_a_closure, 2, call, what)
    assert first == second


def interrupt_a_step_of_adasum(come, then):
    model = Model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), op=hvd.Adasum
    )
    model(1.0 + hvd.rank()).backward()
    if hvd.rank() == 1:
        come.wait()
        optimizer.step()
    else:
        with time_limit():
            optimizer.step()
        with pytest.raises(StepOrderError):
            optimizer.zero_grad()
        come.set()
        if then == "step":
            optimizer.step()
        else:
            optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    meet_twice()
    values = {value for p in model.parameters() for value in p.detach().unique().tolist()}
    return values, len(PROCESS.in_flight) + len(PROCESS.pending)


# Of the ranks' steps, -1 and -2, which have one direction, Adasum makes -1.5.
@pytest.mark.parametrize(("then", "own"), [("step", -1.5), ("load_state_dict", -1.0)])
def test_a_step_of_adasum_that_was_interrupted_goes_on_or_is_given_up(then, own, tmp_path):
    found = run(interrupt_a_step_of_adasum, 2, Flag(tmp_path / "flag"), then)
    assert found == [({own}, 0), ({-1.5}, 0)]


def interrupt_the_first_step(dropped):
    """The ranks ask each other which gradients are sparse, and this is what is interrupted."""
    model = SparseModel()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
    )
    if hvd.rank() == 1:
        dropped.wait()
        return averages(model, optimizer, 3.0)
    with time_limit():
        model(1.0).backward()
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

    with partial_pass(optimizer):
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


class TwoTables(torch.nn.Module):
    """The gradient of one table is small and travels in a flat buffer."""

    def __init__(self):
        super().__init__()
        self.tables = torch.nn.ModuleList(
            [torch.nn.Embedding(rows, 64, sparse=True) for rows in (4, ELEMENTS // 64)]
        )

    def forward(self, factor):
        rows = torch.arange(4)
        return sum(table(rows).sum() for table in self.tables) * factor


def interrupt_the_end_of_a_step(which):
    """A signal comes while gradients that travelled dense are made sparse again."""
    model = TwoTables()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(model.parameters()), model.named_parameters(), sparse_as_dense=True
    )
    make_sparse = torch.Tensor.to_sparse
    calls = []

    def interrupted(tensor, *arguments):
        calls.append(tensor.shape)
        if len(calls) == which:
            raise Sent
        return make_sparse(tensor, *arguments)

    loss = model(1.0 + 2 * hvd.rank())
    torch.Tensor.to_sparse = interrupted
    with pytest.raises(Sent):
        loss.backward()
    torch.Tensor.to_sparse = make_sparse
    optimizer.step()
    found = [p.grad.coalesce() for p in model.parameters()]
    optimizer.zero_grad()
    return [(g.indices().tolist(), set(g.values().unique().tolist())) for g in found]


@pytest.mark.parametrize("which", [1, 2])
def test_a_step_that_a_signal_interrupted_at_its_end_is_completed_by_the_next_call(which):
    (small, large), there = run(interrupt_the_end_of_a_step, 2, which)
    assert small == large == ([[0, 1, 2, 3]], {2.0})
    assert there == [small, large]


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


def meet_a_time_limit_while_what_was_abandoned_ends() -> str:
    late = mock.Mock(has_ended=lambda: True, was_refused=lambda error: False)
    late.finish.side_effect = TimeoutError("of the signal handler")
    PROCESS.abandoned.add(late)
    try:
        hvd.allreduce(torch.ones(1), name="next")
        return "nothing raised"
    except TimeoutError as error:
        return str(error)
    finally:
        PROCESS.abandoned.discard(late)


def test_what_a_signal_handler_raises_while_an_abandoned_operation_ends_is_not_swallowed():
    assert run(meet_a_time_limit_while_what_was_abandoned_ends, 1) == ["of the signal handler"]
