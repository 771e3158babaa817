"""Scripts as Horovod's users write them, which check their own results."""

from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_of_horovods_users_runs_unchanged(python, script, ranks):
    out = python(script.read_text(), under=("run", "-np", str(ranks)))
    assert "[0]<stdout>:ok: " in out
