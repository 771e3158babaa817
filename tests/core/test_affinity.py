import os
import subprocess
import sys

import pytest

from hvdtune.core.rank.affinity import threads_on, usable_processors
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
        pytest.raises(UsageError, match="core 4096 is not one that this process may use"),
        threads_on(4096),
    ):
        pass
