"""Whatever the knobs, the transport, the host's costs and the algorithm: the same bits."""

import hashlib
import random

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core import _native
from hvdtune.core.config import host_costs
from hvdtune.core.rank import runtime
from tests.parallel.ranks import run

SETTINGS = 200
HOSTS = ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32]


def random_setting(generator):
    return {
        "fusion_threshold_bytes": generator.choice([0, 1 << generator.randrange(10, 28)]),
        "cycle_time_ms": generator.choice([0.0, generator.uniform(0.01, 3.0)]),
        "chunk_bytes": generator.randrange(65536, 4 << 20),
        "hierarchical_allreduce": generator.random() < 0.5,
        "torus_allreduce": generator.random() < 0.5,
        "allreduce_algorithm": generator.choice(["auto", "auto", "direct", "doubling", "chain"]),
        "cache_enabled": generator.random() < 0.5,
    }


def random_costs(seed):
    """Returns costs of a host on which any way through its memory may be the best one."""
    generator = random.Random(seed)
    spread = {name: generator.uniform(-2, 2) for name in host_costs.NAMES}
    return {
        name: usual * 10 ** spread[name] for name, usual in _native.default_host_costs().items()
    }


def inputs():
    generator = torch.Generator().manual_seed(100 + hvd.rank())
    tensors = []
    for index, count in enumerate([1, 3, 17, 1000, 4097, 60_001, 180_003]):
        dtype = DTYPES[index % len(DTYPES)]
        values = torch.randn(count, generator=generator) * 1000
        tensors.append(values.to(dtype))
    return tensors


def digest_of_every_setting(count, seed):
    generator = random.Random(seed)
    order = random.Random(hvd.rank())
    tensors = inputs()
    digests = []
    for _ in range(count):
        setting = random_setting(generator)
        before = runtime.native().version()
        proposed = runtime.propose(setting) if hvd.rank() == 0 else None
        # The next cycle carries it to every rank.
        hvd.allreduce(torch.zeros(1), name="adopt")
        assert runtime.native().version() == (proposed or max(before + 1, 2**30))
        assert runtime.setting()["chunk_bytes"] == setting["chunk_bytes"]
        announce = list(range(len(tensors)))
        order.shuffle(announce)
        handles = {i: hvd.allreduce_async(tensors[i], name=f"t{i}", op=hvd.Sum) for i in announce}
        digest = hashlib.sha256()
        for i in range(len(tensors)):
            result = hvd.synchronize(handles[i])
            digest.update(result.contiguous().view(torch.uint8).numpy().tobytes())
        digests.append(digest.hexdigest())
    return digests


def expected_digest(size, host_sizes):
    """The canonical order, written as plainly as possible."""
    digest = hashlib.sha256()
    contributions = []
    for rank in range(size):
        generator = torch.Generator().manual_seed(100 + rank)
        rows = []
        for index, count in enumerate([1, 3, 17, 1000, 4097, 60_001, 180_003]):
            rows.append((torch.randn(count, generator=generator) * 1000).to(DTYPES[index % 5]))
        contributions.append(rows)
    for index in range(7):
        dtype = contributions[0][index].dtype
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        total = None
        first = 0
        for host in host_sizes:
            partial = contributions[first][index].to(wide)
            for rank in range(first + 1, first + host):
                partial = partial + contributions[rank][index].to(wide)
            total = partial if total is None else total + partial
            first += host
        digest.update(total.to(dtype).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("size", "hosts", "count", "options"),
    [
        pytest.param(4, HOSTS, SETTINGS, {}, id="two-hosts-auto"),
        pytest.param(3, None, SETTINGS, {"transport": "tcp"}, id="one-host-tcp"),
        pytest.param(
            4,
            HOSTS,
            SETTINGS,
            {"transport": "tcp"},
            id="two-hosts-tcp",
            marks=pytest.mark.slow,
        ),
        pytest.param(3, None, SETTINGS, {}, id="one-host-auto", marks=pytest.mark.slow),
        pytest.param(4, HOSTS, 20, {"setting": {"channels": 3}}, id="links-of-several-streams"),
        *(
            pytest.param(3, None, 10, {"host_costs": random_costs(seed)}, id=f"costs-{seed}")
            for seed in range(4)
        ),
    ],
)
def test_random_settings_give_identical_bits(size, hosts, count, options):
    wanted = expected_digest(size, [2, 2] if hosts else [size])
    for digests in run(digest_of_every_setting, size, count, size, hosts=hosts, **options):
        assert digests == [wanted] * count
