"""Every argument of DistributedOptimizer."""

import copy
import warnings

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime
from hvdtune.errors import UsageError
from tests.parallel.bodies import Bodies
from tests.parallel.ranks import run

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()


def run_bodies():
    torch.sparse.check_sparse_tensor_invariants.enable()
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2)


def equal(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 300), torch.nn.Tanh(), torch.nn.Linear(300, 20), torch.nn.Linear(20, 2)
    )


def train(groups_of=lambda model: None, *, branch=True, **options):
    """Trained parameters; where it branches, the last layer is used on rank 0 only."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9),
        named_parameters=model.named_parameters(),
        groups=groups_of(model),
        **options,
    )
    generator = torch.Generator().manual_seed(hvd.rank())
    for _ in range(4):
        optimizer.zero_grad()
        out = model[:3](torch.randn(8, 20, generator=generator))
        if hvd.rank() == 0 or not branch:
            out = model[3](out)
        out.square().sum().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


GROUPINGS = {
    "one": lambda model: 1,
    "three": lambda model: 3,
    "more than parameters": lambda model: 50,
    "layers": lambda model: [
        list(layer.parameters()) for layer in model if len(list(layer.parameters()))
    ],
    "some": lambda model: [[model[0].weight, model[3].bias]],
    "none": lambda model: 0,
}


@bodies
def grouped():
    results = {}
    for factor in (1.0, 3.0):
        results["", factor] = train(gradient_predivide_factor=factor)
        for name, groups_of in GROUPINGS.items():
            results[name, factor] = train(groups_of, gradient_predivide_factor=factor)
    return results


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("name", GROUPINGS)
def test_groups_change_no_bit_of_what_is_trained(said, name, factor):
    here, there = said["grouped"]
    assert equal(here[name, factor], here["", factor])
    assert equal(here[name, factor], there[name, factor])
    assert torch.allclose(here[name, factor][0], here["", 1.0][0])


def operations_of_a_step(**options):
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)
    counts = []
    for _ in range(3):
        hvd.barrier()
        before = runtime.native().counts()["tensors"]
        model(torch.ones(1, 20)).sum().backward()
        optimizer.step()
        counts.append(runtime.native().counts()["tensors"] - before)
        hvd.barrier()
    return counts[-1] - 1  # the agreement of the ranks that the pass has left nothing out


@bodies
def counted():
    return [operations_of_a_step(groups=number) for number in (1, 2, 3, 6)]


@bodies
def deprecated():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        count = operations_of_a_step(num_groups=2)
    return count, [(w.category, str(w.message)) for w in caught]


def test_num_groups_is_groups_and_deprecated(said):
    for count, [(category, message)] in said["deprecated"]:
        assert count == 2
        assert category is DeprecationWarning
        assert "use groups" in message


BAD = {
    "must be a number of at least 0": {"groups": -1},
    "a list of lists of parameters": {"groups": 1.5},
    "not [1]": {"groups": [1]},
    "must contain parameters, not str": {"groups": [["weight"]]},
    "not a parameter of the optimizer": {"groups": [[torch.zeros(1)]]},
    "needs op=Average": {"gradient_predivide_factor": 2.0, "op": hvd.Sum},
    "use hvd.Average, Sum or Adasum": {"op": hvd.Max},
    "a sequence of tuples": {"named_parameters": [torch.zeros(1)]},
    "a class with compress and decompress": {"compression": torch.float16},
    "takes an hvd.ProcessSet": {"process_set": 0},
}


@bodies
def refused():
    model = torch.nn.Linear(2, 2)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    messages = []
    for options in BAD.values():
        with pytest.raises(ValueError) as caught:
            hvd.DistributedOptimizer(inner, **options)
        messages.append(str(caught.value))
    with pytest.raises(UsageError) as caught:
        hvd.DistributedOptimizer(inner, groups=[[model.weight], [model.bias, model.weight]])
    messages.append(str(caught.value))
    odd = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(UsageError) as caught:
        hvd.DistributedOptimizer(torch.optim.SGD([odd], lr=0.1), [("odd", odd)])
    return [*messages, str(caught.value)]


REFUSALS = [
    *BAD,
    "groups contains one of the parameters twice",
    "parameter odd has dtype complex64",
]


@pytest.mark.parametrize("part", REFUSALS)
def test_bad_arguments_are_refused_in_a_sentence(said, part):
    for messages in said["refused"]:
        assert part in dict(zip(REFUSALS, messages, strict=True))[part]


class EveryOther:
    """A lossy compressor of a user: every other element travels, as float64."""

    @staticmethod
    def compress(tensor):
        return tensor.flatten()[::2].double(), (tensor.shape, tensor.dtype)

    @staticmethod
    def decompress(tensor, ctx):
        shape, dtype = ctx
        return tensor.repeat_interleave(2).to(dtype).view(shape)


@bodies
def own_compressor():
    rows = []
    for groups in (None, 1):
        weights = [torch.nn.Parameter(torch.zeros(4, 2)), torch.nn.Parameter(torch.zeros(70, 100))]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(weights, lr=1.0), compression=EveryOther, groups=groups
        )
        for weight in weights:
            (weight.flatten() * torch.arange(weight.numel())).sum().mul(hvd.rank() + 1).backward()
        optimizer.step()
        rows.append([weight.grad.flatten()[:4].tolist() for weight in weights])
    return rows


@bodies
def in_a_set():
    alone = hvd.add_process_set([1])
    values = []
    for process_set in (hvd.global_process_set, alone):
        weight = torch.nn.Parameter(torch.zeros(5000))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([weight], lr=1.0), process_set=process_set
        )
        (weight * (hvd.rank() + 1.0)).sum().backward()
        optimizer.step()
        values.append(weight.grad[0].item())
    if hvd.rank() == 1:
        tensor = torch.eye(2).to_sparse()
        mean = hvd.sparse_allreduce_async(tensor, "in_a_set", hvd.Average, alone)()
        assert torch.equal(mean.to_dense(), torch.eye(2))
    hvd.remove_process_set(alone)
    return values


@bodies
def copied():
    """Copies of a model and its optimizer train as the originals do, and apart from them."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        named_parameters=model.named_parameters(),
        groups=[[model[0].weight, model[0].bias]],
    )

    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.full((1, 20), 1.0 + hvd.rank())).sum().backward()
        optimizer.step()

    step(model, optimizer)
    other, its = copy.deepcopy((model, optimizer))
    step(other, its)
    untouched = model[0].weight.grad is not None and not equal(
        model.parameters(), other.parameters()
    )
    step(model, optimizer)
    return untouched, equal(model.parameters(), other.parameters()), type(its).__name__


