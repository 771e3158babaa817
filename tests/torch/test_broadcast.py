"""Parameters and optimizer state from one rank to all."""

import copy

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import UsageError
from tests.parallel.ranks import run


def unusual_tensors(value):
    return {
        "channels_last": torch.full((2, 3, 4, 4), value).to(memory_format=torch.channels_last),
        "transposed": torch.arange(6.0).reshape(2, 3).t() * value,
        "scalar": torch.tensor(value),
        "empty": torch.empty(0, 3),
        "flag": torch.tensor([value > 1, True]),
        "complex": torch.full((2, 2), complex(value, -value)).t(),
        "count": torch.tensor(int(value), dtype=torch.uint16),
        "none": None,
        "text": f"of {value}",
    }


def overwrite():
    mine, root = unusual_tensors(1.0 + hvd.rank()), unusual_tensors(2.0)
    formats = {name: t.stride() for name, t in mine.items() if isinstance(t, torch.Tensor)}
    hvd.broadcast_parameters(mine, root_rank=1)
    wrong = [name for name in formats if not torch.equal(mine[name], root[name])]
    wrong += [name for name, stride in formats.items() if mine[name].stride() != stride]
    linear = torch.nn.Linear(2, 2)
    linear.weight.grad = torch.full((2, 2), float(hvd.rank()))
    hvd.broadcast_parameters(linear.named_parameters(), root_rank=0)
    hvd.broadcast_parameters([linear.bias, None, linear.weight], root_rank=1)
    pair = hvd.add_process_set([0, 1])
    own = [torch.tensor([float(hvd.rank())])]
    if pair.included():
        hvd.broadcast_parameters(own, root_rank=1, process_set=pair)
    hvd.barrier()
    return wrong, mine["text"], linear.state_dict(), linear.weight.grad[0, 0].item(), own[0].item()


def test_parameters_of_every_kind_come_from_the_root():
    rows = run(overwrite, 3)
    for rank, (wrong, text, state, gradient, own) in enumerate(rows):
        assert wrong == []
        assert (text, gradient) == (f"of {1.0 + rank}", rank)
        assert all(torch.equal(state[name], rows[1][2][name]) for name in state)
        assert own == [1.0, 1.0, 2.0][rank]


def misuse():
    linear = torch.nn.Linear(1, 1)
    for params in (None, 3, linear, linear.weight, ["weight"], [("a", linear.weight, 0)]):
        with pytest.raises(UsageError, match="state_dict"):
            hvd.broadcast_parameters(params, 0)


OPTIMIZERS = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and name not in ("Optimizer", "LBFGS", "SparseAdam")
}
OPTIONS = {
    "SGD": [{"momentum": 0.9}, {}],
    "Adam": [{"amsgrad": True}, {"fused": True}, {"lr": torch.tensor(0.01)}],
    "RMSprop": [{"momentum": 0.5, "centered": True}],
}


def make(kind, options, seed):
    torch.manual_seed(seed)
    shapes = [(3, 2), (4, 4)] if kind == "Muon" else [(3, 2), (4,), ()]
    tensors = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    return tensors, OPTIMIZERS[kind](tensors, **copy.deepcopy(options))


def gradient_of(tensor):
    return None if tensor.grad is None else tensor.grad.tolist()


def step(tensors, optimizer, seed):
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        tensor.grad = torch.randn(tensor.shape, generator=generator)
    optimizer.step()


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def broadcast_every_state():
    """Rank 0 is fresh, rank 1 the root, rank 2 has trained something else."""
    wrong = []
    assert len(OPTIMIZERS) >= 11
    for kind in OPTIMIZERS:
        for options in OPTIONS.get(kind, [{}]):
            tensors, optimizer = make(kind, options, seed=5)
            for turn in range(2 * hvd.rank()):
                step(tensors, optimizer, seed=100 * hvd.rank() + turn)
            optimizer.param_groups[0]["weight_decay"] = 0.1 * hvd.rank()
            values, gradients = [t.tolist() for t in tensors], [gradient_of(t) for t in tensors]
            if not optimizer.state and hvd.rank() == 0:
                gradients = [torch.zeros_like(tensor).tolist() for tensor in tensors]
            hvd.broadcast_optimizer_state(optimizer, root_rank=1)
            if values != [tensor.tolist() for tensor in tensors]:
                wrong.append(f"{kind} touches parameters")
            if gradients != [gradient_of(tensor) for tensor in tensors]:
                wrong.append(f"{kind} touches gradients")
            hvd.broadcast_parameters(tensors, root_rank=1)
            step(tensors, optimizer, seed=7)
            states = hvd.allgather_object((optimizer.state_dict(), [t.data for t in tensors]))
            if not same(states[hvd.rank()], states[1]):
                wrong.append(f"{kind}({options}) differs from the root's")
    return wrong


