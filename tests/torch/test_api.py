"""Horovod 0.28.1's public API of horovod.torch, as a list, is what hvdtune.torch has."""

import types

import pytest

import hvdtune.torch as hvd
from hvdtune.core.rank.collectives import handle_average_backwards_compatibility
from hvdtune.torch import compression, elastic
from tests.api_lists import BASICS, CONSTANTS, check_signature, parameters

REDUCE = "average=None, name=None, op=None"
REDUCE_PACKED = "average=None, name=None, compression=Compression.none, op=None"
SCALE = "prescale_factor=1.0, postscale_factor=1.0"
SET = "process_set=global_process_set"
SCATTER = f"op=Average, {SET}, {SCALE}"

# What is a parameter here may be followed by keyword parameters of hvdtune's own.
FUNCTIONS = {
    **BASICS,
    "is_homogeneous": "",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "allreduce": f"tensor, {REDUCE_PACKED}, {SCALE}, {SET}",
    "allreduce_": f"tensor, {REDUCE}, {SCALE}, {SET}",
    "allreduce_async": f"tensor, {REDUCE}, {SCALE}, {SET}",
    "allreduce_async_": f"tensor, {REDUCE}, {SCALE}, {SET}",
    "grouped_allreduce": f"tensors, {REDUCE_PACKED}, {SCALE}, {SET}",
    "grouped_allreduce_": f"tensors, {REDUCE}, {SCALE}, {SET}",
    "grouped_allreduce_async": f"tensors, {REDUCE}, {SCALE}, {SET}",
    "grouped_allreduce_async_": f"tensors, {REDUCE}, {SCALE}, {SET}",
    "sparse_allreduce_async": f"tensor, name, op, {SET}",
    "allgather": f"tensor, name=None, {SET}",
    "allgather_async": f"tensor, name=None, {SET}",
    "grouped_allgather": f"tensors, name=None, {SET}",
    "grouped_allgather_async": f"tensors, name=None, {SET}",
    "broadcast": f"tensor, root_rank, name=None, {SET}",
    "broadcast_": f"tensor, root_rank, name=None, {SET}",
    "broadcast_async": f"tensor, root_rank, name=None, {SET}",
    "broadcast_async_": f"tensor, root_rank, name=None, {SET}",
    "alltoall": f"tensor, splits=None, name=None, {SET}",
    "alltoall_async": f"tensor, splits=None, name=None, {SET}",
    "reducescatter": f"tensor, name=None, compression=Compression.none, {SCATTER}",
    "reducescatter_async": f"tensor, name=None, {SCATTER}",
    "grouped_reducescatter": f"tensors, name=None, compression=Compression.none, {SCATTER}",
    "grouped_reducescatter_async": f"tensors, name=None, {SCATTER}",
    "join": "device=-1",
    "barrier": SET,
    "poll": "handle",
    "synchronize": "handle",
    "broadcast_parameters": "params, root_rank",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_object": f"obj, root_rank=0, name=None, {SET}",
    "allgather_object": "obj, name=None",
    "DistributedOptimizer": (
        "optimizer, named_parameters=None, compression=Compression.none, "
        "backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, num_groups=0, "
        f"groups=None, sparse_as_dense=False, {SET}"
    ),
    "SyncBatchNorm": "num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True",
    "ProcessSet": "ranks_or_comm",
    "HostsUpdatedInterrupt": "skip_sync",
    "HorovodVersionMismatchError": "name, version, installed_version",
}
OTHERS = {
    **CONSTANTS,
    "Compression": type,
    "HorovodInternalError": type,
    "elastic": types.ModuleType,
    "global_process_set": hvd.ProcessSet,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_horovod_s_takes(name):
    check_signature(hvd, name, FUNCTIONS[name])


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_of_horovod_s_is_there(name):
    found, wanted = getattr(hvd, name), OTHERS[name]
    assert isinstance(found, wanted) if isinstance(wanted, type) else found == wanted


def test_every_name_is_public_and_every_public_name_is_there():
    assert set(hvd.__all__) >= FUNCTIONS.keys() | OTHERS.keys()
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert len(set(hvd.__all__)) == len(hvd.__all__)


def test_names_of_submodules_are_there():
    for name in ("Compressor", "NoneCompressor", "FP16Compressor"):
        kind = getattr(compression, name)
        assert [row[0] for row in parameters(kind.compress)] == ["tensor"]
        assert [row[0] for row in parameters(kind.decompress)] == ["tensor", "ctx"]
    assert hvd.Compression.none is compression.NoneCompressor
    assert hvd.Compression.fp16 is compression.FP16Compressor
    average = handle_average_backwards_compatibility
    assert [row[0] for row in parameters(average)] == ["op", "average"]
    for name in ("process_set_id", "ranks", "mpi_comm", "size", "rank", "included"):
        assert hasattr(hvd.ProcessSet, name)


@pytest.mark.parametrize("name", ["run", "State", "ObjectState", "TorchState", "ElasticSampler"])
def test_elastic_training_says_that_it_is_absent_and_what_to_do(name):
    with pytest.raises(NotImplementedError, match=rf"elastic\.{name}: hvdtune \d") as caught:
        getattr(elastic, name)(None)
    assert "DistributedSampler" in str(caught.value) or "checkpoint" in str(caught.value)


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


def test_a_compressor_without_methods_says_what_it_needs():
    for call in (compression.Compressor.compress, compression.Compressor.decompress):
        with pytest.raises(NotImplementedError, match="compress"):
            call(*([None] * len(parameters(call))))