class Embeds(torch.nn.Module):
    def __init__(self, sparse, rows):
        super().__init__()
        torch.manual_seed(5)
        self.words = torch.nn.Embedding(rows, 8, sparse=sparse, dtype=torch.float64)
        self.out = torch.nn.Linear(8, 1, dtype=torch.float64)

    def forward(self, batch):
        return self.out(self.words(batch).mean(1))


def batch_of(step, rank):
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randint(0, 30, (4, 6), generator=generator)  # words repeat


def embed(sparse, *, rows=30, groups=None, skip=lambda step: False, kind="sgd", **options):
    """Trained parameters, and whether gradients were sparse; skips the words at some steps."""
    model = Embeds(sparse, rows)
    makes = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
    optimizer = hvd.DistributedOptimizer(
        makes[kind](model.parameters(), lr=0.25),
        named_parameters=model.named_parameters(),
        groups=[list(model.parameters())] if groups == "all" else groups,
        **options,
    )
    layouts = set()
    for step in range(4):
        optimizer.zero_grad()
        skips = skip(step)
        out = model.out(torch.ones(1, 8).double()) if skips else model(batch_of(step, hvd.rank()))
        out.square().sum().backward()
        optimizer.step()
        layouts.add(model.words.weight.grad.layout)
    return [p.detach() for p in model.parameters()], layouts


def near(first, second):
    return all(
        torch.allclose(a, b, rtol=1e-12, atol=1e-15) for a, b in zip(first, second, strict=True)
    )


SPARSE = {
    "small": {},
    "large": {"rows": 3000},
    "grouped": {"groups": "all"},
    "grouped large": {"groups": 1, "rows": 3000},
    "sum": {"op": hvd.Sum},
    "predivided": {"gradient_predivide_factor": 4.0},
    "adagrad": {"kind": "adagrad"},
    "absent first on rank 1": {"skip": lambda step: hvd.rank() == 1 and step == 0},
    "absent always on rank 0": {"skip": lambda step: hvd.rank() == 0},
    "absent later on rank 0": {"skip": lambda step: hvd.rank() == 0 and step == 2},
    "absent first everywhere": {"skip": lambda step: step == 0},
    "absent first, then on rank 1": {"skip": lambda step: step <= hvd.rank(), "rows": 3000},
}


