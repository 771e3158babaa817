"""Scripts as Horovod's users write them, which check their own results."""

from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
# Those that do another thing with more ranks.
WITH_FOUR = ("process_sets", "uneven_data")
RUNS = [(script, 2) for script in SCRIPTS] + [
    pytest.param(script, 4, marks=pytest.mark.slow)
    for script in SCRIPTS
    if script.stem in WITH_FOUR
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("script", "ranks"), RUNS, ids=lambda each: getattr(each, "stem", each))
def test_a_script_of_horovods_users_runs_unchanged(python, script, ranks):
    out = python(script.read_text(), under=("run", "-np", str(ranks)))
    assert "[0]<stdout>:ok: " in out
