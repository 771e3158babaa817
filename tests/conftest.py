import contextlib
import os
import shutil
import signal
import threading
import time

import psutil
import pytest

from tests.kit import shm

pytest_plugins = ["tests.kit.cost", "tests.kit.lanes"]

# Ranks that share two processors are slower with two threads each, and the tests' own arithmetic
# is small. Read when numpy and torch are first imported, here and in what tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What runs in the background or under nohup ignores them, and what is started from here would.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

shm.mark_own()

BROWSER_ARGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

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
    return {"threads": threads, "children": children, "shm": shm.named()}


@pytest.fixture(scope="session")
def browser():
    """One for all tests: Playwright's loop lives as long as it does, and allows no second one."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium on this machine")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=BROWSER_ARGS)
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    before = leftovers()
    yield
    for _ in range(300):  # processes that have been told to end need their time on a busy machine
        after = leftovers()
        left = {kind: after[kind] - before[kind] for kind in after}
        left["shm"] = shm.abandoned(left["shm"])
        if not any(left.values()):
            return
        time.sleep(0.1)
    pytest.fail(f"left behind: {left}")
