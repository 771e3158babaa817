import json
import shutil
import sys
from pathlib import Path

import pytest

from hvdtune import doctor
from hvdtune.cli import main
from hvdtune.core.config.environment import Config
from hvdtune.core.job.meeting import join
from hvdtune.doctor import Finding, examine, render_text
from hvdtune.errors import UsageError


def test_json_has_every_finding_with_its_state(capsys):
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--json"])
    findings = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert end.value.code == 0
    assert findings["shared memory"]["state"] == findings["TCP"]["state"] == "ok"
    assert {"cores", "/dev/shm", "PyTorch", "TensorFlow", "MPI", "NCCL", "mpi4py"} <= set(findings)


def test_libraries_for_gpus_are_those_that_the_variables_name(monkeypatch):
    for name in ("CUDA", "NCCL"):
        monkeypatch.setenv(f"HVDTUNE_{name}_LIBRARY", "libm.so.6")
    said = {finding.name: finding.detail for finding in examine()}
    assert said["CUDA driver"].startswith("libm.so.6 is not CUDA's driver")
    assert said["NCCL"].startswith("libm.so.6 is not NCCL")


@pytest.mark.parametrize(
    ("variable", "value"), [("HVDTUNE_GPU_OPERATIONS", "host"), ("HOROVOD_GPU_OPERATIONS", "MPI")]
)
def test_who_has_chosen_the_hosts_memory_for_tensors_on_a_gpu_is_named(
    monkeypatch, variable, value
):
    monkeypatch.setenv(variable, value)
    said = {finding.name: finding.detail for finding in examine()}
    copied = "tensors on a GPU are copied through the host's memory"
    assert said["GPU operations"] == f"{copied}: {variable}={value}"


def test_what_init_would_refuse_for_want_of_a_gpu_is_refused(monkeypatch, capsys):
    monkeypatch.setenv("HVDTUNE_GPU_OPERATIONS", "nccl")
    monkeypatch.setenv("HVDTUNE_CUDA_LIBRARY", "/proc/absent/libcuda.so")
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--json"])
    findings = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert end.value.code == 1
    assert findings["GPU operations"]["state"] == "refused"
    assert findings["CUDA driver"]["advice"] == "HVDTUNE_GPU_OPERATIONS=nccl needs it"


def test_what_is_absent_comes_with_advice():
    text = render_text(
        [
            Finding("machine", "cores", "ok", "2 of 2"),
            Finding("framework", "PyTorch", "absent", "", "pip install torch"),
            Finding("machine", "native core", "missing", "", "install hvdtune again"),
        ]
    )
    assert text.splitlines() == [
        "machine",
        "  ok      cores           2 of 2",
        "",
        "framework",
        "  -       PyTorch",
        "                          pip install torch",
        "",
        "machine",
        "  MISSING native core",
        "                          install hvdtune again",
    ]


@pytest.mark.parametrize(
    ("granted", "told"), [(1, ", whose CPU quota is worth 1"), (4, "")], ids=["quota", "none"]
)
def test_a_cpu_quota_below_the_processors_is_told(monkeypatch, granted, told):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.setattr(doctor, "usable_processors", lambda: granted)
    cores = next(finding for finding in doctor.examine() if finding.name == "cores")
    assert cores.detail == f"4 of 8 usable by this process: 0-3{told}"


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        ("x86_64", ""),
        ("aarch64", "; tested on x86-64, but on other processors only under an emulator"),
    ],
)
def test_a_machine_that_the_core_has_not_run_on_is_told(monkeypatch, machine, told):
    monkeypatch.setattr("platform.machine", lambda: machine)
    core = next(finding for finding in doctor.examine() if finding.name == "native core")
    assert core.detail.rpartition(".so")[2] == told


_SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1"}


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, "no launcher: hvd.init() starts a job of one rank"),
        (_SRUN, "srun: rank 1 of 4, local rank 1"),
        (_SRUN | {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "9"}, "`flux run`: rank 0 of 9"),
        ({"PMIX_RANK": "1"}, "a launcher with PMIx: rank 1 (MPI provides the number of ranks)"),
        (_SRUN | {"JSM_NAMESPACE_RANK": "2"}, ""),
    ],
)
def test_whoever_has_started_the_process_is_named(monkeypatch, environ, told):
    monkeypatch.setattr(doctor, "inherited_environ", lambda: environ)
    found = next(finding for finding in doctor.examine() if finding.name == "started by")
    assert found.detail == told
    assert ("srun and jsrun disagree" in found.advice) == (told == "")


_JOB = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "node[1-2]", "SLURM_NODEID": "0"}
_KEY = {"HVDTUNE_KEY": "5a" * 32}


@pytest.mark.parametrize(
    ("environ", "state", "told"),
    [
        ({"HVDTUNE_SHARED_FOLDER": "."}, "ok", "a file that rank 0 writes in ."),
        ({"HVDTUNE_SHARED_FOLDER": "/proc/absent"}, "refused", "in /proc/absent: No such file"),
        (_KEY, "ok", "node1, at a port derived from the job's name, with the key from"),
        (
            _KEY | {"HVDTUNE_RENDEZVOUS_PORT": "4000"},
            "ok",
            "node1, at port 4000, with the key from HVDTUNE_KEY",
        ),
        ({"HVDTUNE_KEY_FILE": "/proc/absent/key"}, "refused", "/proc/absent/key does not exist"),
    ],
)
def test_where_the_processes_of_a_launcher_meet_is_told(
    monkeypatch, tmp_path, environ, state, told
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "inherited_environ", lambda: _SRUN | _JOB | environ)
    found = next(finding for finding in doctor.examine() if finding.name == "meets at")
    assert found.state == state and told in found.detail + found.advice


