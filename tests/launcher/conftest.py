import contextlib
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hvdtune.launcher.hosts import parse_hosts
from hvdtune.launcher.job import Job
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import plan_slots
from hvdtune.launcher.ranks import JobOptions, JobPlan, start_ranks

STAND_IN = Path(__file__).with_name("stand_in.py")
_NAMES = runpy.run_path(str(STAND_IN))


@pytest.fixture
def stand_in() -> Path:
    """The stand-in launcher, to be run as a program."""
    return STAND_IN


@pytest.fixture
def write_script(tmp_path: Path) -> Callable[[str], str]:
    """Writes a rank's script, with `init()` defined."""

    def write(body: str) -> str:
        path = tmp_path / "rank.py"
        path.write_text(_NAMES["INIT"] + body)
        return str(path)

    return write


class Collected:
    """A writer that keeps what it is given, by stream."""

    def __init__(self) -> None:
        self.text = {"stdout": "", "stderr": ""}

    def __call__(self, stream: str, text: bytes) -> None:
        self.text[stream] += text.decode()


@pytest.fixture
def collected() -> Collected:
    return Collected()


StartJob = Callable[..., Job]


@pytest.fixture
def start_job(write_script: Callable[[str], str]) -> Iterator[StartJob]:
    """Starts a job of a script's text on the stand-in channel, and ends it after the test."""
    with contextlib.ExitStack() as stack:

        def start(
            body: str,
            ranks: int = 2,
            hosts: str = "localhost:4",
            options: JobOptions | None = None,
            writers: tuple[Writer, ...] = (),
        ) -> Job:
            command = (sys.executable, write_script(body))
            plan = JobPlan(command, plan_slots(parse_hosts(hosts), ranks), "rank.py")
            options = options or JobOptions(report_grace_s=0.5, terminate_grace_s=0.5)
            channel = _NAMES["StandInChannel"]
            job = start_ranks(plan, {}, options, writers=writers, open_channel=channel)
            return stack.enter_context(job)

        yield start


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    assert [
        thread.name for thread in threading.enumerate() if thread.name == "hvdtune-output"
    ] == []


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Whether a process ends; a zombie has ended."""

    def check(pid: int) -> bool:
        for _ in range(5000):
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    time.sleep(0.02)
                    continue
            return True
        return False

    return check
