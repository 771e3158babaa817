"""Discovery scripts that hang, fail or print what is no host."""

from pathlib import Path

import psutil
import pytest

from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.elastic import discovery
from hvdtune.launcher.elastic.discovery import DiscoveryScript
from tests.launcher.elastic.test_deaths import lives, wait_for

HANGS = "sleep 1000 & echo $! > $PWD/new && mv $PWD/new $PWD/pid; wait"


@pytest.fixture(autouse=True)
def short_times(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(discovery, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(discovery, "_LATE_S", 0.1)


def sleeper(tmp_path):
    wait_for((tmp_path / "pid").exists, "the script has not hung")
    return psutil.Process(int((tmp_path / "pid").read_text()))


def test_a_script_that_hangs_is_spoken_of_and_ends_with_the_job(tmp_path):
    script = DiscoveryScript(f"echo a; [ ! -e hang ] || {{ {HANGS}; }}", 2, print)
    (tmp_path / "hang").touch()
    hanging, remarks = sleeper(tmp_path), []
    wait_for(lambda: remarks.append(script.take_remark()) or any(remarks), "nothing is said")
    assert "has run for 0.1 s" in remarks[-1] and "hosts stay as they were" in remarks[-1]
    script.close()
    wait_for(lambda: not lives(hanging), "what the script has started lives on")
    assert script.found == {"a": 2}


def test_a_first_run_that_takes_too_long_is_ended_with_all_that_it_has_started(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(discovery, "_SCRIPT_S", 1.0)
    said = []
    with pytest.raises(LaunchError, match="took longer than 1 s, and was ended"):
        DiscoveryScript(HANGS, 2, said.append)
    assert len(said) == 1
    wait_for(lambda: not lives(sleeper(tmp_path)), "what the script has started lives on")


def test_a_script_of_this_folder_needs_no_path(tmp_path):
    path = tmp_path / "discover_hosts.sh"
    path.write_text('#!/bin/sh\necho "$1"\n')
    path.chmod(0o755)
    script = DiscoveryScript("discover_hosts.sh a:3", 1, print)
    assert script.found == {"a": 3}
    script.close()


def test_a_host_keeps_its_first_spelling(tmp_path):
    script = DiscoveryScript("if [ -e later ]; then echo NODE1:2; else echo node1; fi", 1, print)
    (tmp_path / "later").touch()
    wait_for(lambda: script.found == {"node1": 2}, "the host is another one in capitals")
    script.close()


def test_a_fault_of_one_run_does_not_end_the_next_ones(monkeypatch):
    script = DiscoveryScript("echo a:$(cat slots 2> /dev/null || echo 1)", 1, print)
    asked = discovery.parse_discovered

    def fail(text, slots):
        monkeypatch.setattr(discovery, "parse_discovered", asked)
        raise MemoryError("none left")

    monkeypatch.setattr(discovery, "parse_discovered", fail)
    remarks = []
    wait_for(lambda: remarks.append(script.take_remark()) or any(remarks), "nothing is said")
    assert "MemoryError: none left" in remarks[-1]
    Path("slots").write_text("2")
    wait_for(lambda: script.found == {"a": 2}, "the script is not run again")
    script.close()


def test_what_is_no_host_is_said_with_the_options_name(tmp_path):
    script = DiscoveryScript("if [ -e bad ]; then echo a:b:c; else echo a; fi", 1, print)
    (tmp_path / "bad").touch()
    remarks = []
    wait_for(lambda: remarks.append(script.take_remark()) or any(remarks), "nothing is said")
    assert remarks[-1].startswith("--host-discovery-script: 'a:b:c' is not a host")
    assert remarks[-1].endswith("; the hosts stay as they were")
    script.close()


@pytest.mark.parametrize(("mode", "why"), [(0o644, "chmod +x"), (None, "was not found")])
def test_a_script_that_cannot_run_says_why(tmp_path, mode, why):
    if mode:
        (tmp_path / "hosts.sh").write_text("echo a")
        (tmp_path / "hosts.sh").chmod(mode)
    with pytest.raises(UsageError, match=why.replace("+", r"\+")):
        DiscoveryScript("./hosts.sh", 1, print)
