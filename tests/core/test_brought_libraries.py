"""What a wheel brings for MPI and TensorFlow is taken where it fits, and only there."""

from pathlib import Path

import pytest

from hvdtune.core.mpi import mpi_library
from hvdtune.core.mpi.mpi_library import Choice, MpiVersion
from hvdtune.core.toolchain import op_library

OPENMPI, MPICH = "libmpi.so.40", "libmpi.so.12"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a plugin for each ABI, on a machine that has no MPI."""
    folder = tmp_path / "package"
    folder.mkdir()
    for abi in (MPICH, OPENMPI):
        (folder / f"{abi}.so").write_bytes(f"\0{abi}\0".encode())
    monkeypatch.setattr(mpi_library, "_PACKAGE", folder)
    monkeypatch.setattr(mpi_library, "loaded_library", lambda: None)
    monkeypatch.setattr(mpi_library, "installed_libraries", list)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


@pytest.mark.parametrize("flavour", ["openmpi", "mpich", ""])
def test_a_machine_without_mpi_has_no_plugin(package, flavour):
    assert len(mpi_library.built_plugins()) == 2
    assert mpi_library.choose_plugin(flavour) is None


@pytest.mark.parametrize(("flavour", "abi"), [("openmpi", OPENMPI), ("mpich", MPICH)])
def test_a_plugin_that_loads_without_a_known_library_is_taken(package, monkeypatch, flavour, abi):
    monkeypatch.setattr(mpi_library, "ask_version", lambda plugin: plugin.name == f"{abi}.so")
    assert mpi_library.choose_plugin(flavour) == Choice(package / f"{abi}.so", None)


def test_a_plugin_of_the_user_comes_before_the_packages(package, monkeypatch):
    library = Path("/opt/openmpi/lib") / OPENMPI
    monkeypatch.setattr(mpi_library, "installed_libraries", lambda: [library])
    assert mpi_library.choose_plugin("openmpi") == Choice(package / f"{OPENMPI}.so", library)
    own = mpi_library.plugin_path(OPENMPI, MpiVersion("openmpi", "Open MPI", "5.0.11"))
    own.parent.mkdir(parents=True)
    own.write_bytes(f"\0{OPENMPI}\0".encode())
    assert mpi_library.choose_plugin("openmpi") == Choice(own, library)


@pytest.fixture
def include(tmp_path):
    folder = tmp_path / "include"
    header = folder / "tensorflow/core/framework/op_kernel.h"
    header.parent.mkdir(parents=True)
    header.write_text("class OpKernel;")
    return folder


def test_kernels_are_for_some_versions_and_their_headers(tmp_path, include, monkeypatch):
    monkeypatch.setattr(op_library, "_PACKAGE", tmp_path)
    made = tmp_path / op_library.packaged_name(["2.20.0", "2.20.1"], include)
    made.touch()
    for version in ("2.20.0", "2.20.1"):
        assert op_library.packaged(version, include) == made
        assert op_library.packaged_for(version) == [made]
    for version in ("2.20", "2.20.10", "20.1", ""):
        assert op_library.packaged(version, include) is None
    (include / "tensorflow/core/framework/op_kernel.h").write_text("class OpKernel { int more; };")
    assert op_library.packaged("2.20.0", include) is None
