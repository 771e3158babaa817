"""Scripts that change gradients between `backward` and `step`, as they would in one process."""

import itertools

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import hvdtune.torch as hvd
from hvdtune.errors import StepOrderError
from tests.parallel.bodies import Bodies

bodies = Bodies()


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def found():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2)


class Net(torch.nn.Module):
    """Small layers, whose gradients are packed, a large one, and a sparse table.

    Attributes:
        extra: a layer that only some passes use.
    """

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.Embedding(300, 8, sparse=True)
        self.small = torch.nn.Linear(8, 8)
        self.large = torch.nn.Linear(8, 300)
        self.last = torch.nn.Linear(300, 1)
        self.extra = torch.nn.Linear(1, 1)
        self.double()

    def forward(self, rows, *, whole):
        out = self.last(torch.tanh(self.large(torch.tanh(self.small(self.table(rows))))))
        return self.extra(out) if whole else out


def batch(step, rank):
    """Half of a step's rows, or all of them for rank=None."""
    both = (torch.arange(16).view(2, 8) * (3 * step + 7)) % 300
    return both.flatten() if rank is None else both[rank]


def dense(model):
    return [p for p in model.parameters() if p.grad is not None and not p.grad.is_sparse]


def all_gradients(model):
    return [p for p in model.parameters() if p.grad is not None]


def clip_norm(model, _):
    torch.nn.utils.clip_grad_norm_(dense(model), 0.01)


def clip_value(model, _):
    torch.nn.utils.clip_grad_value_(dense(model), 1e-3)


def unscale(model, optimizer):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.zeros(1))
    scaler.unscale_(optimizer)


def multiply(model, _):
    for p in all_gradients(model):
        p.grad.mul_(p.grad.to_dense().norm())


def replace(model, _):
    for p in all_gradients(model):
        p.grad = p.grad * p.grad.to_dense().norm()


def remove(model, _):
    model.zero_grad()


def through_data(model, _):
    for p in dense(model):
        p.grad.data.clamp_(-1e-3, 1e-3)


def through_numpy(model, _):
    for p in all_gradients(model):
        array = p.grad._values().numpy() if p.grad.is_sparse else p.grad.numpy()
        array *= float(p.grad.to_dense().norm())


CHANGES = [clip_norm, clip_value, unscale, multiply, replace, through_data, through_numpy]
OPTIONS = {
    "as it comes": {},
    "kept": {},
    "groups": {"groups": 2},
    "two passes": {"backward_passes_per_step": 2},
    "made dense": {"sparse_as_dense": True},
}


def train(change, options, rank):
    """Return the parameters after each of three steps."""
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    if rank is not None:
        optimizer = hvd.DistributedOptimizer(
            optimizer, model.named_parameters(), **OPTIONS[options]
        )
    values = []
    for step in range(3):
        optimizer.zero_grad(set_to_none=options != "kept")
        for _ in range(2 if options == "two passes" else 1):
            model(batch(step, rank), whole=True).square().mean().backward()
        change(model, optimizer)
        optimizer.step()
        values.append([p.detach().clone() for p in model.parameters()])
    return values


@bodies
def changed():
    wrong = []
    for change, options in itertools.product(CHANGES, OPTIONS):
        alone = train(change, options, None)
        ours = train(change, options, hvd.rank())
        for step, (a, b) in enumerate(zip(alone, ours, strict=True)):
            if not all(torch.allclose(x, y, rtol=1e-9, atol=0) for x, y in zip(a, b, strict=True)):
                wrong.append((change.__name__, options, step))
    return wrong


def test_a_change_of_any_kind_in_any_step_trains_as_one_process_does(found):
    assert found["changed"] == [[], []]


@bodies
def scaled_in_partial_passes():
    """A scaler combines gradients before it unscales them."""

    def values(rank):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        if rank is not None:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        for step in range(5):
            optimizer.zero_grad()
            loss = model(batch(step, rank), whole=step == 2).square().mean()
            bad = step in (0, 3) and rank in (None, 1)
            scaler.scale(loss * float("inf") if bad else loss).backward()
            scaler.unscale_(optimizer)
            clip_norm(model, optimizer)
            scaler.step(optimizer)
            scaler.update()
        return scaler.get_scale(), [p.detach() for p in model.parameters()]

    (scale, ours), (right, alone) = values(hvd.rank()), values(None)
    near = all(torch.allclose(a, b, rtol=1e-9, atol=0) for a, b in zip(ours, alone, strict=True))
    return scale == right == 4.0, near


