import os
import time
from pathlib import Path

import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.measure.host_load import HostCounters, HostProbe, LocalHost, UnwatchedHost

STAT = """cpu  100 0 100 1000 0 0 0 640 0 0
cpu0 50 0 50 500 0 0 0 320 0 0
cpu1 50 0 50 500 0 0 0 320 0 0
intr 1
"""
SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm InSegs RetransSegs InErrs
Tcp: 1 5000 17 0
"""


def proc(folder: Path) -> Path:
    (folder / "pressure").mkdir()
    (folder / "net").mkdir()
    (folder / "stat").write_text(STAT)
    (folder / "pressure" / "cpu").write_text(
        "some avg10=1.00 avg60=0.00 avg300=0.00 total=2500000\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
    )
    (folder / "net" / "snmp").write_text(SNMP)
    return folder


def test_counters_are_read_from_proc(tmp_path: Path) -> None:
    counters = LocalHost(proc=proc(tmp_path)).counters()
    assert counters == HostCounters(steal_s=3.2, pressure_s=2.5, retransmits=17)


def test_what_a_kernel_does_not_tell_stays_zero(tmp_path: Path) -> None:
    assert LocalHost(proc=tmp_path).counters() == HostCounters()


def test_this_machine_has_counters() -> None:
    before = LocalHost().counters()
    after = LocalHost().counters()
    assert after.pressure_s >= before.pressure_s
    assert after.steal_s >= before.steal_s >= 0


def test_the_time_of_processes_is_that_of_all_their_threads() -> None:
    host, own = LocalHost(), os.getpid()
    before, before_own = host.cpu_s([own]), time.process_time()
    sum(range(2_000_000))
    used, used_own = host.cpu_s([own]) - before, time.process_time() - before_own

    assert used > 0
    assert used <= used_own * 1.5 + 0.01


@pytest.mark.parametrize(
    ("host", "pid", "message"),
    [
        (LocalHost(), 2**22 + 1, "only if every rank runs on the launcher's host"),
        (LocalHost(has_all_ranks=False), 1, "only if every rank runs on the launcher's host"),
        (UnwatchedHost(), 1, "does not report CPU time"),
    ],
    ids=["no-process", "ranks-elsewhere", "unwatched"],
)
def test_a_process_that_is_not_here_has_no_time(host: HostProbe, pid: int, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        host.cpu_s([pid])
