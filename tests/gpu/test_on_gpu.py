"""Tensors on a real GPU, by NCCL and through host memory; ranks may share the GPU.

`make gpu-test` runs it, and the kills a hundred times.
"""

import itertools
import os
import random
import signal
import time

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.config.environment import Config
from hvdtune.core.config.groups import GpuConfig
from hvdtune.core.rank import runtime
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import RankLostError
from hvdtune.timeline import open_trace
from tests.contract.test_collectives import carry_out, come_and_go, in_sets, joined
from tests.contract.test_errors import disagree
from tests.gpu.on_gpu import BITS, NEEDS_GPU, run, run_contract, start
from tests.torch.test_sync_batch_norm import affine, batch

pytestmark = NEEDS_GPU

KILLS = int(os.environ.get("HVDTUNE_TEST_KILLS", "3"))
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_collective_gives_what_its_definition_says(size, bits):
    for problems, count in run_contract(carry_out, size, gpu_bits=bits):
        assert problems == []
        assert count >= 150


@pytest.mark.parametrize("size", [1, 2])
def test_a_collective_through_host_memory_gives_the_same(size):
    for problems, count in run_contract(carry_out, size, gpu_operations="host"):
        assert problems == []
        assert count >= 150


@pytest.mark.parametrize("bits", BITS)
def test_a_collective_in_a_process_set_is_among_its_ranks(bits):
    assert run_contract(in_sets, 4, gpu_bits=bits) == [[]] * 4


def test_process_sets_may_overlap_and_come_and_go():
    rows = run_contract(come_and_go, 4)
    assert [len(row[0]) for row in rows] == [1, 2, 1, 1]


def test_ranks_with_less_data_join_early():
    rows = run_contract(joined, 3)
    assert [row[0] for row in rows] == [[3.0, 2.0], [3.0, 2.0, 1.0, 1.0], [3.0]]
    assert [row[1:] for row in rows] == [(1, 1.0)] * 3


def test_ranks_that_disagree_about_a_tensor_are_told_so_on_every_rank():
    for rows, after in run_contract(disagree, 3):
        for sentence, _ in rows:
            assert "rank 1 announced" in sentence
        assert after == 3.0


def as_bytes(tensor):
    return tensor.cpu().contiguous().view(torch.uint8)