@bodies
def sparsely():
    return {
        name: (embed(True, **options), embed(False, **options)) for name, options in SPARSE.items()
    }


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_gradients_train_as_dense_ones_do(said, name):
    (here, there) = (values[name] for values in said["sparsely"])
    assert equal(here[0][0], there[0][0])
    for (sparse, layouts), (dense, _) in (here, there):
        assert near(sparse, dense)
        always = name not in ("absent first everywhere", "absent first, then on rank 1")
        assert layouts == {torch.sparse_coo} if always else torch.sparse_coo in layouts


@bodies
def densified():
    sparse, layouts = embed(True, sparse_as_dense=True)
    return equal(sparse, embed(False)[0]), layouts


class LookUp(torch.nn.Module):
    """Has sparse gradients and no others."""

    def __init__(self, rows):
        super().__init__()
        torch.manual_seed(5)
        self.left = torch.nn.Embedding(rows, 4, sparse=True, dtype=torch.float64)
        self.right = torch.nn.Embedding(rows, 4, sparse=True, dtype=torch.float64)

    def forward(self, batch):
        return (self.left(batch) * self.right(batch)).sum(-1).sin().mean()


TAKE_SPARSE = {
    "sparse adam": lambda parameters: torch.optim.SparseAdam(parameters, lr=0.1),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.25),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.25),
}
DENSE_ON_THE_WAY = {
    "small": {},
    "large": {"rows": 3000},
    "grouped": {"groups": 1},
    "two passes": {"passes": 2},
    "zeros are kept": {"set_to_none": False},
    "zeros are kept, large": {"set_to_none": False, "rows": 3000},
    "never zeroed": {"set_to_none": None},
    "absent first on rank 1": {"skip": lambda step: hvd.rank() == 1 and step == 0},
    "absent always on rank 0": {"skip": lambda step: hvd.rank() == 0},
}


def look_up(make, *, rows=30, passes=1, set_to_none=True, skip=lambda step: False, **options):
    """Trained parameters, and the layouts that the optimizer has seen."""
    model = LookUp(rows)
    optimizer = hvd.DistributedOptimizer(
        make(list(model.parameters())),
        model.named_parameters(),
        backward_passes_per_step=passes,
        **options,
    )
    layouts = set()
    optimizer.register_step_pre_hook(
        lambda *_: layouts.update(p.grad.layout for p in model.parameters() if p.grad is not None)
    )
    for step in range(4):
        if set_to_none is not None:
            optimizer.zero_grad(set_to_none=set_to_none)
        for i in range(0 if skip(step) else passes):
            model(batch_of(10 * step + i, hvd.rank())).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()], layouts


@bodies
def dense_on_the_way():
    return {
        (name, kind): (look_up(make, sparse_as_dense=True, **options), look_up(make, **options))
        for name, options in DENSE_ON_THE_WAY.items()
        for kind, make in TAKE_SPARSE.items()
    }


@pytest.mark.parametrize("kind", TAKE_SPARSE)
@pytest.mark.parametrize("name", DENSE_ON_THE_WAY)
def test_gradients_that_travel_dense_are_sparse_again_for_the_optimizer(said, name, kind):
    (here, there) = (values[name, kind] for values in said["dense_on_the_way"])
    assert equal(here[0][0], there[0][0])
    for (dense, layouts), (gathered, _) in (here, there):
        assert layouts == {torch.sparse_coo}
        assert near(dense, gathered)


def look_up_in_a_set():
    pair = hvd.add_process_set([0, 2])
    trained, layouts = look_up(TAKE_SPARSE["sparse adam"], sparse_as_dense=True, process_set=pair)
    hvd.barrier()  # whoever leaves ends the job of the others
    return [parameter.tolist() for parameter in trained], layouts


def test_gradients_that_travel_dense_in_a_process_set_are_sparse_again_on_its_ranks():
    first, outside, last = run(look_up_in_a_set, 3)
    assert first == last and first[0] != outside[0]
    assert first[1] == outside[1] == {torch.sparse_coo}


