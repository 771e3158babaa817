"""CUDA's driver and NCCL as a job finds them: sentences instead of what loaders say."""

import subprocess
import sys

import pytest

from hvdtune.core.config.environment import Config
from hvdtune.errors import UsageError

REPORT = """
from hvdtune.core import _native
report = _native.gpu_report({cuda!r}, {nccl!r})
print(report.get("cuda_error", "cuda"), report.get("nccl_error", "nccl"), sep="\\n")
"""


def reported(cuda="", nccl=""):
    """In a process of its own, since what is loaded stays."""
    script = REPORT.format(cuda=cuda, nccl=nccl)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_library_that_is_another_is_named():
    cuda, nccl = reported(cuda="libm.so.6", nccl="libm.so.6")
    assert cuda == "libm.so.6 is not CUDA's driver: cuDeviceGetCount is missing"
    assert nccl == "libm.so.6 is not NCCL: ncclGetUniqueId is missing"


def test_an_nccl_that_is_too_old_is_refused(tmp_path):
    source = tmp_path / "old.c"
    source.write_text(
        "int ncclGetUniqueId(void *id) { return 0; }\n"
        "int ncclGetVersion(int *version) { *version = 21304; return 0; }\n"
    )
    library = tmp_path / "libold.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    _, nccl = reported(nccl=str(library))
    assert nccl == f"{library} is NCCL 2.13.4; hvdtune needs NCCL 2.14.0 or later"


@pytest.mark.parametrize(
    ("environ", "operations", "bits"),
    [
        ({"HOROVOD_GPU_OPERATIONS": "MPI"}, "host", "nccl"),
        ({"HOROVOD_GPU_OPERATIONS": "NCLL"}, "auto", "nccl"),
        ({}, "auto", "nccl"),
        ({"HVDTUNE_GPU_OPERATIONS": "nccl", "HVDTUNE_GPU_BITS": "exact"}, "nccl", "exact"),
    ],
)
def test_the_environment_says_who_carries_gpu_tensors(environ, operations, bits):
    config = Config.from_environ(environ, ())
    assert (config.gpu.operations, config.gpu.bits) == (operations, bits)


def test_a_value_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="HVDTUNE_GPU_OPERATIONS"):
        Config.from_environ({"HVDTUNE_GPU_OPERATIONS": "mpi"}, ())


def test_init_says_what_is_missing():
    script = "import hvdtune.core as core\nfrom hvdtune.core.rank.runtime import init\ninit()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"HVDTUNE_GPU_OPERATIONS": "nccl", "HVDTUNE_CUDA_LIBRARY": "/proc/absent/libcuda.so"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "UsageError: HVDTUNE_GPU_OPERATIONS=nccl needs CUDA's driver and NCCL:" in done.stderr
    assert "CUDA's driver cannot be loaded: /proc/absent/libcuda.so" in done.stderr
    assert "or unset HVDTUNE_GPU_OPERATIONS" in done.stderr


def test_a_library_that_is_named_is_not_replaced_by_another():
    cuda, nccl = reported(cuda="/proc/absent/libcuda.so", nccl="/proc/absent/libnccl.so")
    for what, said in (("CUDA's driver", cuda), ("NCCL", nccl)):
        assert said.startswith(f"{what} cannot be loaded: /proc/absent/")
        assert ";" not in said


def started(environ, *, has_gpu_tensors):
    """A job of one rank, which prints whether it has GPU operations."""
    script = (
        "from hvdtune.core.rank import runtime\n"
        "from hvdtune.core.rank.process import PROCESS\n"
        f"PROCESS.has_gpu_tensors = {has_gpu_tensors}\n"
        "runtime.init()\n"
        "print(PROCESS.has_gpu_operations())"
    )
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_init_warns_of_a_named_library_that_cannot_be_loaded():
    done = started({"HVDTUNE_CUDA_LIBRARY": "/proc/absent/libcuda.so"}, has_gpu_tensors=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert "GPU tensors are copied through host memory" in done.stderr
    assert "/proc/absent/libcuda.so" in done.stderr


@pytest.mark.parametrize("value", ["NCCL", "nccl"])
def test_a_leftover_of_horovods_installation_changes_nothing_without_a_gpu(value):
    environ = {"HOROVOD_GPU_OPERATIONS": value, "HVDTUNE_CUDA_LIBRARY": "/proc/absent/libcuda.so"}
    done = started(environ, has_gpu_tensors=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    asked = [sys.executable, "-m", "hvdtune", "doctor"]
    told = subprocess.run(asked, env=environ, capture_output=True, text=True).stdout
    assert "NCCL is not used here: CUDA's driver cannot be loaded" in told
