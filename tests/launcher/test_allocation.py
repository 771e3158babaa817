"""The hosts of an allocation, from the variables of its scheduler."""

import pytest

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
        ({"SLURM_JOB_NODELIST": "n1,n2", "SLURM_TASKS_PER_NODE": "8"}, None),
        ({"PBS_NODEFILE": "/nowhere"}, None),
    ],
    ids=["none", "tasks", "hosts-only", "not-of-this-job", "no-file"],
)
def test_the_variables_describe_an_allocation(environ, allocation):
    assert read_allocation(environ) == allocation


@pytest.mark.parametrize("name", ["PBS_NODEFILE", "LSB_DJOB_HOSTFILE"])
@pytest.mark.parametrize(
    ("text", "hosts"),
    [("a\na\nb\n", (Host("a", 2), Host("b", 1))), ("b\na\n", (Host("b", 1), Host("a", 1)))],
)
def test_a_file_of_hosts_has_a_line_for_each_task(tmp_path, name, text, hosts):
    file = tmp_path / "hosts"
    file.write_text(text)
    tasks = sum(host.slots for host in hosts)
    assert read_allocation({name: str(file)}) == Allocation(hosts, name, tasks)


def test_an_empty_file_names_no_hosts(tmp_path):
    file = tmp_path / "hosts"
    file.touch()
    assert read_allocation({"PBS_NODEFILE": str(file)}) is None
