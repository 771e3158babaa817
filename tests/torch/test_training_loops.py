"""Every kind of training loop around a DistributedOptimizer."""

import copy
import pickle
import warnings

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR, StepLR

import hvdtune.torch as hvd
from hvdtune.errors import UsageError
from tests.parallel.bodies import Bodies

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()


def run_bodies():
    warnings.simplefilter("error")
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2)


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(10, 900), torch.nn.Tanh(), torch.nn.Linear(900, 2)
    ).double()


def wrapped(model, inner=None, **options):
    inner = inner or torch.optim.SGD(model.parameters(), lr=0.015625)
    return hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters(), **options)


def batch(step, rank=None):
    """Half of a step's data, or all of it for rank=None."""
    generator = torch.Generator().manual_seed(step)
    both = torch.randn(2, 4, 10, generator=generator, dtype=torch.float64)
    return both.flatten(0, 1) if rank is None else both[rank]


def loss_of(model, inputs):
    return model(inputs).square().mean()


def values_of(model):
    return [p.detach().clone() for p in model.parameters()]


def near(first, second):
    return all((a - b).norm() <= 1e-12 * b.norm() for a, b in zip(first, second, strict=True))


def same_as_alone(loop):
    """Whether a loop(model, wrap, rank) trains on two ranks as one process does on all data."""
    model, alone = make_model(), make_model()
    loop(alone, lambda model, inner=None, **_: inner or plain(model), None)
    loop(model, wrapped, hvd.rank())
    return near(values_of(model), values_of(alone))


def plain(model):
    return torch.optim.SGD(model.parameters(), lr=0.015625)


@bodies
def ordered():
    model = make_model()
    optimizer = wrapped(model)
    kinds = []

    def first_layer():
        model[0](batch(0, hvd.rank())).mean().backward()

    def both_layers():
        loss_of(model, batch(0, hvd.rank())).backward()

    for backward, call in ((first_layer, optimizer.zero_grad), (both_layers, both_layers)):
        backward()
        with pytest.raises(AssertionError) as caught:
            call()
        kinds.append((isinstance(caught.value, UsageError), str(caught.value)))
        optimizer.step()
        optimizer.zero_grad()
    return kinds


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        pytest.param(0, "before optimizer.step() or optimizer.synchronize()", id="zero_grad"),
        pytest.param(1, "increase backward_passes_per_step", id="backward"),
    ],
)
def test_steps_out_of_order_are_assertion_errors_that_say_what_to_do(said, call, advice):
    for ours, message in (kinds[call] for kinds in said["ordered"]):
        assert ours
        assert advice in message
        assert "The gradient of 2.bias was" in message or "the gradient of 0.weight is" in message


@bodies
def clipped():
    def loop(model, wrap, rank):
        optimizer = wrap(model)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, batch(step, rank)).backward()
            if rank is not None:
                optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            if rank is None:
                optimizer.step()
            else:
                with optimizer.skip_synchronize():
                    optimizer.step()

    return same_as_alone(loop)


def scaled(step_with, fused=False):
    model = make_model().float()
    inner = torch.optim.SGD(model.parameters(), lr=0.015625, fused=fused)
    optimizer = wrapped(model, inner)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    moved = []
    for step in range(4):
        before = model[0].weight.detach().clone()
        optimizer.zero_grad()
        loss = loss_of(model, batch(step, hvd.rank()).float())
        if step == 2 and hvd.rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        step_with(scaler, optimizer)
        scaler.update()
        moved.append(not torch.equal(before, model[0].weight))
    return moved, scaler.get_scale(), values_of(model)


def by_the_book(scaler, optimizer):
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)


def simply(scaler, optimizer):
    scaler.step(optimizer)


@bodies
def with_a_scaler():
    return [scaled(by_the_book), scaled(simply), scaled(simply, fused=True)]


