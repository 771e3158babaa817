"""Libraries that train through DDP, as PyPI has them: docs/distributed-trainers.md."""

import re
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.kit import programs, third_party
from tests.kit.pages import Page

PAGE = Page("docs/distributed-trainers.md")

pytestmark = [
    pytest.mark.slow,  # imports torch and such a library in six processes
    third_party.is_needed("trainers"),
]


def losses(folder, script, command, **variables):
    """What each rank says of its loss."""
    _, *words = command.replace("SCRIPT", script).split()
    module = {"torchrun": "torch.distributed.run", "hvdtune": "hvdtune"}[command.split()[0]]
    said = third_party.run("trainers", "-m", module, *words, folder=folder, **variables)
    # A progress bar of another rank may go on in the same line.
    found = dict(re.findall(r"rank (\d) of 2: ([\d.e-]+)", said))
    assert sorted(found) == ["0", "1"], said
    return [float(found[rank]) for rank in sorted(found)]


@pytest.mark.parametrize("name", ["lightning", "accelerate", "trainer"])
def test_each_trains_as_over_gloo(name, tmp_path):
    text = PAGE.block(f"{name}.py")
    # Not by the library's own name, which the script imports.
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "over_gloo.py").write_text(text.replace('"hvdtune"', '"gloo"'))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if name == "lightning" else {}
    by_torchrun, by_hvdtune = PAGE.commands()
    expected = losses(tmp_path, "over_gloo.py", by_torchrun)
    assert expected[0] > 0
    for command, variables in ((by_torchrun, {}), (by_hvdtune, meet)):
        found = losses(tmp_path, "train.py", command, **variables)
        assert found == pytest.approx(expected, rel=1e-5)


_QUORUMS = """
import os
import signal
import sys
from datetime import timedelta

import torch
from torch import distributed as dist
from replica import ProcessGroupHvdtune

def total(group):
    one = torch.ones(1)
    group.allreduce([one], dist.AllreduceOptions()).wait()
    return int(one)

rank, port = int(sys.argv[1]), int(sys.argv[2])
store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
group = ProcessGroupHvdtune(timedelta(seconds=60))
group.configure(f"127.0.0.1:{port}/first", f"replica {rank}", rank, 3, quorum_id=0)
assert total(group) == 3
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        total(group)
except dist.DistBackendError as error:
    assert error.rank == 1, error
group.abort()
group.configure(f"127.0.0.1:{port}/second", f"replica {rank}", rank // 2, 2, quorum_id=1)
print("total", total(group), flush=True)
store.add("done", 1)
while rank == 0 and store.add("done", 0) < 2:
    pass
"""


def test_torchft_forms_its_group_anew_without_a_replica_that_was_killed(tmp_path):
    (tmp_path / "replica.py").write_text(PAGE.block("torchft.py"))
    (tmp_path / "train.py").write_text(_QUORUMS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ThreadPoolExecutor(3) as pool:
        started = [
            pool.submit(third_party.run, "trainers", "train.py", rank, port, folder=tmp_path)
            for rank in range(3)
        ]
    assert started[0].result() == started[2].result() == "total 2\n"
    with pytest.raises(AssertionError):
        started[1].result()


_REPLICA = """
import os
import signal
import sys
import zlib
from datetime import timedelta

import torch
from replica import ProcessGroupHvdtune
from torch import distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer

rank, wait = int(sys.argv[1]), timedelta(seconds=60)
torch.manual_seed(0)
layer = torch.nn.Linear(8, 8)
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
manager = Manager(
    pg=ProcessGroupHvdtune(wait),
    min_replica_size=2,
    load_state_dict=layer.load_state_dict,
    state_dict=layer.state_dict,
    replica_id=f"replica_{rank}",
    timeout=wait,
    rank=0,
    world_size=1,
    store_addr="127.0.0.1",
    store_port=store.port,
)
model = DistributedDataParallel(manager, layer)
optimizer = Optimizer(manager, torch.optim.SGD(layer.parameters(), lr=0.01))
while manager.current_step() < 12:
    optimizer.zero_grad()
    model(torch.full((2, 8), rank + 1.0)).square().mean().backward()
    if rank == 1 and manager.current_step() == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in layer.parameters())
print("trained to", zlib.crc32(weights), "by", manager.num_participants(), flush=True)
os._exit(0)
"""


def test_replicas_of_torchft_go_on_without_one_that_was_killed(tmp_path):
    (tmp_path / "replica.py").write_text(PAGE.block("torchft.py"))
    (tmp_path / "train.py").write_text(_REPLICA)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    lighthouse = third_party.environment("trainers") / "bin" / "torchft_lighthouse"
    words = ["--min_replicas", "2", "--bind", address, "--heartbeat_timeout_ms", "3000"]
    # It imports torch, which loads hvdtune.
    serving = {"env": programs.environ(), "stderr": subprocess.DEVNULL}
    with subprocess.Popen([lighthouse, *words], **serving) as quorums:
        variables = {"TORCHFT_LIGHTHOUSE": f"http://{address}"}
        with ThreadPoolExecutor(3) as pool:
            run = partial(third_party.run, "trainers", "train.py", folder=tmp_path, **variables)
            started = [pool.submit(run, rank) for rank in range(3)]
        quorums.terminate()
    (one,), (other,) = (
        re.findall(r"trained to (\d+) by 2", started[rank].result()) for rank in (0, 2)
    )
    assert one == other
    with pytest.raises(AssertionError):
        started[1].result()
