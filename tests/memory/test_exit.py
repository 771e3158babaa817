"""An interpreter that ends while threads are in the core."""

import subprocess
import sys

import pytest

from hvdtune.core.config.environment import own_environ

SCRIPT = """
import threading
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import barrier
runtime.init()
native, inside = runtime.native(), threading.Event()

def wait_again_and_again():
    while True:
        try:
            {call}
        except Exception:
            pass
        inside.set()

for _ in range(4):
    threading.Thread(target=wait_again_and_again, daemon=True).start()
inside.wait()
"""


@pytest.mark.parametrize(
    "call", ["native.allocate_shared(4096)", "native.start_timeline('/dev/null', 0)"]
)
def test_threads_that_are_in_the_core_do_not_end_the_process_by_a_signal(call):
    script = SCRIPT.format(call=call)
    done = subprocess.run(
        [sys.executable, "-c", script], env=own_environ(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
