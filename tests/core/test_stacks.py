"""The signal by which the core asks for the main thread's stack."""

import subprocess
import sys

import pytest

_CLOSE_WHILE_ASKED = """
import signal, threading
from hvdtune.core.rank.stacks import open_stack_source

stacks = open_stack_source()
signal.pthread_sigmask(signal.SIG_BLOCK, [stacks.signal])
signal.pthread_kill(threading.main_thread().ident, stacks.signal)
closing = threading.Thread(target=stacks.close) if {from_thread} else None
closing.start() if closing else stacks.close()
closing and closing.join()
signal.pthread_sigmask(signal.SIG_UNBLOCK, [stacks.signal])
assert signal.getsignal(stacks.signal) == signal.SIG_DFL
assert open_stack_source().signal == stacks.signal
print("lives")
"""


@pytest.mark.parametrize("from_thread", [False, True], ids=["main-thread", "another-thread"])
def test_who_is_asked_when_nobody_answers_any_more_lives(from_thread):
    script = _CLOSE_WHILE_ASKED.format(from_thread=from_thread)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "lives\n", "")


# Python's signal.getsignal() does not know of faulthandler's handler, which is C.
_ANOTHER_USER = """
import faulthandler, signal, sys
from hvdtune.core.rank.stacks import open_stack_source

taken = signal.SIGRTMAX - 1
faulthandler.register(taken, file=sys.stdout, all_threads=False)
stacks = open_stack_source()
assert stacks.signal != taken
stacks.close()
signal.raise_signal(taken)
"""


def test_a_signal_that_somebody_else_handles_stays_theirs():
    command = [sys.executable, "-c", _ANOTHER_USER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<module>" in done.stdout