def test_a_scaler_with_clipping_is_right_after_a_pass_that_lacks_gradients(found):
    assert found["scaled_in_partial_passes"] == [(True, True)] * 2


def refusal(call):
    try:
        call()
    except StepOrderError as error:
        return str(error)
    return ""


@bodies
def changed_in_partial_passes():
    """Only whole passes wait. In others, `step` finds what has changed since."""
    said = []
    for change, begin in itertools.product([clip_norm, multiply, replace, remove], [0, 2]):
        model = Net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters()
        )
        for step in range(begin):
            model(batch(step, hvd.rank()), whole=True).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        model(batch(begin, hvd.rank()), whole=False).square().mean().backward()
        change(model, optimizer)
        said.append(refusal(optimizer.step))
    return said


def test_a_change_after_a_pass_that_lacks_gradients_is_an_error_on_all_ranks(found):
    for messages in found["changed_in_partial_passes"]:
        assert len(messages) == 8
        for message in messages:
            assert "was changed before it was combined" in message
            assert "optimizer.synchronize()" in message


@bodies
def remedied():
    """The remedy of the error, and a layer that no rank has used: it counts no more."""

    def values(rank, synchronizes):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        if rank is not None:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        for step in range(4):
            optimizer.zero_grad()
            model(batch(step, rank), whole=False).square().mean().backward()
            if rank is not None and step in synchronizes:
                optimizer.synchronize()
                clip_norm(model, optimizer)
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                clip_norm(model, optimizer)
                optimizer.step()
        return [p.detach() for p in model.parameters()]

    alone = values(None, ())
    return [
        all(torch.allclose(a, b, rtol=1e-9, atol=0) for a, b in zip(alone, ours, strict=True))
        for ours in (values(hvd.rank(), range(4)), values(hvd.rank(), [0]))
    ]


def test_synchronize_before_the_change_is_right_and_unused_layers_need_it_once(found):
    assert found["remedied"] == [[True, True]] * 2


@bodies
def scaled():
    """torch's own recipe. The step in which one rank has an infinity is skipped by both."""
    moved = []
    for width in (4, 3000):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.Linear(width, 1))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), 0.01), model.named_parameters()
        )
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(4):
            before = model[0].weight.detach().clone()
            optimizer.zero_grad()
            loss = model(torch.ones(2, 6)).square().mean()
            bad = step in (0, 2) and hvd.rank() == 1
            scaler.scale(loss * float("inf") if bad else loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            moved.append(not torch.equal(before, model[0].weight))
        moved.append(scaler.get_scale())
        moved.append(all(bool(p.isfinite().all()) for p in model.parameters()))
    return moved


def test_an_infinity_on_one_rank_skips_the_step_on_both_with_unscale_and_clipping(found):
    assert found["scaled"] == [[False, True, False, True, 256.0, True] * 2] * 2


@bodies
def accumulated():
    """Two passes per step, but the data end after one. Then a change between two passes."""
    model = Net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        model.named_parameters(),
        backward_passes_per_step=2,
    )

    def backward():
        model(batch(1, hvd.rank()), whole=True).square().mean().backward()

    backward()
    clip_norm(model, optimizer)
    said = [refusal(optimizer.step)]
    optimizer.zero_grad()
    backward()
    clip_norm(model, optimizer)
    said.append(refusal(backward))
    optimizer.load_state_dict(optimizer.state_dict())
    return said


def test_a_change_while_gradients_accumulate_is_an_error(found):
    for messages in found["accumulated"]:
        assert len(messages) == 2
        assert all("was changed before it was combined" in message for message in messages)


