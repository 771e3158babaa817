"""Horovod 0.28.1's public API of horovod.tensorflow, as a list, is what hvdtune.tensorflow has."""

import types

import pytest

import hvdtune.tensorflow as hvd
from hvdtune.core.rank.collectives import handle_average_backwards_compatibility
from hvdtune.tensorflow import compression, elastic
from tests.api_lists import BASICS, CONSTANTS, check_signature, parameters

DEVICES = "device_dense='', device_sparse=''"
NONE = "compression=Compression.none"
SCALE = "prescale_factor=1.0, postscale_factor=1.0"
SET = "process_set=global_process_set"
NAMED = f"name=None, ignore_name_scope=False, {SET}"
LOCAL = "scale_local_gradients=True"
GROUPS = f"num_groups=0, groups=None, {SET}"
TAPE = (
    f"gradtape, {DEVICES}, {NONE}, sparse_as_dense=False, op=Average, "
    f"gradient_predivide_factor=1.0, {GROUPS}"
)

# What is a parameter here may be followed by keyword parameters of hvdtune's own.
FUNCTIONS = {
    **BASICS,
    "is_homogeneous": "",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "allreduce": (
        f"tensor, average=None, {DEVICES}, {NONE}, op=None, {SCALE}, name=None, {SET}, "
        "ignore_name_scope=False"
    ),
    "grouped_allreduce": (
        f"tensors, average=None, {DEVICES}, {NONE}, op=None, {SCALE}, {SET}, "
        "ignore_name_scope=False, name=None"
    ),
    "reducescatter": (
        f"tensor, device_dense='', {NONE}, op=Average, name=None, {SET}, "
        f"ignore_name_scope=False, {SCALE}"
    ),
    "grouped_reducescatter": f"tensors, device_dense='', {NONE}, op=Average, {SET}, {SCALE}",
    "allgather": f"tensor, {NAMED}",
    "grouped_allgather": f"tensors, {NAMED}",
    "broadcast": f"tensor, root_rank, {NAMED}",
    "broadcast_": f"variables, root_rank, name=None, {SET}",
    "alltoall": f"tensor, splits=None, {NAMED}",
    "join": "",
    "size_op": "process_set_id=0, name=None",
    "process_set_included_op": "process_set_id=0, name=None",
    **dict.fromkeys(["local_size_op", "rank_op", "local_rank_op"], "name=None"),
    "broadcast_variables": f"variables, root_rank, {SET}, inplace=False",
    "broadcast_global_variables": "root_rank",
    "broadcast_object": f"obj, root_rank=0, session=None, name=None, {SET}",
    "broadcast_object_fn": f"root_rank=0, session=None, name=None, {SET}",
    "allgather_object": f"obj, session=None, name=None, {SET}",
    "BroadcastGlobalVariablesHook": "root_rank, device=''",
    "DistributedOptimizer": (
        f"optimizer, name=None, use_locking=False, {DEVICES}, {NONE}, sparse_as_dense=False, "
        "backward_passes_per_step=1, op=Average, gradient_predivide_factor=1.0, "
        f"average_aggregated_gradients=False, {GROUPS}, {LOCAL}"
    ),
    "DistributedGradientTape": f"{TAPE}, {LOCAL}",
    "PartialDistributedGradientTape": f"{TAPE}, local_layers=None, {LOCAL}",
    "SyncBatchNormalization": "fused=False",
    "ProcessSet": "ranks_or_comm",
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


@pytest.mark.parametrize("name", ["run", "ObjectState", "TensorFlowKerasState", "TensorFlowState"])
def test_elastic_training_says_that_it_is_absent_and_what_to_do(name):
    with pytest.raises(NotImplementedError, match=rf"elastic\.{name}: hvdtune \d.*checkpoints"):
        getattr(elastic, name)(None)
