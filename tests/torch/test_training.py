import warnings

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime
from hvdtune.errors import UsageError
from tests.parallel.ranks import run


def make_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8), torch.nn.Linear(8, 1)
    )


def data():
    generator = torch.Generator().manual_seed(5)
    return torch.randn(32, 6, generator=generator), torch.randn(32, 1, generator=generator)


def make_optimizer(kind, model):
    if kind == "adam":
        return torch.optim.Adam(model.parameters(), lr=0.01)
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(kind, steps=5):
    model = make_model(seed=hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        make_optimizer(kind, model), named_parameters=model.named_parameters()
    )
    inputs, targets = data()
    share = slice(hvd.rank(), None, hvd.size())
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs[share]), targets[share]).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()], isinstance(optimizer, torch.optim.Optimizer)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_two_ranks_train_as_one_process_does_on_all_data(kind):
    model = make_model(seed=0)
    optimizer = make_optimizer(kind, model)
    inputs, targets = data()
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    first, second = run(train, 2, kind)
    for alone, here, there in zip(model.parameters(), first[0], second[0], strict=True):
        assert torch.equal(here, there)
        assert torch.allclose(alone, here, atol=1e-5)
    assert first[1]


def train_with_closure(kind):
    model = make_model(seed=0)
    base = (
        torch.optim.LBFGS(model.parameters(), max_iter=3)
        if kind == "lbfgs"
        else torch.optim.SGD(model.parameters(), lr=0.05)
    )
    optimizer = hvd.DistributedOptimizer(base, named_parameters=model.named_parameters())
    inputs, targets = data()
    share = slice(hvd.rank(), None, hvd.size())

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs[share]), targets[share])
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("kind", ["sgd", "lbfgs"])
def test_a_closure_s_gradients_are_combined(kind):
    first, second = run(train_with_closure, 2, kind)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], make_model(seed=0)[0].weight)


def accumulate():
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), backward_passes_per_step=2
    )
    for _ in range(2):
        model(torch.full((1, 2), float(hvd.rank() + 1))).sum().backward()
    with pytest.raises(AssertionError, match="backward_passes_per_step"):
        model(torch.ones(1, 2)).sum().backward()
    optimizer.synchronize()
    gradient = model.weight.grad.clone()
    with optimizer.skip_synchronize():
        optimizer.step()
    return gradient.flatten().tolist(), model.weight.detach().flatten().tolist()


def test_gradients_accumulate_over_backward_passes_per_step():
    for gradient, weight in run(accumulate, 2):
        # Passes add up on each rank to 2 and 4, and a refused third pass adds ones locally before.
        assert weight == [-value for value in gradient]


def branch():
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(1, 1), "b": torch.nn.Linear(1, 1)})
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters()
    )
    model["a" if hvd.rank() == 0 else "b"](torch.ones(1, 1)).sum().backward()
    optimizer.step()
    return [p.grad.item() for p in model.parameters()]


def optimizer_state():
    model = make_model(seed=hvd.rank())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    if hvd.rank() == 1:
        model(torch.ones(1, 6)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    rows = [state["exp_avg"] for state in optimizer.state.values()]
    return optimizer.param_groups[0]["lr"], rows


def test_optimizer_state_and_hyperparameters_come_from_the_root():
    (rate, rows), (root_rate, root_rows) = run(optimizer_state, 2)
    assert rate == root_rate == 0.2
    assert len(rows) == 6
    assert all(torch.equal(row, root) for row, root in zip(rows, root_rows, strict=True))


def objects():
    return hvd.broadcast_object({"rank": hvd.rank(), "text": "x" * 1000}, root_rank=1)


def compressed():
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), compression=hvd.Compression.fp16
    )
    model(torch.full((1, 1), 1.0 + hvd.rank() / 4096)).sum().backward()
    optimizer.step()
    return model.weight.grad.dtype, model.weight.grad.item()


def misuse():
    model = torch.nn.Linear(1, 1)
    with pytest.raises(UsageError, match="unique"):
        hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0),
            named_parameters=[("w", model.weight), ("w", model.bias)],
        )
    with pytest.raises(UsageError, match="1 name for 2 parameters"):
        hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=[("w", model.weight)]
        )
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(UsageError, match="already"):
        hvd.DistributedOptimizer(optimizer)
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return model.weight.grad


@pytest.mark.parametrize(
    ("body", "values"),
    [
        pytest.param(branch, [[0.5] * 4] * 2, id="a-parameter-unused-on-one-rank-counts-as-zero"),
        pytest.param(objects, [{"rank": 1, "text": "x" * 1000}] * 3, id="objects-are-broadcast"),
        pytest.param(compressed, [(torch.float32, 1.0)] * 2, id="compression-gives-back-float32"),
        pytest.param(misuse, [None, None], id="names-that-cannot-work-are-refused"),
    ],
)
def test_every_rank_gets(body, values):
    assert run(body, len(values)) == values


def steps():
    model = make_model(seed=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    values = []
    for step in range(12):
        optimizer.zero_grad()
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        values.append(runtime.setting()["cycle_time_ms"])
        if step == 5 and hvd.rank() == 0:
            runtime.propose({"cycle_time_ms": 0.25})
    return values


def test_a_setting_is_adopted_while_training_runs():
    for values in run(steps, 2):
        assert values[0] == 1.0
        assert values[-1] == 0.25


def train_with_a_group_added_later():
    model = make_model(seed=0)
    first, *rest = model.children()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(first.parameters(), lr=0.1), named_parameters=first.named_parameters()
    )
    inputs, targets = data()
    share = slice(hvd.rank(), None, hvd.size())
    for step in range(4):
        if step == 2:
            added = [p for layer in rest for p in layer.parameters()]
            optimizer.add_param_group({"params": added, "lr": 0.2})
        model.zero_grad()
        torch.nn.functional.mse_loss(model(inputs[share]), targets[share]).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def test_parameters_added_after_wrapping_are_combined():
    for here, there in zip(*run(train_with_a_group_added_later, 2), strict=True):
        assert torch.equal(here, there)


def step_after_synchronize(inside):
    model = make_model(seed=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    inputs, targets = data()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.synchronize()
            if inside:
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(("inside", "count"), [(True, 0), (False, 3)])
def test_combining_twice_is_warned_of(inside, count):
    for messages in run(step_after_synchronize, 2, inside):
        assert len(messages) == count
        assert all("skip_synchronize()" in message for message in messages)


def wrap_badly():
    model = make_model(seed=0)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    said = []
    for optimizer, more in [
        (model, {}),
        (inner, {"compression": None}),
        (inner, {"backward_passes_per_step": 0}),
        (inner, {"backward_passes_per_step": 1.5}),
        (inner, {"gradient_predivide_factor": 0}),
        (inner, {"named_parameters": [(str(i), torch.nn.Parameter()) for i in range(6)]}),
    ]:
        with pytest.raises(UsageError) as caught:
            hvd.DistributedOptimizer(optimizer, **more)
        said.append(str(caught.value))
    with pytest.raises(UsageError, match="state_dict"):
        hvd.broadcast_parameters(None, 0)
    return said


def test_what_cannot_be_wrapped_is_refused_in_a_sentence():
    for said in run(wrap_badly, 2):
        expected = [
            "a torch.optim.Optimizer is needed, not Sequential",
            "compression must be one of hvd.Compression",
            "a whole number of at least 1, not 0",
            "a whole number of at least 1, not 1.5",
            "must be above 0",
            "lacks some of the optimizer's parameters",
        ]
        for part, text in zip(expected, said, strict=True):
            assert part in text
