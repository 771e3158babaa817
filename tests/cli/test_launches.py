"""One pair of real launches, for each kind of ranks that hvdtune starts itself."""

import math
from dataclasses import replace

import pytest

from hvdtune.cli import app
from hvdtune.cli.messages import TerminalReporter
from hvdtune.cli.placement import choose_hosts
from hvdtune.cli.request import job_of, measurement_of, rank_variables
from hvdtune.tuner.measure.progress import Reporter, WallClock
from hvdtune.tuner.measure.restart_run import ByRestarting, RestartRun
from hvdtune.tuner.space.tune_options import BY_RESTARTING
from hvdtune.workflows.requests import OutputRequest, RunRequest
from hvdtune.workflows.restart import find_target
from hvdtune.workflows.session import Session

_DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(512, 512), bucket_cap_mb=50)
print("made with", model.bucket_bytes_cap >> 20, model.gradient_as_bucket_view, flush=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(2, 512)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def measure_pair(tmp_path, monkeypatch):
    """Measures a changed setting against the reference; returns run, pair and each launch's log."""
    monkeypatch.chdir(tmp_path)

    def measure(changed, *words):
        options = app.parse(["run", "--mode", "restart", *words, "train.py"])
        job = job_of(options, choose_hosts(options.placement), rank_variables(options))
        prepared = find_target(job, knobs=measurement_of(options).knobs or ())
        clock, chosen = (
            WallClock(),
            replace(
                BY_RESTARTING,
                trials=1,
                time_budget_s=600,
                blocks=replace(BY_RESTARTING.blocks, seconds=0.05),
            ),
        )
        reporter = Reporter(lambda progress: None, clock, 1, 600)
        request = RunRequest(job, output=OutputRequest(tmp_path / "run"))
        with Session(request, TerminalReporter()) as session:
            session.open_folder()
            session.starter, session.records = prepared.starter, False
            by = ByRestarting(session.start)
            run = RestartRun(by, prepared.reference, chosen, clock, reporter)
            run.ensure_running()
            times = run.measure({**prepared.reference, **changed}, "BAAB", run.choose_shape())
        logs = [session.folder.log(launch).read_text() for launch in range(3)]
        return prepared, run, times, [[*filter(_told, sorted(log.splitlines()))] for log in logs]

    return measure


def _told(line):
    return "]<stdout>:" in line


@pytest.mark.slow
def test_ranks_take_in_restart_knobs_and_report_their_steps(measure_pair, script):
    script(
        "init()\n"
        "print(os.environ['HVDTUNE_CACHE_CAPACITY'], os.environ['HVDTUNE_TRANSPORT'])\n"
        "while True:\n    time.sleep(0.001)\n    step()\n"
    )
    changed = {"cache_capacity": 512, "transport": "tcp"}
    _, run, times, told = measure_pair(changed, "-np", "2", "--knobs", "cache_capacity,transport")
    assert run.measured_by == "the optimizer steps of the ranks"
    assert times.order == "BA"
    assert times.setting_step_s > 0.001
    default, other = "1024 auto", "512 tcp"
    assert told == [
        [f"[{rank}]<stdout>:{said}" for rank in (0, 1)] for said in (default, other, default)
    ]


@pytest.mark.slow
@pytest.mark.timeout(300)  # four imports of torch, one after the other
def test_an_unmodified_ddp_script_is_clocked_and_given_other_buckets(measure_pair, tmp_path):
    (tmp_path / "train.py").write_text(_DDP)
    changed = {"ddp_bucket_cap_mb": 4.0, "ddp_gradient_as_bucket_view": True}
    prepared, run, times, told = measure_pair(changed, "--adapter", "ddp")
    assert prepared.reference["ddp_bucket_cap_mb"] == 50
    assert run.measured_by == "the steps of torch's optimizer"
    assert math.isfinite(times.log_ratio)
    assert [lines[0] for lines in told] == [
        "[0]<stdout>:made with 50 False",
        "[0]<stdout>:made with 4 True",
        "[0]<stdout>:made with 50 False",
    ]
