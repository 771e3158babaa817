"""The ranks of a host choose by the same costs, which the first job there measures."""

import json
import os
import subprocess
import sys

import pytest

from hvdtune.core.config import host_costs

_SCRIPT = """
import json, os
import hvdtune.core.rank.runtime as runtime
runtime.init()
native = runtime.native()
with open(f"{os.environ['SEEN']}-{native.topology()['rank']}", "w") as file:
    json.dump([native.host_costs(), native.has_measured_costs()], file)
runtime.shutdown()
"""
COSTS = {name: 10.0 + index for index, name in enumerate(host_costs.NAMES)}


@pytest.fixture
def run(tmp_path):
    """Runs a job with caches of its own; returns each rank's costs, and who measured."""
    (tmp_path / "script.py").write_text(_SCRIPT)

    def run(*options, **variables):
        environ = os.environ | {
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "SEEN": str(tmp_path / "seen"),
            **variables,
        }
        command = [sys.executable, "-m", "hvdtune", "run", "-np", "2", *options]
        subprocess.run([*command, str(tmp_path / "script.py")], env=environ, check=True)
        seen = [json.loads((tmp_path / f"seen-{rank}").read_text()) for rank in range(2)]
        return [costs for costs, _ in seen], [measured for _, measured in seen]

    return run


def test_the_first_job_measures_and_the_next_reads(run, tmp_path):
    costs, measured = run()
    assert measured == [True, False]
    assert costs[0] == costs[1]
    kept = host_costs.load(tmp_path / "cache" / "hvdtune")
    assert kept == pytest.approx(costs[0], abs=1e-3)
    assert run() == ([kept, kept], [False, False])
    path = host_costs.path_in(tmp_path / "cache" / "hvdtune")
    path.write_text(path.read_text()[:-20])
    assert run()[1] == [True, False]


def test_a_user_decides(run, tmp_path):
    assert run(HVDTUNE_HOST_COSTS=json.dumps(COSTS)) == ([COSTS, COSTS], [False, False])
    host_costs.store(tmp_path / "cache" / "hvdtune", COSTS)
    assert run(HVDTUNE_HOST_COSTS="measure")[1] == [True, False]


def test_ranks_that_share_no_memory_measure_nothing(run, tmp_path):
    assert run("--transport", "tcp")[1] == [False, False]
    assert not host_costs.path_in(tmp_path / "cache" / "hvdtune").exists()
