"""Gradients in memory that the ranks of a host share: the same bits, and the user's own tensors."""

import hashlib

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.config.environment import Config
from hvdtune.core.rank import runtime
from hvdtune.errors import UsageError
from tests.parallel.ranks import run

# Large and small gradients of two dtypes, one without elements, one alone of its dtype.
SHAPES = {
    "large": (300, 70),
    "larger": (70_000,),
    "bias": (70,),
    "scale": (),
    "none": (0, 3),
    "double": (41, 500),
    "small_double": (5,),
}


def make_parameters():
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.nn.Parameter(
            torch.randn(
                shape,
                generator=generator,
                dtype=torch.float64 if "double" in name else torch.float32,
            )
        )
        for name, shape in SHAPES.items()
    }


def make_optimizer(parameters, **more):
    return hvd.DistributedOptimizer(
        torch.optim.SGD(parameters.values(), lr=0.01, momentum=0.9),
        named_parameters=parameters.items(),
        **more,
    )


def backward(parameters, step):
    generator = torch.Generator().manual_seed(100 * hvd.rank() + step)
    loss = torch.zeros(())
    for name, parameter in parameters.items():
        if name != "bias" or step % 2 == 0:  # not in every pass
            factors = torch.randn(parameter.shape, generator=generator)
            loss = loss + (factors * parameter * parameter).sum().float()
    loss.backward()


def is_shared(tensor):
    """Whether it lies in a mapping of a memfd."""
    address = tensor.data_ptr()
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin <= address < end:
                return "memfd:" in line
    raise AssertionError("the tensor is nowhere")


def train(zero_copy, set_to_none, passes):
    parameters = make_parameters()
    optimizer = make_optimizer(parameters, zero_copy=zero_copy, backward_passes_per_step=passes)
    for step in range(6):
        optimizer.zero_grad(set_to_none=set_to_none)
        for i in range(passes):
            backward(parameters, passes * step + i)
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in parameters.values():
        digest.update(parameter.detach().numpy().tobytes())
        digest.update(parameter.grad.numpy().tobytes())
    names = {name for name, p in parameters.items() if p.numel() and is_shared(p.grad)}
    return digest.hexdigest(), names


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_bits_with_and_without(size, passes):
    digests = set()
    for set_to_none in (False, True):
        for zero_copy in (False, True):
            values = run(train, size, zero_copy, set_to_none, passes)
            digests |= {digest for digest, _ in values}
            moved = zero_copy and not set_to_none
            everything = {name for name in SHAPES if name != "none"}
            assert all(names == (everything if moved else set()) for _, names in values)
    assert len(digests) == 1


def what_moves():
    parameters = make_parameters()
    optimizer = make_optimizer(parameters)
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        backward(parameters, step)
        optimizer.step()
    return {name for name, p in parameters.items() if p.numel() and is_shared(p.grad)}


def test_the_variable_is_a_switch():
    assert Config.from_environ({}).data_path.zero_copy
    assert not Config.from_environ({"HVDTUNE_ZERO_COPY": "0"}).data_path.zero_copy
    with pytest.raises(UsageError, match="HVDTUNE_ZERO_COPY=maybe is neither 0 nor 1"):
        Config.from_environ({"HVDTUNE_ZERO_COPY": "maybe"})


def keep_references():
    """Keep views of gradients, whose memory must not move, and references to gradients."""
    parameters = make_parameters()
    optimizer = make_optimizer(parameters)
    backward(parameters, 0)
    tensors = {name: p.grad for name, p in parameters.items()}
    flat = parameters["large"].grad.view(-1)
    array = parameters["larger"].grad.numpy()
    optimizer.step()
    for step in range(1, 4):
        optimizer.zero_grad(set_to_none=False)
        backward(parameters, step)
        optimizer.step()
    for name, parameter in parameters.items():
        assert parameter.grad is tensors[name]
    assert flat.data_ptr() == parameters["large"].grad.data_ptr()
    assert array.ctypes.data == parameters["larger"].grad.data_ptr()
    return {name for name, p in parameters.items() if p.numel() and is_shared(p.grad)}


@pytest.mark.parametrize(
    ("body", "config", "moved"),
    [
        pytest.param(what_moves, {"zero_copy": False}, set(), id="switched-off"),
        pytest.param(what_moves, {"transport": "tcp"}, set(), id="nothing-to-gain-by-tcp"),
        pytest.param(
            keep_references,
            {},
            {"bias", "scale", "double", "small_double"},
            id="what-something-else-sees-stays",
        ),
    ],
)
def test_what_moves_into_shared_memory(body, config, moved):
    assert run(body, 2, **config) == [moved, moved]


def flat_gradients():
    """All gradients as views of one tensor, as some scripts lay them out."""
    parameters = make_parameters()
    del parameters["double"], parameters["small_double"]
    flat = torch.zeros(sum(p.numel() for p in parameters.values()))
    offset = 0
    for parameter in parameters.values():
        parameter.grad = flat[offset : offset + parameter.numel()].view(parameter.shape)
        offset += parameter.numel()
    optimizer = make_optimizer(parameters)
    for step in range(4):
        flat.zero_()
        backward(parameters, step)
        optimizer.synchronize()
        joined = torch.cat([p.grad.reshape(-1) for p in parameters.values()])
        assert torch.equal(flat, joined)
        with optimizer.skip_synchronize():
            optimizer.step()
    return flat.tolist()


def keep_after_shutdown():
    parameters = make_parameters()
    optimizer = make_optimizer(parameters)
    for step in range(3):
        optimizer.zero_grad(set_to_none=False)
        backward(parameters, step)
        optimizer.step()
    assert is_shared(parameters["large"].grad)
    runtime.shutdown()
    return parameters["large"].grad.mul_(2).sum().item()


def convert_the_model(zero_copy, set_to_none):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 5000))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        zero_copy=zero_copy,
    )
    inputs = torch.ones(2, 4)
    for step in range(4):
        if step == 2:
            model.double()
            inputs = inputs.double()
        optimizer.zero_grad(set_to_none=set_to_none)
        try:
            model(inputs).sum().backward()
            optimizer.step()
        except UsageError as error:
            return str(error)
    return "no error"


@pytest.mark.parametrize("set_to_none", [False, True])
@pytest.mark.parametrize("zero_copy", [False, True])
def test_a_model_converted_after_wrapping_is_refused(zero_copy, set_to_none):
    for said in run(convert_the_model, 2, zero_copy, set_to_none):
        assert "is float64, but was float32 when the optimizer was wrapped" in said


def replace_storage():
    """Whoever gives a kept gradient another storage is heard."""
    parameters = make_parameters()
    optimizer = make_optimizer(parameters)
    for step in range(5):
        optimizer.zero_grad(set_to_none=False)
        if step == 3:
            for parameter in parameters.values():
                parameter.grad.data = torch.zeros_like(parameter)
        backward(parameters, step)
        optimizer.step()
    return [p.tolist() for p in parameters.values()]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(flat_gradients, id="views-of-one-flat-tensor-stay-views-of-it"),
        pytest.param(keep_after_shutdown, id="gradients-outlive-the-runtime"),
        pytest.param(replace_storage, id="a-gradient-gets-another-storage"),
    ],
)
def test_both_ranks_end_with_the_same_numbers(body):
    here, there = run(body, 2)
    assert here == there