@pytest.mark.parametrize("way", range(3), ids=["by-the-book", "simply", "fused"])
def test_an_infinity_on_one_rank_skips_the_step_on_all(said, way):
    here, there = said["with_a_scaler"]
    *moves, values = here[way]
    *others_moves, others = there[way]
    assert moves == others_moves == [[True, True, False, True], 4.0]
    assert all(torch.equal(a, b) for a, b in zip(values, others, strict=True))
    assert all(torch.allclose(a, b) for a, b in zip(values, here[0][2], strict=True))


@bodies
def scheduled():
    """A scheduler made before wrapping, one after; state loaded in between."""
    rates = []
    for before in (True, False):
        model = make_model()
        inner = torch.optim.SGD(model.parameters(), lr=0.5)
        schedule = StepLR(inner, 1, gamma=0.5) if before else None
        optimizer = wrapped(model, inner)
        schedule = schedule or StepLR(optimizer, 1, gamma=0.5)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, batch(step, hvd.rank())).backward()
            optimizer.step()
            schedule.step()
            if step == 1:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        rates.append((optimizer.param_groups[0]["lr"], values_of(model)))
    return rates


@pytest.mark.parametrize("way", range(2), ids=["made-before-wrapping", "made-after-wrapping"])
def test_schedulers_follow_the_optimizer(said, way):
    of_both = said["scheduled"][0][0][1]
    for rate, values in (rates[way] for rates in said["scheduled"]):
        assert rate == 0.5 / 16
        assert all(torch.equal(a, b) for a, b in zip(values, of_both, strict=True))


@bodies
def momentum_cycle():
    def loop(model, wrap, rank):
        inner = torch.optim.SGD(model.parameters(), lr=0.015625, momentum=0.9)
        optimizer = wrap(model, inner)
        schedule = OneCycleLR(optimizer, max_lr=0.05, total_steps=8)
        for step in range(5):
            optimizer.zero_grad()
            loss_of(model, batch(step, rank)).backward()
            optimizer.step()
            schedule.step()

    return same_as_alone(loop)


@bodies
def hooked():
    model = make_model()
    inner = plain(model)
    seen = []
    inner.register_step_pre_hook(lambda *_: seen.append(model[0].weight.grad.clone()))
    optimizer = wrapped(model, inner)
    optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
    return seen


def test_step_hooks_run_once_and_see_combined_gradients(said):
    here, there = said["hooked"]
    assert len(here) == 4 and here[1] == here[3] == "post"
    assert torch.equal(here[0], there[0]) and torch.equal(here[2], there[2])


@bodies
def resumed():
    model = make_model()
    optimizer = wrapped(model, torch.optim.Adam(model.parameters(), lr=0.01))
    for step in range(4):
        if step == 2:
            kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
    other = make_model()
    again = wrapped(other, torch.optim.Adam(other.parameters(), lr=0.5))
    other.load_state_dict(kept[0])
    again.load_state_dict(kept[1])
    for step in (2, 3):
        again.zero_grad()
        loss_of(other, batch(step, hvd.rank())).backward()
        again.step()
    return all(torch.equal(a, b) for a, b in zip(values_of(model), values_of(other), strict=True))


@bodies
def restored():
    """State is loaded when gradients of a step that will not be taken are on their way."""

    def loop(model, wrap, rank):
        optimizer = wrap(model)
        for step in range(3):
            if step == 1:
                loss_of(model, batch(9, rank)).backward()
                optimizer.load_state_dict(optimizer.state_dict())
            optimizer.zero_grad()
            loss_of(model, batch(step, rank)).backward()
            optimizer.step()

    return same_as_alone(loop)


@bodies
def pickled():
    with pytest.raises(UsageError, match=r"optimizer\.state_dict") as caught:
        pickle.dumps(wrapped(make_model()))
    return str(caught.value)


def test_a_wrapper_is_not_pickled(said):
    assert all("cannot be pickled: use optimizer.state_dict()" in text for text in said["pickled"])


@bodies
def compiled():
    def loop(model, wrap, rank):
        optimizer = wrap(model)
        model = torch.compile(model, backend="aot_eager")
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, batch(step, rank)).backward()
            optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("default")  # torch's own, about its compiler
        return same_as_alone(loop)


