"""The commands of docs/tuning-restart.md work."""

import pytest

from tests.kit.pages import Page, words_of
from tests.kit.programs import run_cli

PAGE = Page("docs/tuning-restart.md")
_STAND_IN = """
import os, time
for step in range(30):
    step_s = 0.002 if os.environ.get("PACE") == "fast" else 0.003
    time.sleep(step_s)
    print("step_time:", step_s)
"""


# Of the studies, which start the command dozens of times, the shortest is not slow.
_STUDIES = [line for line in PAGE.commands() if "--mode" in line and " aa " not in line]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "command",
    [pytest.param(line, marks=[pytest.mark.slow] * (line in _STUDIES)) for line in PAGE.commands()],
)
def test_a_command_of_the_page_works(command, tmp_path):
    (tmp_path / "standin.py").write_text(_STAND_IN)
    (tmp_path / "b.yaml").write_text("PACE: fast\n")
    words = words_of(command)
    done = run_cli(*words, folder=tmp_path, codes=(0, 3, 4))
    if "--mode" in words:
        assert "measured by " in done.stderr
        assert len(list(tmp_path.glob("runs/*/verdict.json"))) == 1
    else:
        assert "[0]<stdout>:step_time: 0.003" in done.stdout