ASKED_FOR = {
    "backward_passes_per_step": 2,
    "op": hvd.Average,
    "gradient_predivide_factor": 4.0,
    "sparse_as_dense": True,
    "_compression": hvd.Compression.fp16,
}


@bodies
def private_names():
    """Reads and sets what programs around Horovod's optimizer do."""
    model = make_model()
    parameters = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([{"params": parameters[:2]}, {"params": parameters[2:]}], lr=0.1),
        compression=hvd.Compression.fp16,
        backward_passes_per_step=2,
        gradient_predivide_factor=4.0,
        sparse_as_dense=True,
    )
    names = optimizer._parameter_names
    seen = {name: getattr(optimizer, name) for name in ASKED_FOR}
    assert names.keys() == set(parameters) == optimizer._requires_update
    assert optimizer.process_set is hvd.global_process_set
    assert str(type(optimizer)) == "<class 'horovod.torch.optimizer.SGD'>"
    optimizer.backward_passes_per_step = 3
    its = copy.deepcopy(optimizer)
    refusals = []
    assert not hasattr(optimizer, "_nobody_knows_this")
    for name in ("_handles", "_grad_accs", "_allreduce_delay", "_make_hook"):
        with pytest.raises(AttributeError) as caught:
            getattr(optimizer, name)
        refusals.append(str(caught.value))
    with pytest.raises(UsageError, match="at least 1"):
        optimizer.backward_passes_per_step = 0
    delta = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), op=hvd.Adasum)
    delta.backward_passes_per_step = 2
    passes = [each.backward_passes_per_step for each in (optimizer, its, delta)]
    return [*names.values()], seen, passes, refusals


def test_programs_around_the_optimizer_read_what_it_was_asked_for(said):
    (names, seen, passes, _), (others, *_) = said["private_names"]
    assert names == others and len(set(names)) == 6
    assert seen == ASKED_FOR
    assert passes == [3, 3, 2]


@pytest.mark.parametrize("place", range(3))
def test_what_horovod_counts_operations_by_is_refused_in_a_sentence(said, place):
    for *_, refusals in said["private_names"]:
        assert "synchronize(), skip_synchronize() and backward_passes_per_step" in refusals[place]


@bodies
def tied():
    """A weight that is looked up on rank 0, and on rank 1 also multiplied by: dense there."""
    values = []
    for sparse in (True, False):
        model = Embeds(sparse, 30)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.25), model.named_parameters()
        )
        for step in range(3):
            optimizer.zero_grad()
            loss = model(batch_of(step, hvd.rank())).sum()
            if hvd.rank() == 1:
                loss = loss + model.words.weight.square().sum()
            loss.backward()
            optimizer.step()
        values.append([p.detach() for p in model.parameters()])
    return near(*values)


@bodies
def after_a_join():
    """Rank 1 has no data while rank 0 finds out that the words are sparse."""
    values = []
    for sparse in (True, False):
        model = Embeds(sparse, 3000)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.25), model.named_parameters()
        )
        for epoch in range(2):
            for step in range(3 if hvd.rank() == 0 else 3 * epoch):
                optimizer.zero_grad()
                model(batch_of(step, hvd.rank())).sum().backward()
                optimizer.step()
            hvd.join()
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        values.append([p.detach() for p in model.parameters()])
    return near(*values)


@bodies
def by_hand():
    rows = torch.tensor([[0, 2, 0]]) + hvd.rank()
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    tensor = torch.sparse_coo_tensor(rows, values, (4, 2), check_invariants=True)
    called = hvd.sparse_allreduce_async(tensor, "called", hvd.Average)
    waited = hvd.sparse_allreduce_async(tensor, "waited", hvd.Sum)
    while not hvd.poll(waited):
        pass
    refusals = []
    for wrong, op in [(tensor, hvd.Adasum), (tensor.to_dense(), hvd.Sum)]:
        with pytest.raises(UsageError) as caught:
            hvd.sparse_allreduce_async(wrong, "wrong", op)
        refusals.append(str(caught.value))
    for call in (
        lambda: hvd.sparse_allreduce_async(tensor, "wrong", hvd.Min),
        lambda: hvd.allreduce(tensor),
        lambda: hvd.grouped_allgather([tensor]),
    ):
        with pytest.raises(NotImplementedError, match=r"Use .*tensor.to_dense\(\)"):
            call()
    return called().to_dense().tolist(), hvd.synchronize(waited).to_dense().tolist(), refusals


