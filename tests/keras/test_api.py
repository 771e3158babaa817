"""Horovod 0.28.1's public API of horovod.keras and horovod.tensorflow.keras, as lists."""

import types

import pytest

import hvdtune.keras
import hvdtune.keras.callbacks
import hvdtune.tensorflow.keras
import hvdtune.tensorflow.keras.callbacks
from tests.api_lists import BASICS, CONSTANTS, check_signature

DEVICES = "device_dense='', device_sparse=''"
NONE = "compression=Compression.none"
SCALE = "prescale_factor=1.0, postscale_factor=1.0"
SET = "process_set=global_process_set"
LOCAL = "scale_local_gradients=True"
FIRST = (
    f"optimizer, name=None, {DEVICES}, {NONE}, sparse_as_dense=False, "
    "gradient_predivide_factor=1.0, op=Average"
)
PASSES = "backward_passes_per_step=1, average_aggregated_gradients=False"

# What is a parameter here may be followed by keyword parameters of hvdtune's own.
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
OF_KERAS = {
    **BOTH,
    "allreduce": f"value, name=None, average=True, {SCALE}, op=None, {NONE}",
    "DistributedOptimizer": f"{FIRST}, num_groups=0, groups=None",
    "PartialDistributedOptimizer": (
        f"{FIRST}, {PASSES}, groups=None, {SET}, local_layers=None, {LOCAL}"
    ),
}
OF_TF_KERAS = {
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
BEST_OF_KERAS = "monitor='val_loss', verbose=0, mode='auto', save_freq='epoch'"
BEST_OF_TF_KERAS = (
    "monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', save_freq='epoch'"
)
LISTS = {
    hvdtune.keras: OF_KERAS,
    hvdtune.tensorflow.keras: OF_TF_KERAS,
    hvdtune.keras.callbacks: {**CALLBACKS, "BestModelCheckpoint": BEST_OF_KERAS},
    hvdtune.tensorflow.keras.callbacks: {**CALLBACKS, "BestModelCheckpoint": BEST_OF_TF_KERAS},
}
OTHERS = {
    **CONSTANTS,
    "Compression": type,
    "callbacks": types.ModuleType,
    "elastic": types.ModuleType,
    "global_process_set": hvdtune.keras.ProcessSet,
}
ELASTIC = [
    "run",
    "KerasState",
    "CommitStateCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]
PACKAGES = [hvdtune.keras, hvdtune.tensorflow.keras]


@pytest.mark.parametrize(
    ("module", "name", "wanted"),
    [
        pytest.param(module, name, wanted, id=f"{module.__name__}.{name}")
        for module, functions in LISTS.items()
        for name, wanted in functions.items()
    ],
)
def test_a_function_takes_what_horovod_s_takes(module, name, wanted):
    check_signature(module, name, wanted)
    assert name in module.__all__


@pytest.mark.parametrize("hvd", PACKAGES, ids=lambda module: module.__name__)
@pytest.mark.parametrize("name", OTHERS)
def test_a_name_of_horovod_s_is_there(hvd, name):
    found, wanted = getattr(hvd, name), OTHERS[name]
    assert isinstance(found, wanted) if isinstance(wanted, type) else found == wanted


@pytest.mark.parametrize("hvd", PACKAGES, ids=lambda module: module.__name__)
def test_every_public_name_is_there_once(hvd):
    assert set(hvd.__all__) >= OTHERS.keys()
    assert all(hasattr(hvd, name) for name in hvd.__all__)
    assert len(set(hvd.__all__)) == len(hvd.__all__)


@pytest.mark.parametrize("hvd", PACKAGES, ids=lambda module: module.__name__)
@pytest.mark.parametrize("name", ELASTIC)
def test_elastic_training_says_that_it_is_absent_and_what_to_do(hvd, name):
    with pytest.raises(NotImplementedError, match=rf"elastic\.{name}: hvdtune \d.*checkpoints"):
        getattr(hvd.elastic, name)(None)
