import shutil
import subprocess
import sys
import zipapp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdtune.errors import UsageError
from hvdtune.launcher.hosts import Host, parse_hosts
from hvdtune.launcher.plan import Slot, build_command, plan_slots, slot_environ, slot_of


@pytest.mark.parametrize(
    ("hosts", "places"),
    [
        ("a:2,b:2,c:1",
         [("a", 0, 2, 0, 2), ("a", 1, 2, 0, 2), ("b", 0, 2, 1, 2), ("b", 1, 2, 1, 2)]),
        ("a:1,b:2", [("a", 0, 1, 0, 2), ("b", 0, 2, 1, 2), ("b", 1, 2, 0, 1)]),
    ],
    ids=["hosts-are-filled-in-order", "cross-ranks-count-hosts-that-have-the-local-rank"],
)  # fmt: skip
def test_ranks_have_places_on_hosts(hosts, places):
    slots = tuple(Slot(rank, *place) for rank, place in enumerate(places))
    assert plan_slots(parse_hosts(hosts), len(places)) == slots


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_places_are_consistent(rooms, data):
    processes = data.draw(st.integers(1, sum(rooms)))
    slots = plan_slots([Host(f"h{n}", room) for n, room in enumerate(rooms)], processes)
    assert [slot.rank for slot in slots] == list(range(processes))
    assert len({(slot.host, slot.local_rank) for slot in slots}) == processes
    assert len({(slot.cross_rank, slot.local_rank) for slot in slots}) == processes
    for slot in slots:
        assert sum(other.host == slot.host for other in slots) == slot.local_size
        assert sum(other.local_rank == slot.local_rank for other in slots) == slot.cross_size
        assert 0 <= slot.cross_rank < slot.cross_size


@pytest.mark.parametrize(
    ("processes", "fault"),
    [(0, "at least one process"), (-3, "at least one process"), (5, "the hosts have only 4 slots")],
)
def test_counts_that_cannot_be_are_usage_errors(processes, fault):
    with pytest.raises(UsageError, match=fault):
        plan_slots([Host("a", 2), Host("b", 2)], processes)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["train.py", "--lr", "1"], (sys.executable, "train.py", "--lr", "1")),
        (["sh", "-c", "train.py"], ("sh", "-c", "train.py")),
    ],
    ids=["script-under-this-interpreter", "other-command-as-it-is"],
)
def test_the_command_of_a_rank(tmp_path, monkeypatch, words, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    assert build_command(words) == command


@pytest.fixture
def programs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("print('ran')\n")
    zipapp.create_archive("app", "app.pyz")
    zipapp.create_archive("app", "archive")
    (tmp_path / "train").write_text("#!/usr/bin/env python3\nprint('ran')\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho ran\n")
    shutil.copy("/bin/true", "compiled")
    (tmp_path / "compiled").chmod(0o644)


@pytest.mark.parametrize("word", ["app", "app.pyz", "archive", "train", "./train"])
def test_what_python_runs_runs_under_this_interpreter(programs, word):
    command = build_command([word, "--lr", "1"])
    assert command == (sys.executable, word, "--lr", "1")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ran\n")


def test_a_program_runs_as_it_is_though_a_file_has_its_name(programs, tmp_path):
    (tmp_path / "sh").write_text("print('ran')\n")
    assert build_command(["sh", "-c", "true"]) == ("sh", "-c", "true")
    (tmp_path / "run.sh").chmod(0o755)
    assert build_command(["./run.sh"]) == ("./run.sh",)


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        ("empty", r"empty is a folder without __main__\.py"),
        ("./run.sh", r"run.sh is not executable: chmod \+x run.sh"),
        ("compiled", r"compiled is not executable"),
        ("absent.pyz", r"there is no script absent\.pyz"),
    ],
)
def test_what_python_cannot_run_is_a_usage_error(programs, word, fault):
    with pytest.raises(UsageError, match=fault):
        build_command([word])


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], "nothing to run"),
        (["absent.py"], "there is no script absent.py"),
        (["absent-program"], "there is no program absent-program"),
    ],
)
def test_commands_that_are_not_there_are_usage_errors(words, fault):
    with pytest.raises(UsageError, match=fault):
        build_command(words)


def test_a_slot_is_told_under_the_names_of_hvdtune_horovod_and_torch():
    environ = slot_environ(Slot(3, "b", 1, 2, 1, 2), 4)
    for name, value in {"RANK": "3", "SIZE": "4", "LOCAL_RANK": "1", "CROSS_SIZE": "2"}.items():
        assert environ[f"HVDTUNE_{name}"] == environ[f"HOROVOD_{name}"] == value
    assert environ["HVDTUNE_HOST"] == environ["HOROVOD_HOSTNAME"] == "b"
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    assert [environ[name] for name in names] == ["3", "4", "1", "2"]


def test_a_rank_has_its_place_by_the_hosts_of_all():
    planned = plan_slots(parse_hosts("a:1,b:3,c:2"), 6)
    hosts = [slot.host for slot in planned]
    assert tuple(slot_of(hosts, rank) for rank in range(6)) == planned