def images(rank):
    both = torch.arange(2 * 4 * 3 * 8 * 8, dtype=torch.float64).sin().view(2, 4, 3, 8, 8)
    return both.flatten(0, 1) if rank is None else both[rank]


@bodies
def channels_last():
    """Rank 0 does not use the last layer at first; fused kernels want the parameter's strides."""

    def loop(rank, wrap):
        torch.manual_seed(2)
        layers = [torch.nn.Conv2d(3, 40, 3), torch.nn.Conv2d(40, 4, 3), torch.nn.Conv2d(4, 6, 3)]
        model = torch.nn.Sequential(*layers).double().to(memory_format=torch.channels_last)
        inner = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
        optimizer = wrap(model, inner)
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 2)
            out = [
                (model if step or r == 1 else model[:2])(images(r)).square().mean() / 2
                for r in ((0, 1) if rank is None else (rank,))
            ]
            (sum(out) if rank is None else 2 * out[0]).backward()
            optimizer.step()
        strides = {p.grad.stride() == p.stride() for p in model.parameters()}
        return values_of(model), strides

    alone, _ = loop(None, lambda model, inner: inner)
    values, strides = loop(hvd.rank(), wrapped)
    return near(values, alone) and strides == {True}


@bodies
def foreach():
    results = []
    for options in ({"foreach": True}, {"foreach": False}, {"fused": True}):
        model = make_model()
        optimizer = wrapped(model, torch.optim.AdamW(model.parameters(), lr=0.01, **options))
        for step in range(3):
            optimizer.zero_grad(set_to_none=False)
            loss_of(model, batch(step, hvd.rank())).backward()
            optimizer.step()
        results.append(values_of(model))
    return all(near(results[0], other) for other in results[1:])


@bodies
def tied():
    def loop(model, wrap, rank):
        shared = torch.nn.Linear(10, 10, bias=False).double()
        torch.nn.init.eye_(shared.weight)
        model = torch.nn.Sequential(shared, shared, model)
        optimizer = wrap(model)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, batch(step, rank)).backward()
            optimizer.step()

    return same_as_alone(loop)


@bodies
def thawed():
    """Layers frozen at first are trained later, others are frozen in between."""

    def loop(model, wrap, rank):
        first, last = model[0], model[2]
        first.requires_grad_(False)
        optimizer = wrap(model)
        for step in range(6):
            first.requires_grad_(step in (1, 2, 5))
            last.requires_grad_(step != 2)
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(model, batch(step, rank)).backward()
            optimizer.step()

    return same_as_alone(loop)


@bodies
def adversaries():
    """Two optimizers in turns, each while the other's parameters are frozen."""

    def loop(model, wrap, rank):
        halves = [model[0], model[2]]
        optimizers = [wrap(half) for half in halves]
        for step in range(6):
            mine, other = step % 2, 1 - step % 2
            halves[mine].requires_grad_(True)
            halves[other].requires_grad_(False)
            optimizers[mine].zero_grad()
            loss_of(model, batch(step, rank)).backward()
            optimizers[mine].step()

    return same_as_alone(loop)


@bodies
def several_losses():
    def loop(model, wrap, rank):
        optimizer = wrap(model, backward_passes_per_step=3)
        for step in range(3):
            optimizer.zero_grad()
            out = model(batch(step, rank))
            out.square().mean().backward(retain_graph=True)
            out.mean().backward(retain_graph=True)
            out[:, 0].mean().backward()
            optimizer.step()

    return same_as_alone(loop)


@bodies
def passes_changed():
    def loop(model, wrap, rank):
        optimizer = wrap(model)
        for step in range(4):
            if rank is not None:
                optimizer.set_backward_passes_per_step(1 + step)
            optimizer.zero_grad()
            for i in range(1 + step):
                loss_of(model, batch(10 * step + i, rank)).backward()
            optimizer.step()

    return same_as_alone(loop)


@bodies
def closures():
    """As Lightning does it: the closure zeroes, computes and goes backward."""

    def loop(model, wrap, rank):
        optimizer = wrap(model)
        losses = []
        for step in range(4):

            def closure(step=step):
                optimizer.zero_grad()
                loss = loss_of(model, batch(step, rank))
                loss.backward()
                return loss

            losses.append(optimizer.step(closure))
        assert all(loss is not None for loss in losses)

    return same_as_alone(loop)


