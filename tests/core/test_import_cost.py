"""What a rank loads beside its framework."""

import subprocess
import sys

import pytest

from hvdtune import workbench
from tests.kit import programs

_PROGRAM = """
import sys
{framework}
before = {{*sys.modules}}
import {module}
print(*sorted({{*sys.modules}} - before))
"""
# Loaded where they are needed: by a launcher, under MPI, to pickle objects, to record.
_LATER = {
    "asyncio", "click", "cloudpickle", "glob", "msgspec", "multiprocessing", "psutil", "ruamel",
    "xml", "email", "http", "urllib", "ssl", "unittest",
}  # fmt: skip
_UNITS = (
    "launcher", "timeline", "tuner", "workflows", "cli", "dashboard", "doctor",
    "core.mpi.", "core.job.", "core.config.", "core.elastic", "horovod.", "keras.",
)  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "module", "others"),
    [
        ("numpy", "hvdtune.core.rank.collectives", 60),
        ("torch", "hvdtune.torch", 20),
        pytest.param("tensorflow", "hvdtune.tensorflow", 20, marks=pytest.mark.slow),  # loads long
    ],
)
def test_a_rank_loads_little_beside_its_framework(framework, module, others):
    program = _PROGRAM.format(framework=f"import {framework}", module=module)
    command = [sys.executable, "-c", program]
    environ = programs.environ(TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    packages = {name.partition(".")[0] for name in loaded}
    assert packages.isdisjoint({*workbench.PACKAGES} | _LATER)
    own = [name for name in loaded if name.startswith("hvdtune")]
    units = [f"hvdtune.{unit}" for unit in _UNITS]
    assert not [name for name in own if name.startswith(tuple(units))]
    assert len(own) < 75 and len(loaded) - len(own) < others, loaded