def adversarial(rank, zeroes):
    """The generator's backward fills the discriminator's gradients, too."""
    torch.manual_seed(2)
    generator = torch.nn.Linear(4, 90).double()
    discriminator = torch.nn.Sequential(torch.nn.Linear(90, 30), torch.nn.Linear(30, 1)).double()
    models = {"generator": generator, "discriminator": discriminator}
    optimizers = []
    for name, model in models.items():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if rank is not None:
            named = [(f"{name}.{n}", p) for n, p in model.named_parameters()]
            optimizer = hvd.DistributedOptimizer(optimizer, named)
        optimizers.append(optimizer)
    for step in range(3):
        both = torch.arange(16.0).view(4, 4).add(step).sin().double()
        noise = both if rank is None else both[2 * rank : 2 * rank + 2]
        optimizers[0].zero_grad()
        discriminator(generator(noise)).mean().backward()
        optimizers[0].step()
        if zeroes:
            optimizers[1].zero_grad()
        discriminator(generator(noise).detach()).square().mean().backward()
        optimizers[1].step()
    return [p.detach() for model in models.values() for p in model.parameters()]


@bodies
def filled_by_another_model():
    alone, ours = adversarial(None, True), adversarial(hvd.rank(), True)
    right = all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(alone, ours, strict=True))
    return right, refusal(lambda: adversarial(hvd.rank(), False))


def test_gradients_that_another_model_filled_are_dropped_or_named(found):
    for right, message in found["filled_by_another_model"]:
        assert right
        assert "The gradient of discriminator." in message
        assert "If backward() of another model filled it" in message
        assert "zero_grad()" in message


def near_alone(loop):
    """Whether a loop(model, wrap, rank) trains on two ranks as in one process."""
    model, alone = Net(), Net()
    loop(alone, lambda: torch.optim.SGD(alone.parameters(), lr=0.1), None)
    loop(
        model,
        lambda: hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        ),
        hvd.rank(),
    )
    return all(
        torch.allclose(a, b, rtol=1e-9)
        for a, b in zip(model.parameters(), alone.parameters(), strict=True)
    )


@bodies
def two_losses():
    """Each of two backward calls in a step computes other gradients."""

    def loop(model, wrap, rank):
        optimizer = wrap()
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 1)
            model.small(torch.ones(1, 8).double() * step).sum().backward()
            hidden = model.table(batch(step, rank))
            model.extra(model.last(model.large(hidden))).mean().backward()
            optimizer.step()

    return near_alone(loop)


@bodies
def branches():
    """A rank leaves a layer out, and both ranks call a collective before `step`."""

    def loop(model, wrap, rank):
        optimizer = wrap()
        for step in range(4):
            optimizer.zero_grad()
            ranks = [0, 1] if rank is None else [rank]
            losses = [model(batch(step, r), whole=(step + r) % 2 == 0).mean() for r in ranks]
            loss = sum(losses) / len(losses)
            loss.backward()
            if rank is not None:
                hvd.allreduce(loss.detach(), name="loss")
            optimizer.step()

    return near_alone(loop)


@bodies
def reentrant():
    """A backward pass within the backward pass ends before it, and then lacks gradients."""

    def loop(model, wrap, rank):
        optimizer = wrap()
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 1)
            hidden = model.small(model.table(batch(step, rank)))
            out = checkpoint(model.large, hidden, use_reentrant=True)
            model.extra(checkpoint(model.last, out, use_reentrant=True)).square().mean().backward()
            clip_norm(model, optimizer)
            optimizer.step()

    return near_alone(loop)


@bodies
def failed_passes():
    """A backward pass fails at its beginning. The next one is combined when it ends."""

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("of the script")

    def loop(model, wrap, rank):
        optimizer = wrap()
        for step in range(3):
            optimizer.zero_grad()
            out = model(batch(step, rank), whole=True)
            with pytest.raises(ValueError, match="of the script"):
                model.extra(Fails.apply(out)).mean().backward()
            optimizer.load_state_dict(optimizer.state_dict()) if rank is not None else None
            model.zero_grad()
            model(batch(step, rank), whole=True).square().mean().backward()
            clip_norm(model, optimizer)
            optimizer.step()

    return near_alone(loop)


@pytest.mark.parametrize("body", ["two_losses", "branches", "reentrant", "failed_passes"])
def test_passes_of_every_kind_train_as_one_process_does(found, body):
    assert found[body] == [True, True]
