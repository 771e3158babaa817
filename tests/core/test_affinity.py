import os
import subprocess
import sys

import pytest

from hvdtune.core.rank.affinity import threads_on, usable_processors, where_it_runs
from hvdtune.errors import UsageError

_SCRIPT = """
import os
from hvdtune.core.rank.runtime import init
init()
for thread in sorted(map(int, os.listdir("/proc/self/task"))):
    print(*sorted(os.sched_getaffinity(thread)))
"""


def test_the_cores_threads_are_bound_and_the_callers_is_not():
    usable = sorted(os.sched_getaffinity(0))
    core = str(usable[-1])
    environ = os.environ | {"HOROVOD_THREAD_AFFINITY": core}
    done = subprocess.run([sys.executable, "-c", _SCRIPT], env=environ, capture_output=True)
    caller, *others = done.stdout.decode().splitlines()
    assert caller == " ".join(map(str, usable))
    assert others and set(others) == {core}


def test_no_more_processors_count_than_the_process_may_use():
    usable = os.sched_getaffinity(0)
    assert 1 <= usable_processors() <= len(usable)
    os.sched_setaffinity(0, {min(usable)})
    try:
        assert usable_processors() == 1
    finally:
        os.sched_setaffinity(0, usable)


def test_a_core_that_the_process_may_not_use_is_refused():
    with (
        pytest.raises(UsageError, match="core 4096 is not available to this process"),
        threads_on(4096),
    ):
        pass


@pytest.mark.parametrize(
    ("usable", "core", "said"),
    [
        ({3}, -1, "processor 3"),
        ({0, 1, 2, 5}, -1, "processors 0-2,5"),
        ({0, 1}, 1, "processors 0-1, hvdtune's threads on 1"),
    ],
)
def test_where_a_rank_runs_is_told_in_short(monkeypatch, usable, core, said):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable)
    assert where_it_runs(core) == said


@pytest.mark.parametrize(("level", "tells"), [("debug", True), ("info", True), ("warning", False)])
def test_a_rank_tells_it_where_it_is_asked_to(level, tells):
    environ = os.environ | {"HVDTUNE_LOG_LEVEL": level, "HVDTUNE_HOST": "node2"}
    script = "from hvdtune.core.rank.runtime import init; init()"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True
    )
    told = f"hvdtune[0] info: rank 0 of 1 on node2: {where_it_runs(-1)}\n"
    assert (told in done.stderr) is tells