def both_ways(seed):
    """Returns where the bits of a GPU's result are not those of the same tensors in host memory."""
    generator = torch.Generator().manual_seed(seed + hvd.rank())
    ops = (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product)
    wrong = []
    for dtype, op, count in itertools.product(FLOATS, ops, (1, 1000, 70_001)):
        mine = [(torch.randn(n, generator=generator) * 100).to(dtype) for n in (count, count // 3)]
        factors = {"prescale_factor": 1 / 3, "postscale_factor": 1.7} if op != hvd.Product else {}
        host = hvd.grouped_allreduce(mine, op=op, **factors)
        device = hvd.grouped_allreduce([tensor.cuda() for tensor in mine], op=op, **factors)
        same = [torch.equal(as_bytes(a), as_bytes(b)) for a, b in zip(host, device, strict=True)]
        if not all(same):
            wrong.append((dtype, op, count, same))
        rows = mine[0].reshape(-1, 1)
        host = hvd.reducescatter(rows, op=op, **factors)
        device = hvd.reducescatter(rows.cuda(), op=op, **factors)
        if not torch.equal(as_bytes(host), as_bytes(device)):
            wrong.append(("reducescatter", dtype, op, count))
    return wrong


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_exact_bits_are_those_of_the_host_path(size):
    assert run(both_ways, size, 100, gpu_bits="exact") == [[]] * size


def near_the_sums_of_the_host():
    """Returns where an allreduce is not near that of the host's memory."""
    generator = torch.Generator().manual_seed(hvd.rank())
    wrong = []
    for dtype, op, count in itertools.product(FLOATS, (hvd.Sum, hvd.Average), (1, 300_000)):
        mine = [torch.randn(n, generator=generator).to(dtype) for n in (count, count // 3)]
        host = hvd.grouped_allreduce([each.double() for each in mine], op=op)
        device = hvd.grouped_allreduce([each.cuda() for each in mine], op=op)
        near = 0.05 if dtype in (torch.float16, torch.bfloat16) else 1e-4
        for here, there in zip(host, device, strict=True):
            if not torch.allclose(here, there.double().cpu(), rtol=near, atol=near):
                wrong.append((dtype, op, count))
    return wrong, PROCESS.native().setting()["hierarchical_allreduce"]


@pytest.mark.parametrize("splits", [False, True])
def test_an_allreduce_may_be_split_at_hosts(splits):
    setting = {"hierarchical_allreduce": splits}
    # Four ranks on one GPU, said to be on two hosts.
    options = {"hosts": ["a", "a", "b", "b"], "setting": setting}
    assert run(near_the_sums_of_the_host, 4, **options) == [([], splits)] * 4


def busy_streams():
    """Returns how often a result was wrong though streams were late and memory was used again."""
    wrong = 0
    side = torch.cuda.Stream()
    for turn in range(20):
        stream = side if turn % 2 else torch.cuda.default_stream()
        side.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # the values come late
            mine = torch.full((100_000,), float(turn + hvd.rank()), device="cuda")
            handle = hvd.allreduce_async(mine, op=hvd.Sum, name="late")
            total = hvd.synchronize(handle)
            doubled = total * 2  # the host has waited for nothing
            del mine, total
            torch.full((100_000,), -1.0, device="cuda")  # would have the memory of either
        torch.cuda.synchronize()
        wanted = 2.0 * sum(turn + rank for rank in range(hvd.size()))
        wrong += int((doubled != wanted).sum().item() > 0)
    return wrong


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("operations", ["host", "nccl"])
def test_what_a_stream_is_given_next_comes_after_the_operation(size, operations):
    assert run(busy_streams, size, gpu_operations=operations) == [0] * size


def one_is_late(path):
    hvd.start_timeline(path)
    tensor = torch.ones(100_000, device="cuda")
    for _ in range(20):
        if hvd.rank() == 1:
            torch.cuda._sleep(50_000_000)
        hvd.allreduce_(tensor, op=hvd.Max, name="late")
        torch.cuda.synchronize()
    hvd.stop_timeline()


def test_a_trace_says_that_the_stream_of_the_rank_that_is_early_waits(tmp_path):
    run(one_is_late, 2, tmp_path / "trace.json")
    events = open_trace(tmp_path / "trace.json").events
    waits = events[events["kind"] == "STREAM_WAIT"]
    took = (waits["end_ns"] - waits["begin_ns"]).groupby(waits["rank"]).median()
    assert took[0] > took[1]


def reduce_for_ever(count):
    tensor = torch.ones(count, device="cuda")
    turn = 0
    while True:
        hvd.allreduce_(tensor, op=hvd.Max, name=f"t{turn % 7}")
        turn += 1


@pytest.mark.parametrize("seed", range(KILLS))
def test_after_sigkill_every_survivor_names_the_rank(seed):
    generator = random.Random(seed)
    victim = generator.randrange(2)
    count = generator.choice([1000, 300_000, 10_000_000])
    bits = generator.choice(BITS)
    with start(reduce_for_ever, 2, count, gpu_bits=bits) as job:
        while (job.server.next_event(60.0) or {})["type"] != "formed":
            pass
        time.sleep(generator.random() * 3.0)
        os.kill(job.pid(victim), signal.SIGKILL)
        begin = time.monotonic()
        survivor = job.outcomes()[1 - victim]
        print(f"kill {seed}: {bits}, {count}: {time.monotonic() - begin:.2f} s")
        assert f"rank {victim}" in str(survivor.error), survivor.trace
        assert isinstance(survivor.error, RankLostError), survivor.trace
        assert survivor.error.rank == victim, survivor.trace


@pytest.mark.parametrize("bits", BITS)
def test_a_rank_that_is_stopped_is_given_up_and_told_so_when_it_goes_on(bits):
    with start(reduce_for_ever, 2, 300_000, gpu_bits=bits) as job:
        while (job.server.next_event(60.0) or {})["type"] != "formed":
            pass
        time.sleep(2.0)
        os.kill(job.pid(1), signal.SIGSTOP)
        survivor = job.outcome(0)
        os.kill(job.pid(1), signal.SIGCONT)
        stopped = job.outcome(1)
    for outcome in (survivor, stopped):
        assert isinstance(outcome.error, RankLostError), outcome.trace
        assert outcome.error.rank == 1, outcome.trace


def takes_nccl():
    hvd.allreduce_(torch.ones(10, device="cuda"), name="first")
    return PROCESS.place["gpu_operations"]


def test_ranks_with_a_gpu_each_use_nccl_by_themselves():
    assert run(takes_nccl, 1, gpu_operations="auto") == ["nccl"]


def lose_and_go_on():
    tensor = torch.full((1000,), 3.0, device="cuda")
    hvd.allreduce(tensor, name="first")
    torch.cuda.synchronize()
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RankLostError):
        while True:
            hvd.allreduce(tensor, name="second")
            torch.cuda.synchronize()
    hvd.shutdown()
    runtime.init(config=Config(gpu=GpuConfig(operations="nccl")))
    again = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=2.0).cpu().tolist()
    return hvd.size(), sorted(set(again))


def test_the_survivor_forms_another_job_in_the_same_process():
    with start(lose_and_go_on, 2) as job:
        survivor = job.outcomes()[0]
    assert survivor.value == (1, [6.0]), survivor.trace


def every_tensor_function():
    """What training scripts use besides the collectives."""
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    model(torch.randn(3, 4, device="cuda")).sum().backward()
    optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    table = torch.nn.Embedding(10, 3, sparse=True).cuda()
    table.weight.data.fill_(1.0)
    sparse = hvd.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=1.0), named_parameters=table.named_parameters()
    )
    table(torch.tensor([hvd.rank(), 5], device="cuda")).sum().backward()
    sparse.step()
    half = hvd.allreduce(torch.full((3,), 1 / 3, device="cuda"), compression=hvd.Compression.fp16)
    told = hvd.broadcast_object({"rank": hvd.rank()}, root_rank=0)
    state = [p.detach().cpu() for p in model.parameters()]
    moments = [s["exp_avg"].cpu() for s in optimizer.state.values()]
    rate = optimizer.param_groups[0]["lr"]
    return state, moments, rate, table.weight.detach().cpu(), half.cpu(), told


