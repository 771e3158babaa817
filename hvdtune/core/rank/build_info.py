"""Build options of this installation, by Horovod's names.

Scripts ask these functions which transports and controllers they may rely on. hvdtune's own
transports (TCP and shared memory) do what Gloo does in Horovod: they need no other library and are
always there. So `gloo_built()` is true and a job is under "Gloo" unless MPI formed it. Vendor
libraries are not used, whatever the machine has.
"""

from __future__ import annotations

from hvdtune.core.rank import runtime
from hvdtune.errors import UsageError


def mpi_built() -> bool:
    """Return whether there is an MPI plugin, so that a job can be started by mpirun."""
    from hvdtune.core.mpi.mpi_library import built_plugins

    return bool(built_plugins())


def mpi_enabled() -> bool:
    """Return whether MPI has formed this job; False before `init`."""
    return runtime.is_initialized() and runtime.formed_by_mpi()


def mpi_threads_supported() -> bool:
    """Return whether MPI may be called from several threads, for example by mpi4py and hvdtune.

    Raises:
        UsageError: MPI has not formed this job.
    """
    if not runtime.formed_by_mpi():
        raise UsageError("hvd.mpi_threads_supported(): this job was not formed by MPI")
    from hvdtune.core.mpi import startup

    return startup.thread_level() == startup.MULTIPLE


def gloo_built() -> bool:
    """True: hvdtune's own transports take the place of Gloo."""
    return True


def gloo_enabled() -> bool:
    """Return whether hvdtune's own transports, not MPI, formed this job; False before `init`."""
    return runtime.is_initialized() and not runtime.formed_by_mpi()


def nccl_built() -> int:
    """0: NCCL is found when `init` runs. Scripts ask this to scale Adasum's learning rate by the
    ranks of a host, over which Horovod's NCCL takes an average first; hvdtune's Adasum does not.
    """
    return 0


def ddl_built() -> bool:
    """False: IBM's DDL is not used."""
    return False


def ccl_built() -> bool:
    """False: Intel's oneCCL is not used."""
    return False


def cuda_built() -> bool:
    """False: nothing is compiled with CUDA, whose driver is found when `init` runs."""
    return False


def rocm_built() -> bool:
    """False: nothing is compiled with ROCm, whose libraries are found when `init` runs."""
    return False
