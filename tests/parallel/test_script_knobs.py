"""Knobs of a script: what ranks declare, and that a step never has two values of one."""

import random
import time

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime
from hvdtune.errors import HvdtuneError
from tests.parallel.ranks import run

VALUES = (0, 1, 2, 3, 4, 5, 6, 7)


def answers():
    """What a script is told of its knobs where nobody tunes it."""
    told = [hvd.knob("accumulate", [1, 2, 4]), hvd.variant("fused"), hvd.knob("way", ["a", "b"])]
    hvd.mark_step()
    errors = []
    for name, values in [
        ("accumulate", [1, 2]),
        ("a.b", [1]),
        ("empty", []),
        ("twice", [1, True]),
        ("none", [None, 1]),
        ("text", "abc"),
    ]:
        try:
            hvd.knob(name, values)
        except HvdtuneError as error:
            errors.append(str(error))
    return told, errors, hvd.knob("accumulate", [1, 2, 4])


def test_a_script_that_nobody_tunes_has_the_first_values():
    for told, errors, again in run(answers, 2):
        assert told == [1, False, "a"]
        assert again == 1
        assert len(errors) == 6
        assert "accumulate was already declared with other values" in errors[0]
        assert "'a.b' is not a valid name of a knob" in errors[1]
        assert "knob twice has the value True twice" in errors[3]


def started():
    try:
        return hvd.knob("accumulate", [1, 2, 4]), hvd.variant("fused")
    except HvdtuneError as error:
        return str(error)


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ({"script.accumulate": 4}, (4, False)),
        ({"script.fused": True, "script.gone": 1}, (1, True)),
        (
            {"script.accumulate": 3},
            "script.accumulate = 3 is not one of the script's values: 1, 2, 4",
        ),
        (
            {"script.accumulate": True},
            "script.accumulate = True is not one of the script's values: 1, 2, 4",
        ),
    ],
)
def test_a_job_may_start_with_other_values(start, told):
    assert run(started, 1, setting=start) == [told]


def differing(names, changes):
    try:
        for name, changes_results in zip(names[hvd.rank()], changes, strict=False):
            hvd.knob(name, [1, 2 + hvd.rank() * (name == "b")], changes_results=changes_results)
    except HvdtuneError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("names", "error"),
    [
        ((["a"], ["c"]), "rank 0 declares knob('a', [1, 2]), rank 1 knob('c', [1, 2])"),
        ((["a", "b"], ["a", "b"]), "rank 0 declares knob('b', [1, 2]), rank 1 knob('b', [1, 3])"),
        ((["a", "d"], ["d", "a"]), "rank 0 declares knob('a', [1, 2]), rank 1 knob('d', [1, 2])"),
    ],
    ids=["names", "values", "order"],
)
def test_ranks_that_declare_different_knobs_are_told_which(names, error):
    for told in run(differing, 2, names, (False, False)):
        assert told.startswith("the ranks declare different knobs: " + error)


def switching(switches):
    """Rank 0 changes the value as often as it can; every step compares the ranks' values."""
    chance = random.Random(hvd.rank())
    made, seen, differing, version = 0, set(), 0, 0
    goes_on = True
    while goes_on:
        value = hvd.knob("way", VALUES)
        seen.add(value)
        if hvd.rank() == 0 and runtime.native().script_version() == version and made < switches:
            made += 1
            choices = [each for each in VALUES if each != value]
            version = runtime.propose({"script.way": chance.choice(choices)})
        if chance.random() < 0.2:
            time.sleep(chance.random() * 0.002)
        told = hvd.allgather(torch.tensor([[value, made]]), name="told")
        differing += len(set(told[:, 0].tolist())) > 1
        assert hvd.knob("way", VALUES) == value
        hvd.mark_step()
        settled = int(runtime.native().script_version() == version and made == switches)
        flags = torch.tensor([settled if hvd.rank() == 0 else 0])
        goes_on = not int(hvd.allreduce(flags, op=hvd.Sum, name="settled"))
    return int(told[0, 1]), differing, sorted(seen)


@pytest.mark.parametrize(
    ("size", "switches", "hosts"),
    [
        (2, 25, None),
        pytest.param(2, 500, None, marks=pytest.mark.slow),  # as long as a training takes
        pytest.param(4, 500, ["a", "a", "b", "b"], marks=pytest.mark.slow),  # as above
    ],
)
def test_no_step_has_two_values(size, switches, hosts):
    ranks = run(switching, size, switches, hosts=hosts, timeout_s=600.0)
    for made, differing, seen in ranks:
        assert (made, differing) == (switches, 0)
        assert seen == ranks[0][2]
    assert len(ranks[0][2]) > 4


def trained(switches):
    """Trains with one of two ways that compute the same; the parameters' bits."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1))
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)
        for foreach in (False, True)
    ]
    optimizers[1].state = optimizers[0].state
    optimizer = hvd.DistributedOptimizer(optimizers[0], model.named_parameters())
    data = torch.Generator().manual_seed(hvd.rank())
    ways = set()
    for step in range(40):
        fused = hvd.variant("fused")
        ways.add(fused)
        for group in optimizer.param_groups:
            group["foreach"] = fused
        optimizer.zero_grad()
        model(torch.randn(5, 12, generator=data)).pow(2).mean().backward()
        optimizer.step()
        if switches and hvd.rank() == 0 and step % 4 == 0:
            runtime.propose({"script.fused": step % 8 == 0})
    return [parameter.detach().numpy().tobytes() for parameter in model.parameters()], ways


def test_a_variant_that_changes_no_results_leaves_the_bits():
    (kept, ways), *_ = run(trained, 2, False)
    ranks = run(trained, 2, True)
    assert ways == {False}
    assert all(bits == kept and ways == {False, True} for bits, ways in ranks)
