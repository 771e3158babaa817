"""What of Horovod's API only PyTorch's binding has; see tests/contract for what all have."""

import inspect

import pytest

import hvdtune.torch as hvd
from hvdtune.core.rank.collectives import handle_average_backwards_compatibility
from hvdtune.torch.compression import Compressor


def test_names_of_submodules_are_there():
    average = inspect.signature(handle_average_backwards_compatibility)
    assert [*average.parameters] == ["op", "average"]
    for name in ("process_set_id", "ranks", "mpi_comm", "size", "rank", "included"):
        assert hasattr(hvd.ProcessSet, name)


def test_errors_are_what_horovod_s_users_catch():
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert issubclass(hvd.HorovodVersionMismatchError, ImportError)
    assert hvd.HostsUpdatedInterrupt(True).skip_sync is True
    with pytest.raises(ValueError, match=r"has not been initialized; use hvd.init\(\)"):
        hvd.rank()
    # What Horovod's core refuses, as splits that do not fit, is a RuntimeError there.
    with pytest.raises(RuntimeError, match="has not been initialized"):
        hvd.rank()
    error = hvd.HorovodVersionMismatchError("torch", "2.0", "2.1")
    assert (error.name, error.version, error.installed_version) == ("torch", "2.0", "2.1")


@pytest.mark.parametrize(
    ("method", "arguments"), [(Compressor.compress, [None]), (Compressor.decompress, [None, None])]
)
def test_a_compressor_without_methods_says_what_it_needs(method, arguments):
    with pytest.raises(NotImplementedError, match="compress"):
        method(*arguments)