def broadcast_wrapped():
    """A scheduler that knows the inner optimizer still moves the wrapped one's rate."""
    tensors, inner = make("Adam", {}, seed=0)
    scheduler = torch.optim.lr_scheduler.StepLR(inner, step_size=1, gamma=0.5)
    named = [(str(i), tensor) for i, tensor in enumerate(tensors)]
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=named)
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * (1 + hvd.rank())
    hvd.broadcast_optimizer_state(optimizer, 1, model=None, process_set=hvd.global_process_set)
    step(tensors, optimizer, seed=0)
    scheduler.step()
    return optimizer.param_groups[0]["lr"], isinstance(
        inner.state[tensors[0]]["step"], torch.Tensor
    )


def broadcast_fresh():
    """As a script of Horovod's users does before its first step, with weight decay."""
    found = {}
    for name, kind, options in FRESH:
        first, kept = torch.nn.Parameter(torch.ones(3, 2)), torch.nn.Parameter(torch.ones(2))
        frozen, lazy = torch.ones(2), torch.nn.parameter.UninitializedParameter()
        optimizer = kind([first, kept, frozen, lazy], lr=0.1, **options)
        kept.grad = torch.full((2,), 3.0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        found[name] = (
            [first.tolist(), kept.tolist()] == [[[1.0, 1.0]] * 3, [1.0, 1.0]],
            (first.grad.layout, first.grad.to_dense().tolist()),
            kept.grad.tolist(),
            (frozen.grad, lazy.grad, dict(optimizer.state)),
        )
        kept.grad = None
        first.sum().backward()
        optimizer.step()
        assert first.grad.to_dense().tolist() == [[1.0, 1.0]] * 3
    return found


FRESH = [
    ("sgd", torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
    ("adamw", torch.optim.AdamW, {"weight_decay": 0.1}),
]


def test_parameters_of_a_fresh_optimizer_get_gradients_of_zeros_and_do_not_move():
    for found in run(broadcast_fresh, 2):
        for name, _, _ in FRESH:
            zeros = (torch.strided, [[0.0, 0.0]] * 3)
            assert found[name] == (True, zeros, [3.0, 3.0], (None, None, {}))


def broadcast_fresh_sparse():
    table = torch.nn.Embedding(3, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(table.parameters(), lr=0.1))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    layout = table.weight.grad.layout
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    return layout, table.weight.grad.to_dense().tolist()


def test_sparse_adam_gets_zeros_that_it_takes():
    rows = [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    assert run(broadcast_fresh_sparse, 2) == [(torch.sparse_coo, rows)] * 2


def refuse_state():
    linear = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match="LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS(linear.parameters()), 0)
    optimizer = torch.optim.Adagrad(list(linear.parameters())[: 1 + hvd.rank()], 0.1)
    with pytest.raises(ValueError, match=r"takes the optimizer itself.*not dict"):
        hvd.broadcast_optimizer_state(optimizer.state_dict(), 0)
    its = r"groups of sizes \[2\]" if hvd.rank() == 1 else "different ones"
    with pytest.raises(UsageError, match=f"root rank 0 has .*, that of rank 1 has {its}"):
        hvd.broadcast_optimizer_state(optimizer, 0)
    hvd.barrier()


@pytest.mark.parametrize(
    ("body", "values"),
    [
        pytest.param(misuse, [None], id="what-are-no-parameters-is-refused"),
        pytest.param(broadcast_every_state, [[]] * 3, id="every-optimizer-goes-on-as-the-root-s"),
        pytest.param(broadcast_wrapped, [(0.1, True)] * 2, id="the-scheduler-stays-with-it"),
        pytest.param(refuse_state, [None] * 2, id="state-that-cannot-be-broadcast-is-refused"),
    ],
)
def test_every_rank_gets(body, values):
    assert run(body, len(values)) == values
