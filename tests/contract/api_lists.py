"""Horovod 0.28.1's public API, as lists.

What is a parameter here may be followed by keyword parameters of hvdtune's own. Signatures use the
names of the module that they belong to.
"""

import types

from hvdtune.core.rank.process_sets import ProcessSet

DEVICES = "device_dense='', device_sparse=''"
NONE = "compression=Compression.none"
SCALE = "prescale_factor=1.0, postscale_factor=1.0"
SET = "process_set=global_process_set"
LOCAL = "scale_local_gradients=True"

BASICS = {
    "init": "comm=None, process_sets=None",
    "start_timeline": "file_path, mark_cycles=False",
    **dict.fromkeys(["shutdown", "is_initialized", "stop_timeline"], ""),
    **dict.fromkeys(["size", "local_size", "cross_size", "rank", "local_rank", "cross_rank"], ""),
    **dict.fromkeys(["mpi_threads_supported", "mpi_enabled", "mpi_built"], ""),
    **dict.fromkeys(["gloo_enabled", "gloo_built", "nccl_built", "ddl_built"], ""),
    **dict.fromkeys(["ccl_built", "cuda_built", "rocm_built"], ""),
}
REDUCTIONS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}

REDUCE = "average=None, name=None, op=None"
REDUCE_PACKED = "average=None, name=None, compression=Compression.none, op=None"
SCATTER = f"op=Average, {SET}, {SCALE}"
_TORCH = {
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

NAMED = f"name=None, ignore_name_scope=False, {SET}"
GROUPS = f"num_groups=0, groups=None, {SET}"
TAPE = (
    f"gradtape, {DEVICES}, {NONE}, sparse_as_dense=False, op=Average, "
    f"gradient_predivide_factor=1.0, {GROUPS}"
)
_TENSORFLOW = {
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

FIRST = (
    f"optimizer, name=None, {DEVICES}, {NONE}, sparse_as_dense=False, "
    "gradient_predivide_factor=1.0, op=Average"
)
PASSES = "backward_passes_per_step=1, average_aggregated_gradients=False"
BOTH = {
    **BASICS,
    "broadcast_global_variables": "root_rank",
    "allgather": "value, name=None",
    "broadcast": "value, root_rank, name=None",
    "reducescatter": "value, name=None, op=Average",
    "load_model": (
        f"filepath, custom_optimizers=None, custom_objects=None, {NONE}, legacy_opts=False"
    ),
}
_KERAS = {
    **BOTH,
    "allreduce": f"value, name=None, average=True, {SCALE}, op=None, {NONE}",
    "DistributedOptimizer": f"{FIRST}, num_groups=0, groups=None",
    "PartialDistributedOptimizer": (
        f"{FIRST}, {PASSES}, groups=None, {SET}, local_layers=None, {LOCAL}"
    ),
}
_TF_KERAS = {
    **BOTH,
    "allreduce": f"value, name=None, average=None, {SCALE}, op=None, {NONE}",
    "DistributedOptimizer": f"{FIRST}, {PASSES}, num_groups=0, groups=None, {SET}, {LOCAL}",
    "ProcessSet": "ranks_or_comm",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
}
CALLBACKS = {
    "BroadcastGlobalVariablesCallback": "root_rank, device='', local_variables=None",
    "MetricAverageCallback": "device=''",
    "LearningRateScheduleCallback": (
        "initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, "
        "momentum_correction=True, steps_per_epoch=None"
    ),
    "LearningRateWarmupCallback": (
        "initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0"
    ),
}
_BEST_OF_KERAS = "monitor='val_loss', verbose=0, mode='auto', save_freq='epoch'"
_BEST_OF_TF_KERAS = (
    "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', save_freq='epoch'"
)

FUNCTIONS = {
    "torch": _TORCH,
    "tensorflow": _TENSORFLOW,
    "keras": _KERAS,
    "tensorflow.keras": _TF_KERAS,
    "keras.callbacks": {**CALLBACKS, "BestModelCheckpoint": _BEST_OF_KERAS},
    "tensorflow.keras.callbacks": {**CALLBACKS, "BestModelCheckpoint": _BEST_OF_TF_KERAS},
}
_EVERYWHERE = {
    **REDUCTIONS,
    "Compression": type,
    "elastic": types.ModuleType,
    "global_process_set": ProcessSet,
}
_OF_TENSORS = {**_EVERYWHERE, "HorovodInternalError": type}
_OF_MODELS = {**_EVERYWHERE, "callbacks": types.ModuleType}
OTHERS = {
    "torch": _OF_TENSORS,
    "tensorflow": _OF_TENSORS,
    "keras": _OF_MODELS,
    "tensorflow.keras": _OF_MODELS,
}
_ELASTIC_KERAS = [
    "run",
    "KerasState",
    "CommitStateCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]
ELASTIC = {
    "torch": ["run", "State", "ObjectState", "TorchState", "ElasticSampler"],
    "tensorflow": ["run", "TensorFlowKerasState", "TensorFlowState"],
    "keras": _ELASTIC_KERAS,
    "tensorflow.keras": _ELASTIC_KERAS,
}
_REDUCE_GRADIENTS = "grads, vars=None, use_generic_names=False"
_GRADIENT = "target, sources, output_gradients=None, use_generic_names=False"
METHODS = {
    "DistributedGradientTape": {
        "gradient": _GRADIENT,
        "get_local_and_global_gradients": _GRADIENT,
        "register_local_source": "source",
        "_allreduce_grads": _REDUCE_GRADIENTS,
    },
    "DistributedOptimizer": {
        "compute_gradients": "*args",
        "apply_gradients": "grads_and_vars, global_step=None, name=None",
        "register_local_var": "var",
        "_allreduce_grads": _REDUCE_GRADIENTS,
    },
}
"""Of what hvdtune.tensorflow makes of a tape, and of an optimizer of TensorFlow 1."""
