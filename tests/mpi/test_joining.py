"""What is decided before, or without, MPI."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from hvdtune.core.config.environment import Config
from hvdtune.core.config.groups import MpiLauncher
from hvdtune.core.mpi import startup as joining
from hvdtune.core.mpi.mpi_library import Choice, is_of_flavour, parse_version
from hvdtune.errors import HvdtuneError, RendezvousError, UsageError
from tests.kit.configs import make_config
from tests.mpi.conftest import OPENMPI_SLOW

STARTED = make_config(mpi_launcher=MpiLauncher("openmpi", 2))
LAUNCHED = make_config(size=2, rendezvous_address="127.0.0.1", rendezvous_port=1)


@pytest.mark.parametrize(
    ("nodes", "names", "hosts"),
    [
        ([0, 0], ["a", "a"], ["a", "a"]),
        ([0, 0, 2, 2], ["a", "a", "b", "b"], ["a", "a", "b", "b"]),
        # Two machines of one name do not share memory.
        ([0, 0, 2], ["box", "box", "box"], ["box", "box", "box/2"]),
        # HVDTUNE_HOST makes two hosts of one.
        ([0, 0], ["127.0.0.2", "127.0.0.3"], ["127.0.0.2", "127.0.0.3"]),
    ],
)
def test_hosts_are_named_by_node(nodes, names, hosts):
    assert joining.host_names(nodes, names) == hosts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Open MPI v5.0.11, package: Open MPI user@host Distribution", "Open MPI 5.0.11"),
        ("MPICH Version:      5.0.2\nMPICH Release date: Fri", "MPICH 5.0.2"),
        ("Intel(R) MPI Library 2021.11 for Linux* OS", "Intel MPI 2021.11"),
        ("MVAPICH2 Version : 2.3.7\n", "MVAPICH 2.3.7"),
        ("Something else\nand more", "Something else "),
    ],
)
def test_a_library_is_recognised_by_what_it_says(text, said):
    assert str(parse_version(text)) == said


@pytest.mark.parametrize(
    ("abi", "flavours"),
    [
        ("libmpi.so.40", {"openmpi", ""}),
        ("libmpi.so.12", {"mpich", ""}),
        ("libmpich.so.12", {"mpich", ""}),
        ("libmpi_abi.so.1", {"openmpi", "mpich", ""}),
    ],
)
def test_a_launchers_programs_use_its_abi(abi, flavours):
    assert {f for f in ("openmpi", "mpich", "") if is_of_flavour(abi, f)} == flavours


@pytest.mark.parametrize(
    ("config", "comm", "wanted"),
    [
        (Config(), None, False),
        (make_config(controller="mpi"), None, True),
        (Config(), [0], True),
        (STARTED, None, True),
        (make_config(STARTED, controller="hvdtune"), None, False),
        (LAUNCHED, None, False),
        (LAUNCHED, [0, 1], False),
        (make_config(LAUNCHED, mpi_launcher=MpiLauncher("openmpi", 2)), None, False),
    ],
)
def test_mpi_forms_the_jobs_that_it_started(config, comm, wanted):
    assert joining.is_wanted(config, comm) is wanted


@pytest.mark.parametrize(
    ("config", "comm", "part_of_text"),
    [
        (LAUNCHED, [0], "use process sets"),
        (make_config(LAUNCHED, controller="mpi"), None, "start it with mpirun"),
        (make_config(cpu_operations="mpi"), None, "needs a job started by mpirun"),
    ],
)
def test_mpi_where_it_cannot_be_is_refused(config, comm, part_of_text):
    with pytest.raises(UsageError, match=part_of_text):
        joining.is_wanted(config, comm)


@pytest.mark.parametrize(
    ("environ", "controller", "operations", "launcher"),
    [
        ({}, "auto", "hvdtune", None),
        (
            {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"},
            *("auto", "hvdtune", MpiLauncher("openmpi", 4)),
        ),
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, "auto", "hvdtune", MpiLauncher("mpich", 3)),
        ({"PMIX_RANK": "1"}, "auto", "hvdtune", MpiLauncher("", 0, 1)),
        ({"HOROVOD_CPU_OPERATIONS": "MPI"}, "auto", "mpi", None),
        ({"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "ccl"}, *("hvdtune",) * 2, None),
        ({"HVDTUNE_CONTROLLER": "mpi", "HOROVOD_CONTROLLER": "gloo"}, "mpi", "hvdtune", None),
    ],
)
def test_the_environment_says_who_started_the_process(environ, controller, operations, launcher):
    config = Config.from_environ(environ, ())
    found = (config.mpi.controller, config.mpi.cpu_operations, config.mpi.launcher)
    assert found == (controller, operations, launcher)


@pytest.mark.parametrize(
    ("launcher", "sentence"),
    [
        (MpiLauncher("", 0), "PMIX_RANK is set, but the number of ranks is not, and"),
        (MpiLauncher("openmpi", 2), "mpirun started this process, but hvdtune has no MPI"),
        (None, "hvd.init() needs MPI, but hvdtune has no MPI plugin"),
    ],
)
def test_what_is_missing_is_said_where_there_is_no_plugin(monkeypatch, launcher, sentence):
    monkeypatch.setattr(joining.mpi_library, "choose_plugin", lambda _: None)
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}"):
        joining.join(make_config(mpi_launcher=launcher), None, pytest.fail)


@pytest.mark.parametrize("mpi", [OPENMPI_SLOW, "mpich"], indirect=True)
def test_without_a_plugin_the_ranks_meet_by_their_launchers_variables(mpi, tmp_path):
    done = mpi.mpirun(2, "ends.py", "as-it-is", XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout.count("reached the end")) == (0, 2), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("mpi", [OPENMPI_SLOW, "mpich"], indirect=True)
def test_two_starts_of_mpirun_at_a_time_are_two_jobs(mpi, tmp_path):
    def start():
        return mpi.mpirun(2, "ends.py", "as-it-is", XDG_CACHE_HOME=str(tmp_path))

    with ThreadPoolExecutor() as pool:
        both = [pool.submit(start) for _ in range(2)]
        for done in [each.result() for each in both]:
            assert (done.returncode, done.stdout.count("reached the end")) == (0, 2), done.stderr


# What PALS's mpiexec tells a rank, and nothing of what Hydra's does
PALS = """
export PALS_RANKID=$PMI_RANK PALS_LOCAL_RANKID=$PMI_RANK PALS_LOCAL_SIZE=$PMI_SIZE PALS_NODEID=0
export PALS_APID=3a9f PMI_LOCAL_RANK=$PMI_RANK PMI_LOCAL_SIZE=$PMI_SIZE
unset MPI_LOCALRANKID MPI_LOCALNRANKS
exec "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize("mpi", ["mpich"], indirect=True)
def test_ranks_meet_by_the_variables_of_pals(mpi, tmp_path):
    within = ["sh", "-c", PALS, "sh"]
    done = mpi.mpirun(2, "ends.py", "as-it-is", within=within, XDG_CACHE_HOME=str(tmp_path))
    assert (done.returncode, done.stdout.count("reached the end")) == (0, 2), done.stderr


