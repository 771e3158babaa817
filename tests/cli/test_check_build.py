import sys
from importlib.util import find_spec

import hvdtune
from hvdtune.cli import check_build
from hvdtune.core.mpi.mpi_library import built_plugins


def test_the_page_has_horovods_layout():
    lines = check_build.render().splitlines()
    mpi = "X" if built_plugins() else " "
    tensorflow = "X" if find_spec("tensorflow") else " "
    assert lines == [
        f"hvdtune v{hvdtune.__version__}:",
        "",
        "Available Frameworks:",
        f"    [{tensorflow}] TensorFlow",
        "    [X] PyTorch",
        "    [ ] MXNet",
        "",
        "Available Controllers:",
        f"    [{mpi}] MPI",
        "    [X] Gloo",
        "",
        "Available Tensor Operations:",
        "    [ ] NCCL",
        "    [ ] DDL",
        "    [ ] CCL",
        f"    [{mpi}] MPI",
        "    [X] Gloo",
        "",
        "Gloo: hvdtune's own controller and operations.",
    ]


def test_a_framework_that_cannot_be_imported_has_no_mark(monkeypatch):
    monkeypatch.setitem(sys.modules, "hvdtune.torch", None)
    assert "    [ ] PyTorch" in check_build.render().splitlines()