def test_sparse_tensors_are_combined_with_a_handle_that_can_be_called(said):
    total = [[6.0, 8.0], [6.0, 8.0], [3.0, 4.0], [3.0, 4.0]]
    for average, summed, refusals in said["by_hand"]:
        assert summed == total
        assert average == [[x / 2 for x in row] for row in total]
        assert "ADASUM does not support sparse" in refusals[0] and "sparse_coo" in refusals[1]


def adasum_of(deltas):
    while len(deltas) > 1:
        pairs = [deltas[i : i + 2] for i in range(0, len(deltas), 2)]
        deltas = [pair[0] if len(pair) == 1 else adasum_of_two(*pair) for pair in pairs]
    return deltas[0]


def adasum_of_two(a, b):
    if a.norm() == 0 or b.norm() == 0:
        return a + b
    dot = (a * b).sum()
    return (1 - dot / (2 * a.square().sum())) * a + (1 - dot / (2 * b.square().sum())) * b


def local_step(model, rank, passes=2):
    """How far one rank alone moves each parameter."""
    model = copy.deepcopy(model)
    inner = torch.optim.Adam(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    backward(model, rank, passes)
    inner.step()
    return [p.detach() - b for p, b in zip(model.parameters(), before, strict=True)]


def backward(model, rank, passes=2):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(passes):
        model(torch.randn(3, 20, generator=generator).to(model[0].weight.dtype)).sum().backward()


def adasum():
    model = make_model().double()
    before = [p.detach().clone() for p in model.parameters()]
    ranks = [local_step(model, rank) for rank in range(hvd.size())]
    expected = [b + adasum_of(list(each)) for b, *each in zip(before, *ranks, strict=True)]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        backward_passes_per_step=2,
        op=hvd.Adasum,
    )
    backward(model, hvd.rank())
    optimizer.synchronize()
    optimizer.step()
    with pytest.raises(AssertionError, match="Adasum"), optimizer.skip_synchronize():
        pass
    return near([p.detach() for p in model.parameters()], expected)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_adasum_combines_how_far_every_rank_has_moved(size):
    assert run(adasum, size) == [True] * size


@bodies
def adasum_of_halves():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), op=hvd.Adasum, compression=hvd.Compression.fp16
    )
    for _ in range(3):
        optimizer.zero_grad()
        backward(model, hvd.rank())
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def test_adasum_s_deltas_can_be_compressed(said):
    here, there = said["adasum_of_halves"]
    assert equal(here, there)
    assert here[0].dtype == torch.float32 and not torch.equal(here[0], make_model()[0].weight)


@bodies
def adasum_of_sparse():
    model = Embeds(True, 30)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), model.named_parameters(), op=hvd.Adasum
    )
    start = model.words.weight.detach().clone()
    model(batch_of(0, hvd.rank())).sum().backward()
    optimizer.step()
    return model.words.weight.detach(), start


def test_adasum_takes_steps_from_sparse_gradients(said):
    (here, start), (there, _) = said["adasum_of_sparse"]
    assert torch.equal(here, there) and not torch.equal(here, start)


@bodies
def adasum_with_a_scaler():
    """Rank 1's gradient overflows: it moves by what rank 0 has learnt."""
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale((weight * (1.0 if hvd.rank() == 0 else float("inf"))).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    return weight.tolist(), scaler.get_scale()


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        pytest.param("counted", [[1, 2, 3, 6]] * 2, id="a-group-is-one-operation"),
        pytest.param("own_compressor", [[[[0.0, 0.0, 3.0, 3.0]] * 2] * 2] * 2, id="compressor"),
        pytest.param("in_a_set", [[1.5, 1.0], [1.5, 2.0]], id="only-a-process-set-combines"),
        pytest.param("copied", [(True, True, "SGD")] * 2, id="a-deep-copy-trains-its-own-model"),
        pytest.param("densified", [(True, {torch.sparse_coo})] * 2, id="sparse-as-dense"),
        pytest.param("tied", [True, True], id="dense-on-one-rank-is-dense-on-all"),
        pytest.param("after_a_join", [True, True], id="sparse-is-settled-anew-after-a-join"),
        pytest.param("adasum_with_a_scaler", [([-1.0] * 3, 4.0), ([-1.0] * 3, 2.0)], id="overflow"),
    ],
)
def test_what_an_option_does(said, body, wanted):
    assert said[body] == wanted
