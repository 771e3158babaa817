"""A TorchState on the disk, and the random numbers that are dealt out."""

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.elastic.packing import pack, unpack
from hvdtune.core.elastic.randomness import dealt_seed
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import UsageError
from tests.parallel.ranks import run

pytestmark = pytest.mark.timeout(300)


def training(width=3):
    model = torch.nn.Linear(2, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = hvd.elastic.ElasticSampler(range(8))
    return hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)


def step(state):
    state.optimizer.zero_grad()
    state.model(torch.ones(1, 2)).sum().backward()
    state.optimizer.step()


def write_and_resume(folder):
    before = training()
    step(before)
    before.sampler.record_batch(0, 2)
    before.epoch = 4
    before.commit(to_disk=folder)
    before.flush()
    after = training()
    assert after.resume(from_disk=folder)
    step(before), step(after)
    weights = (state.model.parameters() for state in (before, after))
    same = [bool(torch.equal(a, b)) for a, b in zip(*weights, strict=True)]
    place = after.epoch, after.sampler.processed_num, list(after.sampler.remaining_indices)
    try:
        training(width=4).resume(from_disk=folder)
    except UsageError as error:
        return same, place == (4, 2, list(before.sampler.remaining_indices)[2:]), str(error)


def packed_again():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).bfloat16()
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2])
    more = {"dense": torch.ones(2, 3).t(), "no": torch.empty(0), "z": torch.tensor(1j).conj()}
    state = hvd.elastic.TorchState(model, optimizer, schedule=schedule, **more)
    model(torch.ones(4, 2).bfloat16()).sum().backward()
    optimizer.step(), state.save()
    packed = pack(state.snapshot())
    again = unpack(packed.joined(), may_unpickle=False)
    weights = again["handled"]["model"], state.snapshot()["handled"]["model"]
    assert weights[0]._metadata == weights[1]._metadata
    pairs = [*zip(weights[0].values(), weights[1].values(), strict=True)]
    pairs += [(again["objects"][name], value) for name, value in more.items()]
    for name, value in state.snapshot()["handled"]["optimizer"]["state"][0].items():
        pairs.append((again["handled"]["optimizer"]["state"][0][name], value))
    same = [a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs]
    return packed.pickled, same


def deal(seed, commits):
    training().deal_randomness(seed, commits)
    return dealt_seed(seed, commits, hvd.rank()), torch.initial_seed(), float(torch.rand(()))


def test_a_training_goes_on_from_its_commit_on_the_disk(tmp_path):
    ((same, is_there, refusal),) = run(write_and_resume, 1, tmp_path)
    assert same == [True, True] and is_there
    assert "the commit's model does not fit" in refusal


def test_models_optimizers_and_schedules_are_kept_without_a_pickle():
    ((pickled, same),) = run(packed_again, 1)
    assert pickled == [] and same == [True] * len(same) and len(same) == 13


def test_every_rank_is_dealt_other_numbers_and_always_the_same():
    first, second = run(deal, 2, 5, 7)
    assert first[0] == first[1] and second[0] == second[1]
    assert first[0] != second[0]
    assert run(deal, 2, 5, 7) == [first, second]
    assert run(deal, 1, 5, 8) != [first]


def step_with_a_newcomer():
    def wrapped():
        torch.manual_seed(1)
        model = torch.nn.Linear(2, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, hvd.DistributedOptimizer(optimizer, model.named_parameters())

    def train(model, optimizer):
        optimizer.zero_grad()
        model(torch.full((1, 2), float(hvd.rank()))).sum().backward()
        optimizer.step()
        return model.weight.grad.flatten().tolist()

    model, optimizer = wrapped()
    train(model, optimizer)
    PROCESS.generation += 1  # as `init` does
    if hvd.rank() == 1:
        model, optimizer = wrapped()
    return train(model, optimizer)


def test_ranks_that_have_trained_and_a_newcomer_combine_gradients():
    assert run(step_with_a_newcomer, 2, timeout_s=60) == [[0.5] * 6] * 2


def lbfgs_state():
    model = torch.nn.Linear(1, 1)
    hvd.elastic.TorchState(model, torch.optim.LBFGS(model.parameters()))


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        (lambda: hvd.elastic.TorchState(save=1), r"TorchState\(save=...\) would hide"),
        (lambda: hvd.elastic.TorchState(reset=torch.nn.Linear(1, 1)), r"\(reset=...\) would hide"),
        (lbfgs_state, "does not support torch.optim.LBFGS"),
        (lambda: hvd.elastic.run(print)([]), "takes a State, .* not list"),
    ],
)
def test_what_cannot_be_a_state_is_refused_in_a_sentence(attempt, why):
    with pytest.raises(UsageError, match=why):
        attempt()