@pytest.mark.parametrize("operations", ["host", "nccl"])
def test_the_other_functions_of_training_scripts_take_gpu_tensors(operations):
    first, second = run(every_tensor_function, 2, gpu_operations=operations)
    for here, there in zip(first[0] + first[1], second[0] + second[1], strict=True):
        assert torch.equal(here, there)
    assert first[2] == second[2] == 0.1
    assert torch.equal(first[3], second[3])
    assert first[3][:, 0].tolist() == [0.5, 0.5, 1, 1, 1, 0.0, 1, 1, 1, 1]
    assert torch.allclose(first[4], torch.full((3,), 1 / 3), atol=1e-3)
    assert first[5] == second[5] == {"rank": 0}


def normalise():
    norm = affine(hvd.SyncBatchNorm(3).double()).cuda()
    whole = affine(torch.nn.BatchNorm2d(3).double()).cuda()
    mine = batch(hvd.rank(), 0, (3, 4, 4)).cuda()
    joined = torch.cat([batch(rank, 0, (3, 4, 4)) for rank in range(hvd.size())]).cuda()
    output, right = norm(mine), whole(joined)
    begin = sum(len(batch(rank, 0, (3, 4, 4))) for rank in range(hvd.rank()))
    return torch.allclose(output, right[begin : begin + len(mine)], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("operations", ["host", "nccl"])
def test_batch_norm_over_ranks_takes_gpu_tensors(operations):
    assert run(normalise, 2, gpu_operations=operations) == [True, True]


def scaled_training():
    """Mixed precision as scripts do it: a gradient scaler around the wrapped optimizer."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = model.cuda()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters()
    )
    scaler = torch.amp.GradScaler("cuda")
    generator = torch.Generator().manual_seed(hvd.rank())
    losses = []
    for _ in range(30):
        inputs = torch.randn(64, 8, generator=generator).cuda()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses[0], losses[-1], [p.detach().cpu() for p in model.parameters()]


@pytest.mark.parametrize("operations", ["host", "nccl"])
def test_mixed_precision_trains(operations):
    first, second = run(scaled_training, 2, gpu_operations=operations)
    assert first[1] < first[0] / 2
    for here, there in zip(first[2], second[2], strict=True):
        assert torch.equal(here, there)