@pytest.mark.parametrize(
    "environ",
    [
        {"SLURM_PROCID": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {"PALS_RANKID": "1"},
        {"FLUX_TASK_RANK": "1"},
        {"PMI_RANK": "1"},
        {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"},
        {"HVDTUNE_NODE": "0", "HVDTUNE_NODES": "2"},
    ],
)
def test_what_init_refuses_is_refused_in_its_words(monkeypatch, environ):
    monkeypatch.setattr(doctor, "inherited_environ", lambda: environ)
    refused = [finding for finding in doctor.examine() if finding.state == "refused"]
    with pytest.raises(UsageError) as refusal:
        config = Config.from_environ(environ)
        join(config, lambda _: None)
    assert [finding.advice for finding in refused] == [str(refusal.value)]


def test_a_folder_that_others_can_write_to_is_refused(monkeypatch, tmp_path):
    tmp_path.chmod(0o777)
    environ = _SRUN | _JOB | {"HVDTUNE_SHARED_FOLDER": str(tmp_path)}
    monkeypatch.setattr(doctor, "inherited_environ", lambda: environ)
    found = next(finding for finding in doctor.examine() if finding.name == "meets at")
    assert found.advice == (
        f"Rank 0 cannot write a file for the other ranks in {tmp_path}: {tmp_path} can be written "
        "to by other users. Set HVDTUNE_SHARED_FOLDER to a folder of your own that the hosts "
        "share, or HVDTUNE_KEY to the same key on all ranks"
    )


@pytest.mark.parametrize("environ", [{}, _SRUN | _JOB | {"SLURM_NTASKS": "1"}])
def test_a_process_that_is_alone_meets_nobody(monkeypatch, environ):
    monkeypatch.setattr(doctor, "inherited_environ", lambda: environ)
    assert "meets at" not in {finding.name for finding in doctor.examine()}


def test_what_init_would_refuse_is_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "inherited_environ", lambda: {"RANK": "0", "WORLD_SIZE": "4"})
    with pytest.raises(SystemExit) as end:
        main(["doctor"])
    assert end.value.code == 1
    assert "  REFUSED started by\n" in capsys.readouterr().out


def test_a_wheel_says_which_releases_of_tensorflow_it_has_operations_for(monkeypatch, tmp_path):
    for name in ("2.16.1_2.16.2-ab.so", "2.21.0-cd.so"):
        (tmp_path / name).touch()
    monkeypatch.setattr(doctor.op_library, "_PACKAGE", tmp_path)
    monkeypatch.setattr(doctor, "installed_version", lambda package: None)
    found = next(finding for finding in examine() if finding.name == "TF operations")
    assert found.advice.startswith("available for TensorFlow 2.16.1, 2.16.2, 2.21.0; for")


def test_frameworks_are_found_without_being_imported():
    loaded = set(sys.modules)
    examine()
    assert not {"torch", "tensorflow", "mpi4py.MPI"} & (set(sys.modules) - loaded)


def test_a_compiler_that_does_not_answer_is_shown_as_such(monkeypatch, tmp_path):
    mute = tmp_path / "c++"
    mute.write_text("no program")
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: str(mute) if name == "c++" else None)
    compiler = next(finding for finding in doctor.examine() if finding.name == "C++ compiler")
    assert compiler.detail == f"{mute}: does not answer --version"


@pytest.mark.parametrize(
    ("libraries", "plugins", "state", "said"),
    [
        (["/l/libmpi.so.12"], ["libmpi.so.12", "libmpi.so.40"], "ok", "/p/libmpi.so.12"),
        ([], ["libmpi.so.12", "libmpi.so.40"], "ok", "built for libmpi.so.12, libmpi.so.40"),
        (["/l/libmpi.so.40"], ["libmpi.so.12"], "absent", "mpirun alone does not need it"),
        ([], [], "absent", "hvdtune build mpi; mpirun alone does not need it"),
    ],
    ids=["fitting", "no-library", "none-that-fits", "none"],
)
def test_a_plugin_is_only_missed_where_it_could_be_used(
    monkeypatch, libraries, plugins, state, said
):
    built = [(abi, Path("/p") / abi) for abi in plugins]
    monkeypatch.setattr(doctor.mpi_library, "built_plugins", lambda: built)
    monkeypatch.setattr(doctor.mpi_library, "installed_libraries", lambda: [*map(Path, libraries)])
    found = doctor._mpi_plugin()
    assert found.state == state and said in (found.detail or found.advice)


@pytest.mark.parametrize(
    ("python", "state", "said"),
    [
        (
            sys.executable,
            "ok",
            f"in the environment of {sys.executable}: HVDTUNE_WORKBENCH_PYTHON=",
        ),
        ("/proc/absent", "absent", "WORKBENCH_PYTHON=/proc/absent: no such program"),
        ("", "ok", "optuna "),
    ],
    ids=["named", "wrong", "here"],
)
def test_the_workbench_is_that_of_the_python_that_is_named(monkeypatch, python, state, said):
    monkeypatch.setenv("HVDTUNE_WORKBENCH_PYTHON", python)
    found = doctor._workbench()
    assert found.state == state and said in (found.detail or found.advice)
