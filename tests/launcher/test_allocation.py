"""The hosts of an allocation, from the variables of its scheduler."""

import pytest

from hvdtune.errors import UsageError
from hvdtune.launcher.allocation import Allocation, read_allocation
from hvdtune.launcher.hosts import Host


@pytest.mark.parametrize(
    ("environ", "allocation"),
    [
        ({}, None),
        (
            {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "4(x2),3"}
            | {"SLURM_NTASKS": "11"},
            Allocation((Host("n1", 4), Host("n2", 4), Host("n3", 3)), "SLURM_JOB_NODELIST", 11),
        ),
        (
            {"SLURM_JOB_NODELIST": "n1,n2", "SLURM_TASKS_PER_NODE": "8(x2)"},
            Allocation((Host("n1", 8), Host("n2", 8)), "SLURM_JOB_NODELIST"),
        ),
        ({"SLURM_JOB_NODELIST": "n1"}, Allocation((Host("n1", 1),), "SLURM_JOB_NODELIST")),
    ],
    ids=["none", "tasks", "hosts-only", "one-host-without-tasks"],
)
def test_the_variables_describe_an_allocation(environ, allocation):
    assert read_allocation(environ) == allocation


@pytest.mark.parametrize("name", ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE"])
@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a\na\nb\n", (Host("a", 2), Host("b", 1))),
        ("b\na\n", (Host("b", 1), Host("a", 1))),
        ("A\na\nb\n", (Host("A", 2), Host("b", 1))),
    ],
)
def test_a_file_of_hosts_has_a_line_for_each_task(tmp_path, name, text, hosts):
    file = tmp_path / "hosts"
    file.write_text(text)
    tasks = sum(host.slots for host in hosts)
    assert read_allocation({name: str(file)}) == Allocation(hosts, name, tasks)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"SLURM_JOB_NODELIST": "n1,n2", "SLURM_TASKS_PER_NODE": "8"},
            "SLURM_JOB_NODELIST=n1,n2 has 2 hosts, but SLURM_TASKS_PER_NODE, the number of tasks "
            "on each, is 8",
        ),
        ({"SLURM_JOB_NODELIST": "n[1-3]"}, "SLURM_TASKS_PER_NODE, .*, is not set"),
        (
            {"SLURM_JOB_NODELIST": "n[1-3", "SLURM_TASKS_PER_NODE": "1(x3)"},
            r"SLURM_JOB_NODELIST=n\[1-3 is not a list of hosts",
        ),
        ({"PBS_NODEFILE": "/proc/absent"}, "PBS_NODEFILE=/proc/absent: No such file or directory"),
        ({"LSB_DJOB_HOSTFILE": "/"}, "LSB_DJOB_HOSTFILE=/: Is a directory"),
        ({"PBS_NODEFILE": "/dev/null"}, "PBS_NODEFILE=/dev/null, is empty"),
        (
            {"SLURM_JOB_NODELIST": "n[1-99999999999]", "SLURM_TASKS_PER_NODE": "2"},
            r"SLURM_JOB_NODELIST=n\[1-99999999999\] has more than 100000 hosts",
        ),
        (
            {"SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "2(x99999999999)"},
            r"SLURM_TASKS_PER_NODE=2\(x99999999999\) has more than 100000 hosts",
        ),
    ],
    ids=[
        "not-of-this-job", "no-counts", "half-a-list", "no-file", "folder", "empty", "endless-list",
        "endless-counts",
    ],
)  # fmt: skip
def test_an_allocation_whose_hosts_cannot_be_read_is_no_host_without_others(environ, sentence):
    with pytest.raises(UsageError, match=sentence) as refused:
        read_allocation(environ)
    assert str(refused.value).endswith(
        "; to list the hosts yourself, use -H HOST:SLOTS, as in -H localhost:2"
    )


@pytest.mark.parametrize("line", ["no de2", "-oProxyCommand=x", "node2:4"])
def test_a_line_that_is_no_host_is_named(tmp_path, line):
    file = tmp_path / "hosts"
    file.write_text(f"node1\n\n{line}\n")
    with pytest.raises(UsageError) as refused:
        read_allocation({"PBS_NODEFILE": str(file)})
    assert f"PBS_NODEFILE={file}:3: '{line}' is not a host name such as node1" in str(refused.value)
