import contextlib
import os
import threading
import time

import psutil
import pytest

# Started once and kept for the whole run; the browser starts and ends helpers as it likes.
SERVERS = (
    "multiprocessing.forkserver",
    "multiprocessing.resource_tracker",
    "/chromium",
    "/usr/sbin/sshd -D",
)


def leftovers():
    threads = {t.name for t in threading.enumerate() if not t.daemon}
    children = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(child.cmdline())
            if not any(server in command for server in SERVERS):
                children.add(f"{child.pid} {command[:80]}")
    # Folders there are some other program's: a segment is a file.
    segments = {entry.name for entry in os.scandir("/dev/shm") if entry.is_file()}
    return {"threads": threads, "children": children, "shm": segments}


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    before = leftovers()
    yield
    for _ in range(50):
        after = leftovers()
        left = {kind: after[kind] - before[kind] for kind in after}
        if not any(left.values()):
            return
        time.sleep(0.1)
    pytest.fail(f"left behind: {left}")