@pytest.mark.parametrize("mpi", [OPENMPI_SLOW, "mpich"], indirect=True)
def test_without_a_plugin_mpi_carries_no_data_and_the_error_says_what_to_do(mpi, tmp_path):
    variables = {"XDG_CACHE_HOME": str(tmp_path), "HVDTUNE_CPU_OPERATIONS": "mpi"}
    done = mpi.mpirun(2, "ends.py", "as-it-is", **variables)
    assert done.returncode != 0
    assert "Run `hvdtune build mpi` once" in done.stderr


def test_a_plugin_where_others_can_write_is_not_loaded(tmp_path, monkeypatch):
    folder = tmp_path / "hvdtune"
    folder.mkdir()
    folder.chmod(0o777)
    plugin = folder / "plugin.so"
    plugin.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(joining, "_library", None)
    monkeypatch.setattr(joining.mpi_library, "choose_plugin", lambda _: Choice(plugin, None))
    with pytest.raises(HvdtuneError, match="hvdtune can be written to by other users"):
        joining._open(STARTED)


def test_too_few_threads_for_data_are_refused(mpi):
    done = mpi.mpirun(2, "few_threads.py", HVDTUNE_CPU_OPERATIONS="mpi")
    assert done.stdout.count("initialised with MPI_THREAD_") == 2, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("launcher", "size", "sentence"),
    [
        (
            MpiLauncher("", 0, 1),
            1,
            "as rank 1, but .* reports 1 process. .* or set HVDTUNE_STARTED_BY=none",
        ),
        (
            MpiLauncher("openmpi", 2, 0),
            1,
            "as rank 0 of 2, but .* set HVDTUNE_CONTROLLER=hvdtune to ignore MPI, or HVDT",
        ),
        (MpiLauncher("openmpi", 2, 0), 2, None),
        (MpiLauncher("", 0, 0), 1, None),
        (MpiLauncher("mpich", 1, 0), 1, None),
    ],
)
def test_who_was_told_of_others_does_not_go_on_alone_by_mpi(monkeypatch, launcher, size, sentence):
    class Library:
        def world_place(self):
            return 0, size

        def duplicate(self, *_):
            raise RendezvousError("goes on")

    monkeypatch.setattr(joining, "_open", lambda config: Library())
    refusal = UsageError if sentence else RendezvousError
    with pytest.raises(refusal, match=sentence or "goes on"):
        joining.join(make_config(mpi_launcher=launcher), None, pytest.fail)
