"""`hvdtune run` in a batch script or the shell of an allocation, where nobody has named hosts."""

import shutil
from collections import Counter

import pytest

from hvdtune.cli import placement
from hvdtune.cli.app import app
from hvdtune.cli.placement import choose_hosts
from hvdtune.cli.request import job_of, rank_variables
from hvdtune.errors import UsageError

_TWO = {"SLURM_JOB_NODELIST": "127.0.0.[2-3]", "SLURM_TASKS_PER_NODE": "2(x2)"}
_ASKED = _TWO | {"SLURM_NTASKS": "4"}
_ONE = _ASKED | {"SLURM_JOB_NODELIST": "a", "SLURM_TASKS_PER_NODE": "4"}
_SAID = (
    "using the hosts of SLURM_JOB_NODELIST, 127.0.0.2:2,127.0.0.3:2; -H localhost:N stays on this "
    "host"
)


def resolved(monkeypatch, environ, *words, programs=("ssh", "python")):
    monkeypatch.setattr(placement, "own_environ", lambda: environ)
    monkeypatch.setattr(shutil, "which", lambda name: name if name in programs else None)
    options = app(["run", *words, "--", "python", "-c", ""], standalone_mode=False)
    place = choose_hosts(options.placement)
    job = job_of(options, place, rank_variables(options))
    return [slot.host for slot in job.plan.slots], place.notice


@pytest.mark.parametrize(
    ("environ", "words", "hosts"),
    [
        (_ASKED, (), ["127.0.0.2"] * 2 + ["127.0.0.3"] * 2),
        (_ASKED, ("-np", "3"), ["127.0.0.2"] * 2 + ["127.0.0.3"]),
        (_TWO, (), ["127.0.0.2"]),
        (_TWO, ("-np", "4"), ["127.0.0.2"] * 2 + ["127.0.0.3"] * 2),
    ],
)
def test_the_ranks_are_on_the_hosts_of_the_allocation_and_a_line_says_so(
    monkeypatch, environ, words, hosts
):
    assert resolved(monkeypatch, environ, *words) == (hosts, _SAID)


@pytest.mark.parametrize(
    ("environ", "words", "hosts"),
    [
        ({}, (), [3]),
        ({}, ("-np", "2"), [2]),
        ({}, ("-H", "127.0.0.1,127.0.0.2"), [3, 3]),
        ({}, ("-H", "127.0.0.1,127.0.0.2:1"), [3, 1]),
        ({}, ("-H", "127.0.0.1,127.0.0.2", "-np", "4"), [3, 1]),
        ({}, ("--hostfile", "{folder}/hosts"), [2, 3]),
        (_TWO, (), [3, 3]),
        (_ASKED, (), [3, 3]),
        (_ASKED, ("-np", "4"), [3, 1]),
    ],
)
def test_a_host_without_a_number_has_the_slots_that_are_asked_for(
    monkeypatch, tmp_path, environ, words, hosts
):
    (tmp_path / "hosts").write_text("127.0.0.1 slots=2\n127.0.0.2\n")
    words = [word.format(folder=tmp_path) for word in words]
    names, _ = resolved(monkeypatch, environ, "--slots-per-host", "3", *words)
    assert list(Counter(names).values()) == hosts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-np", "4"), "ranks 4: the hosts have only 3 slots"),
        (("-np", "4", "-H", "127.0.0.1"), "ranks 4: the hosts have only 3 slots"),
    ],
)
def test_more_ranks_than_such_slots_are_refused(monkeypatch, words, said):
    with pytest.raises(UsageError, match=said):
        resolved(monkeypatch, {}, "--slots-per-host", "3", *words)


@pytest.mark.parametrize(
    ("environ", "words", "hosts"),
    [
        ({}, ("-np", "2"), ["localhost"] * 2),
        (_ASKED, ("-H", "localhost:1"), ["localhost"]),
        (_ASKED | {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1"}, ("-np", "2"), ["localhost"] * 2),
        (_ONE, ("-np", "2"), ["localhost"] * 2),
        (_ONE | {"SLURM_NTASKS": "1"}, (), ["localhost"]),
    ],
    ids=["no-allocation", "named", "a-task", "no-other-host", "no-other-task"],
)
def test_otherwise_they_are_where_they_were(monkeypatch, environ, words, hosts):
    assert resolved(monkeypatch, environ, *words) == (hosts, "")


def test_one_rank_on_the_only_host_of_several_tasks_is_told_of_them(monkeypatch):
    hosts, notice = resolved(monkeypatch, _ONE)
    assert hosts == ["localhost"]
    assert notice == (
        "starting 1 rank, but the allocation of a has 4 tasks; use -np 4 to start one rank per task"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SLURM_TASKS_PER_NODE": "2"}, "SLURM_JOB_NODELIST=127.0.0.[2-3] has 2 hosts, but SLURM_"),
        ({"SLURM_JOB_NODELIST": "", "PBS_NODEFILE": "/proc/absent"}, "PBS_NODEFILE=/proc/absent: "),
    ],
)
def test_an_allocation_that_cannot_be_read_is_refused_unless_hosts_are_named(
    monkeypatch, changes, said
):
    with pytest.raises(UsageError) as refused:
        resolved(monkeypatch, _ASKED | changes, "-np", "2")
    assert said in str(refused.value)
    named, _ = resolved(monkeypatch, _ASKED | changes, "-H", "localhost:2")
    assert named == ["localhost"] * 2


def test_without_ssh_other_hosts_cannot_be_reached(monkeypatch):
    assert resolved(monkeypatch, _ASKED, "-np", "2", programs=["python"]) == (["localhost"] * 2, "")
