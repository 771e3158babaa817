"""A study in two scopes of a real script of DistributedDataParallel."""

import json
import re

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]  # dozens of launches

_TRAIN = """
import torch
from torch import distributed as dist, nn
dist.init_process_group("hvdtune")
torch.set_num_threads(1)
layers = nn.Sequential(*(nn.Linear(40, 40) for _ in range(20)))
model = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.01)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(3000):
    optimizer.zero_grad()
    model(torch.ones(4, 40)).square().mean().backward()
    optimizer.step()
print("trained with", model.bucket_bytes_cap / 2**20, "MiB")
dist.destroy_process_group()
"""


def test_live_knobs_and_then_buckets_have_one_verdict(hvdtune, tmp_path):
    (tmp_path / "train.py").write_text(_TRAIN)
    knobs = ("--knobs", "cycle_time_ms,ddp_bucket_cap_mb", "--launch-time", "0.1s")
    limits = ("--trials", "2", "--time-budget", "1200s")
    run = hvdtune("run", "-np", "2", *limits, *knobs, "-o", "study", "train.py")
    out, err = run.communicate()
    assert run.returncode in (0, 3, 4), err
    study = tmp_path / "study"
    profile = yaml.safe_load((study / "profile.yaml").read_text())
    assert profile["default"]["ddp_bucket_cap_mb"] == pytest.approx(0.01, abs=1e-4)
    assert profile["verdict"]["text"] in out
    pairs = [json.loads(line) for line in (study / "pairs.jsonl").read_text().splitlines()]
    searched = [pair["setting"] for pair in pairs if pair["phase"] == "search"]
    assert any(setting["ddp_bucket_cap_mb"] > 0.02 for setting in searched)
    assert {pair["setting"]["chunk_bytes"] for pair in pairs} == {524288}
    live = [json.loads(line) for line in (study / "live" / "pairs.jsonl").read_text().splitlines()]
    assert all("ddp_bucket_cap_mb" not in pair["setting"] for pair in live)
    last = max((study / "output").iterdir(), key=lambda path: int(path.stem.split("-")[1]))
    cap = float(re.findall(r"trained with (\S+) MiB", last.read_text())[-1])
    assert cap == pytest.approx(profile["setting"]["ddp_bucket_cap_mb"], abs=1e-4)
