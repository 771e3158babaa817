import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import shm
from tests.mpi.environment import FLAVOURS, ROOT, environment

SCRIPTS = Path(__file__).parent / "scripts"
# Open MPI's own ways out of its refusal to run as root, and of binding a rank to one core.
OPENMPI = ["--bind-to", "none", "--oversubscribe"]
# For tests in which the two differ in nothing but the options of mpirun
OPENMPI_SLOW = pytest.param("openmpi", marks=pytest.mark.slow)
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclass
class Mpi:
    """One MPI, with a plugin of its own for it."""

    flavour: str
    folder: Path
    environ: dict[str, str]

    def run(self, command, **environ):
        """The finished process of a command of this environment's bin/."""
        program = subprocess.Popen(
            [str(self.folder / "bin" / command[0]), *map(str, command[1:])],
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = program.communicate(timeout=200)
        finally:
            # An mpirun that is asked to end ends its ranks; one that is killed leaves them.
            program.terminate()
            program.wait()
        return subprocess.CompletedProcess(program.args, program.returncode, stdout, stderr)

    def mpirun(self, ranks, script, *arguments, options=(), within=(), **environ):
        """The finished mpirun of a script of scripts/, each rank `within` a command if need be."""
        binding = OPENMPI if self.flavour == "openmpi" else []
        python = self.folder / "bin" / "python"
        command = [*within, python, SCRIPTS / script, *arguments]
        return self.run(["mpirun", *binding, *options, "-np", ranks, *command], **environ)


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session", params=FLAVOURS)
def mpi(request, cache):
    folder = environment(request.param)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HVDTUNE")}
    environ |= AS_ROOT | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "XDG_CACHE_HOME": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    made = Mpi(request.param, folder, environ)
    built = made.run(["python", "-m", "hvdtune", "build", "mpi"])
    assert built.returncode == 0, built.stdout + built.stderr
    return made


@pytest.fixture(autouse=True)
def what_a_killed_mpi_leaves_is_its_own():
    before = shm.named()
    yield
    for name in shm.abandoned(shm.named() - before):
        if name.startswith(("mpich_shm_", "sm_segment.")):
            (shm.FOLDER / name).unlink(missing_ok=True)


@pytest.fixture
def succeeds(mpi):
    """Runs a script under mpirun and returns what it printed."""

    def run(*arguments, **options):
        done = mpi.mpirun(*arguments, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
