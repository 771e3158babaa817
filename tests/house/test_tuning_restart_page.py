"""The commands of docs/tuning-restart.md work."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tuning-restart.md").read_text()
COMMANDS = re.search(r"<!-- docs-test: commands -->\n```sh\n(.*?)```", PAGE, re.DOTALL)[1]
_STAND_IN = """
import os, time
for step in range(30):
    step_s = 0.002 if os.environ.get("PACE") == "fast" else 0.003
    time.sleep(step_s)
    print("step_time:", step_s)
"""


@pytest.mark.slow
@pytest.mark.timeout(300)  # dozens of launches
@pytest.mark.parametrize("command", COMMANDS.splitlines())
def test_a_command_of_the_page_works(command, tmp_path):
    (tmp_path / "standin.py").write_text(_STAND_IN)
    (tmp_path / "b.yaml").write_text("PACE: fast\n")
    program, *words = shlex.split(command)
    assert program == "hvdtune"
    done = subprocess.run(
        [sys.executable, "-m", "hvdtune", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode in (0, 3, 4), done.stderr
    if "--mode" in words:
        assert "measured by " in done.stderr
        assert len(list(tmp_path.glob("runs/*/verdict.json"))) == 1
    else:
        assert "[0]<stdout>:step_time: 0.003" in done.stdout
