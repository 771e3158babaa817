"""The hook in processes that know nothing of it; training with the real torch."""

import contextlib
import struct
import sys

import pytest

from hvdtune.core.config.environment import own_environ
from hvdtune.launcher.hosts import free_port
from hvdtune.launcher.ranks import start_command
from hvdtune.launcher.step_clock import StepClock

pytestmark = pytest.mark.timeout(300)  # imports of torch beside whatever else runs

TRAIN = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
layers = [torch.nn.Linear(512, 512) for _ in range(8)]
model = DistributedDataParallel(torch.nn.Sequential(*layers){arguments})
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(2, 512)).sum().backward()
    optimizer.step()
data = model._get_ddp_logging_data()
print("buckets", data["rebuilt_bucket_sizes"])
dist.barrier()  # a group that its peer has left may abort when it is destroyed
dist.destroy_process_group()
"""


@pytest.fixture
def clocks():
    with contextlib.ExitStack() as stack:
        yield lambda **setting: stack.enter_context(contextlib.closing(StepClock(setting)))


def run(clock, body, ranks=1, **variables):
    """The lines of rank 0."""
    base = own_environ() | {"PYTHONPATH": ""} | variables
    port = str(free_port("127.0.0.1"))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    environs = tuple(
        base | clock.environ(base) | place | {"RANK": str(rank)} for rank in range(ranks)
    )
    with start_command((sys.executable, "-c", body), environs) as command:
        report = command.wait()
    assert report.returncode == 0, report
    return report.tail


def write_stamps(clock, pid, *stamps_ns):
    (clock.folder / f"{pid}.steps").write_bytes(struct.pack(f"<{len(stamps_ns)}q", *stamps_ns))


def test_a_ddp_script_takes_its_arguments_from_the_setting_and_its_steps_are_clocked(clocks):
    clock = clocks(bucket_cap_mb=3, first_bucket_mb=1.5, gradient_as_bucket_view=True)
    tail = run(clock, TRAIN.format(arguments=", bucket_cap_mb=50"), ranks=2)
    wanted = {"bucket_cap_mb": 3, "first_bucket_mb": 1.5, "gradient_as_bucket_view": True}
    assert clock.ddp_arguments() == [wanted, wanted]
    assert clock.ddp_fault() == ""
    # A layer has 1,050,624 bytes: two fill the first bucket, three every other.
    assert tail == ("buckets 2101248, 3151872, 3151872",)
    steps = clock.steps()
    assert [len(step) for step in steps] == [2] * 5
    assert all(duration > 0 for step in steps for duration in step)


OWN = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
DistributedDataParallel(torch.nn.Linear(4, 4), bucket_cap_mb=50)
dist.destroy_process_group()
class Outer(torch.optim.SGD):
    def step(self, closure=None):
        super(Outer, self).step(closure)
one = Outer([torch.nn.Parameter(torch.zeros(1))], lr=1)
other = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
for _ in range(4):
    one.step()
    other.step()
"""


@pytest.fixture(scope="module")
def silent():
    """The clock of a script that was told nothing."""
    with contextlib.closing(StepClock({})) as clock:
        run(clock, OWN)
        yield clock


def test_a_ddp_script_keeps_its_own_arguments_where_the_setting_is_silent(silent):
    assert silent.ddp_arguments() == [
        {"bucket_cap_mb": 50, "first_bucket_mb": 50, "gradient_as_bucket_view": False}
    ]


def test_a_ddp_that_did_not_take_the_setting_is_told(clocks):
    clock = clocks(bucket_cap_mb=3.0)
    (clock.folder / "1.ddp").write_text('{"bucket_cap_mb": 25.0}\n')
    assert "made with bucket_cap_mb=25.0, not 3.0" in clock.ddp_fault()


def test_a_step_within_a_step_and_other_optimizers_do_not_count(silent):
    assert len(silent.steps()) == 3


def test_a_sitecustomize_in_the_shade_of_the_hook_is_loaded_too(clocks, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.mine = 'loaded'")
    body = "import sys; print(getattr(sys, 'mine', 'forgotten'), 'torch' in sys.modules)"
    assert run(clocks(), body, PYTHONPATH=str(tmp_path)) == ("loaded False",)


@pytest.mark.parametrize(
    "rounds",
    [
        [({10: (0, 5)}, []), ({10: (0, 5, 11), 9: (0, 7)}, [(7, 5)]), ({9: (0, 7, 15)}, [(8, 6)])],
        [({1: (0, 1, 2)}, [(1,), (1,)]), ({2: (0, 1, 2), 1: (0, 1, 2, 4)}, [(2,)])],
    ],
    ids=["steps-wait-for-the-slowest-process", "a-process-that-steps-later-is-no-rank"],
)
def test_steps_of_all_processes_are_told_once(clocks, rounds):
    clock = clocks()
    for stamps, told in rounds:
        for pid, stamps_ns in stamps.items():
            write_stamps(clock, pid, *stamps_ns)
        assert clock.steps() == told
    assert clock.steps() == []
