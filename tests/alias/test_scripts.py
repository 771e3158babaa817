"""Scripts as Horovod's users write them, which check their own results."""

from pathlib import Path

import pytest

slow = [pytest.mark.slow]
# These need Keras 2, with which test_omnifold.py and test_recommenders.py run them.
WITH_KERAS_2 = ("omnifold_unfold", "recommenders_train")
SCRIPTS = sorted(
    script
    for script in (Path(__file__).parent / "scripts").glob("*.py")
    if script.stem not in WITH_KERAS_2
)
# Importing their frameworks takes all of them minutes of processor time.
AT_ONCE = ("accumulation",)
# Those that do another thing with more ranks.
WITH_FOUR = ("process_sets", "uneven_data")
RUNS = [
    pytest.param(script, ranks, marks=[] if ranks == 2 and script.stem in AT_ONCE else slow)
    for script in SCRIPTS
    for ranks in (2, 4)
    if ranks == 2 or script.stem in WITH_FOUR
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("script", "ranks"), RUNS, ids=lambda each: getattr(each, "stem", each))
def test_a_script_of_horovods_users_runs_unchanged(python, script, ranks):
    out = python(script.read_text(), under=("run", "-np", str(ranks)))
    assert "[0]<stdout>:ok: " in out