@bodies
def replaced():
    """A wrapper that nobody refers to any more sends nothing."""

    def loop(model, wrap, rank):
        for phase in range(2):
            inner = torch.optim.SGD(model.parameters(), lr=0.015625, momentum=0.5 * phase)
            optimizer = wrap(model, inner)
            for step in range(2):
                optimizer.zero_grad()
                loss_of(model, batch(2 * phase + step, rank)).backward()
                optimizer.step()

    return same_as_alone(loop)


class Plain(torch.optim.SGD):
    """As optimizers were written before PyTorch gave `zero_grad` and `step` their arguments."""

    def zero_grad(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self):
        return super().step()


@bodies
def without_arguments():
    def loop(model, wrap, rank):
        for options in ({}, {"op": hvd.Adasum}):
            optimizer = wrap(model, Plain(model.parameters(), lr=0.015625), **options)
            for step in range(3):
                optimizer.zero_grad()
                # Adasum of steps that are the same is the step.
                loss_of(model, batch(step, None if options else rank)).backward()
                optimizer.step()

    return same_as_alone(loop)


class Rows(torch.utils.data.Dataset):
    def __init__(self, rank):
        self.rank = rank

    def __len__(self):
        return 6

    def __getitem__(self, step):
        return batch(step, self.rank)


@bodies
def loaded():
    def loop(model, wrap, rank):
        optimizer = wrap(model)
        loader = torch.utils.data.DataLoader(
            Rows(rank), batch_size=None, num_workers=2, multiprocessing_context="fork"
        )
        for _ in range(2):
            for inputs in loader:
                optimizer.zero_grad(set_to_none=False)
                loss_of(model, inputs).backward()
                optimizer.step()

    return same_as_alone(loop)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("clipped", id="clipping-after-synchronize-clips-the-combined-gradient"),
        pytest.param("momentum_cycle", id="a-one-cycle-schedule"),
        pytest.param("resumed", id="a-state-dict-resumes-training"),
        pytest.param("restored", id="loading-state-forgets-a-step-that-was-begun"),
        pytest.param("compiled", id="a-compiled-model"),
        pytest.param("channels_last", id="channels-last-gradients-keep-their-strides"),
        pytest.param("foreach", id="foreach-and-fused-optimizers-agree"),
        pytest.param("tied", id="a-shared-layer"),
        pytest.param("thawed", id="freezing-and-thawing-between-steps"),
        pytest.param("adversaries", id="two-optimizers-take-turns"),
        pytest.param("several_losses", id="backward-passes-through-one-graph-add-up"),
        pytest.param("passes_changed", id="the-number-of-passes-changes"),
        pytest.param("closures", id="a-closure-does-everything"),
        pytest.param("replaced", id="an-optimizer-is-replaced-by-another"),
        pytest.param("loaded", id="a-data-loader-s-workers"),
        pytest.param("without_arguments", id="an-optimizer-whose-methods-take-no-arguments"),
    ],
)
def test_two_ranks_train_as_one_process_does(said, body):
    assert said[body] == [True, True]


alone = Bodies()


def run_alone():
    return alone.run_all()


@alone
def by_itself():
    model, other = make_model(), make_model()
    options = [{}, {"op": hvd.Adasum}, {"groups": 2}, {"compression": hvd.Compression.fp16}]
    for more in options:
        optimizer = wrapped(model, backward_passes_per_step=2, **more)
        inner = plain(other)
        for trained, steps in ((model, optimizer), (other, inner)):
            steps.zero_grad()
            loss_of(trained, batch(1)).backward()
            loss_of(trained, batch(2)).backward()
            steps.step()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
        inner.step()
    return all(torch.equal(a, b) for a, b in zip(values_of(model), values_of(other), strict=True))


def test_a_lone_rank_trains_as_without_a_wrapper():
    assert alone.of_every_rank(run_alone, 1) == {"by_itself": [True]}
