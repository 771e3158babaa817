import copy

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.errors import UsageError
from tests.parallel.ranks import run

SHAPES = {"table": (3,), "series": (3, 5), "images": (3, 4, 4), "volumes": (3, 2, 3, 2)}
OPTIONS = [
    {},
    {"affine": False},
    {"momentum": None},
    {"momentum": 0.3, "eps": 1e-3},
    {"track_running_stats": False},
]
ROWS = [4, 1, 0, 7]  # of each rank


def batch(rank, step, shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(100 * step + rank)
    rows = torch.randn(ROWS[rank], *shape, generator=generator, dtype=torch.float64)
    return (rows * 3 + 50).to(dtype)


def affine(norm):
    if norm.weight is not None:
        with torch.no_grad():
            norm.weight.copy_(torch.tensor([0.5, -2.0, 3.0]))
            norm.bias.copy_(torch.tensor([1.0, 0.0, -7.0]))
    return norm


class Plain(torch.nn.modules.batchnorm._BatchNorm):
    def _check_input_dim(self, input):
        pass


def near(a, b, tolerance=1e-12):
    scale = b.abs().max().item() if b.numel() else 1.0
    return a.shape == b.shape and torch.allclose(a, b, rtol=tolerance, atol=tolerance * scale)


def compare(shape, options, layout=torch.contiguous_format):
    ranks = range(hvd.size())
    norm = affine(hvd.SyncBatchNorm(3, **options).double())
    whole = affine(Plain(3, **options).double())
    wrong = []
    for step in range(3):
        mine = batch(hvd.rank(), step, shape).to(memory_format=layout).requires_grad_()
        joined = torch.cat([batch(rank, step, shape) for rank in ranks]).requires_grad_()
        output, right = norm(mine), whole(joined)
        (output * output.sin()).sum().backward()
        (right * right.sin()).sum().backward()
        begin = sum(ROWS[: hvd.rank()])
        here = slice(begin, begin + ROWS[hvd.rank()])
        pairs = {"output": (output, right[here]), "input": (mine.grad, joined.grad[here])}
        for name, parameter in norm.named_parameters():
            gradient = hvd.allreduce(parameter.grad, op=hvd.Sum, name=name)
            pairs[name] = (gradient, dict(whole.named_parameters())[name].grad)
        pairs |= {name: (norm.get_buffer(name), b) for name, b in whole.named_buffers()}
        wrong += [(name, step) for name, pair in pairs.items() if not near(*pair)]
    norm.eval()
    whole.eval()
    alone = batch(0, 9, shape)  # nothing is communicated, so that one rank may evaluate by itself
    if hvd.rank() == 0 and not near(norm(alone), whole(alone)):
        wrong.append("evaluation")
    return wrong


def compare_all():
    rows = [(kind, more, compare(SHAPES[kind], more)) for kind in SHAPES for more in OPTIONS]
    rows.append(("channels last", {}, compare(SHAPES["images"], {}, torch.channels_last)))
    return [row for row in rows if row[-1]]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_normalize_as_one_process_does_on_the_joined_batch(size):
    assert run(compare_all, size) == [[]] * size


def in_low_precision(dtype):
    norm = hvd.SyncBatchNorm(3)
    x = batch(hvd.rank(), 0, (3, 64, 64), dtype).requires_grad_()
    output = norm(x)
    output.float().square().sum().backward()
    joined = torch.cat([batch(rank, 0, (3, 64, 64), dtype) for rank in range(2)]).double()
    right = Plain(3).double()(joined)
    begin = sum(ROWS[: hvd.rank()])
    error = (output.double() - right[begin : begin + len(x)]).abs().max().item()
    layout = norm(x.detach().to(memory_format=torch.channels_last))
    kept = layout.is_contiguous(memory_format=torch.channels_last)
    return output.dtype, x.grad.dtype, norm.weight.grad.dtype, error, kept


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_summed_in_float32(dtype):
    for *dtypes, error, kept in run(in_low_precision, 2, dtype):
        assert dtypes == [dtype, dtype, torch.float32]
        # Half an ulp of values below 8.
        assert error < 8 * torch.finfo(dtype).eps
        assert kept


def in_a_set():
    pairs = [hvd.add_process_set([0, 1]), hvd.add_process_set([2, 3])]
    mine = pairs[hvd.rank() // 2]
    norm = copy.deepcopy(hvd.SyncBatchNorm(3, process_set=mine)).double()
    output = norm(batch(hvd.rank(), 0, (3,)))
    right = Plain(3).double()(torch.cat([batch(rank, 0, (3,)) for rank in mine.ranks]))
    hvd.barrier()
    return near(output, right[ROWS[0] :] if hvd.rank() == 1 else right[: ROWS[hvd.rank()]])


def test_a_process_set_normalizes_by_itself():
    # Of the second pair, rank 2 has no rows and rank 3 all.
    assert run(in_a_set, 4) == [True] * 4


def too_small():
    said = []
    norm = hvd.SyncBatchNorm(3)
    for shape in [(hvd.rank(), 3), (2, 4), (3,)]:
        with pytest.raises(UsageError) as caught:
            norm(torch.ones(shape))
        said.append(str(caught.value))
    return said


def test_what_cannot_be_normalized_is_refused_on_every_rank():
    for said in run(too_small, 2):
        assert "at least two values per channel" in said[0]
        assert "(N, 3, ...), not (2, 4)" in said[1]
        assert "not (3,)" in said[2]


def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 3), hvd.SyncBatchNorm(3), torch.nn.ReLU(), torch.nn.Linear(3, 1)
    ).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for _ in range(5):
        optimizer.zero_grad()
        model(rows[hvd.rank() :: hvd.size()]).square().mean().backward()
        optimizer.step()
    return [value.detach() for value in model.state_dict().values()]


def test_training_with_it_is_training_on_the_joined_batch():
    (alone,) = run(train, 1)
    for state in run(train, 2):
        assert all(near(here, right) for here, right in zip(state, alone, strict=True))


def on_gpu():
    rows = {}
    for device in ("cpu", "cuda"):
        norm = affine(hvd.SyncBatchNorm(3).double().to(device))
        x = batch(hvd.rank(), 0, (3, 4, 4)).to(device).requires_grad_()
        output = norm(x)
        output.sin().sum().backward()
        tensors = [output, x.grad, norm.weight.grad, norm.bias.grad, *norm.buffers()]
        rows[device] = [tensor.detach().cpu() for tensor in tensors]
    pairs = zip(rows["cuda"], rows["cpu"], strict=True)
    return output.is_cuda, all(near(there, here) for there, here in pairs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_normalizes_as_the_host_does():
    assert run(on_gpu, 2) == [(True, True)] * 2
