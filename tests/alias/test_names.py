"""The names that Horovod's users import, as ranks of a job see them."""

import json

import pytest

import hvdtune

_LOOK = """
import json, os
import horovod
import horovod.torch as hvd
import hvdtune.torch
from horovod import run
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.runner import run as runner_run
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.torch.compression import Compression
from horovod.torch.compression import FP16Compressor, NoneCompressor
from horovod.torch.functions import allgather_object, broadcast_object
from horovod.torch.mpi_ops import allreduce, handle_average_backwards_compatibility
from horovod.torch.optimizer import DistributedOptimizer
import torch

hvd.init()
pair = hvd.add_process_set([0])
handle = hvd.mpi_ops.allreduce_async(torch.ones(2), op=hvd.Sum)
modules = {"elastic", "mpi_ops", "compression", "functions", "optimizer", "sync_batch_norm"}
seen = {
    "place": get_env_rank_and_size() == (hvd.rank(), hvd.size()),
    "version": horovod.__version__,
    "different": [
        name
        for name in set(hvdtune.torch.__all__) - modules
        if getattr(hvd, name) is not getattr(hvdtune.torch, name)
    ],
    "same": run is runner_run and allreduce is hvd.allreduce
    and ProcessSet is hvd.ProcessSet and global_process_set is hvd.global_process_set
    and HorovodInternalError is hvd.HorovodInternalError
    and DistributedOptimizer is hvd.DistributedOptimizer
    and broadcast_object is hvd.broadcast_object
    and allgather_object is hvd.allgather_object
    and Compression.none is NoneCompressor and Compression is hvd.Compression,
    "sum": hvd.mpi_ops.synchronize(handle).tolist(),
    "process_sets": hvd.mpi_ops._basics._get_process_set_ids_and_ranks(),
    "homogeneous": hvd.mpi_ops.is_homogeneous(),
    "every_basic": [
        name
        for name in set(hvd.__dict__) & set(dir(hvd.mpi_ops._basics))
        if not name.startswith("_")
        and getattr(hvd, name) is not getattr(hvd.mpi_ops._basics, name)
    ],
    "basics": [hvd.mpi_ops._basics.rank(), hvd.mpi_ops._basics.size()] == [hvd.rank(), 2],
    "average": handle_average_backwards_compatibility(None, None) == hvd.Average,
    "elastic": hvd.elastic is horovod.torch.elastic and hvd.elastic.state.TorchState
    is hvd.elastic.TorchState and hvd.elastic.sampler.ElasticSampler.__name__,
    "values": [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product],
}
print(json.dumps(seen))
"""


def test_what_horovods_users_import_is_there_and_is_hvdtunes(python):
    lines = python(_LOOK, under=("run", "-np", "2")).splitlines()
    assert len(lines) == 2
    for line in lines:
        assert json.loads(line.partition(">:")[2]) == {
            "place": True,
            "version": "0.28.1",
            "different": [],
            "same": True,
            "sum": [2.0, 2.0],
            "process_sets": {"0": [0, 1], "1": [0]},
            "homogeneous": True,
            "basics": True,
            "every_basic": [],
            "average": True,
            "elastic": "ElasticSampler",
            "values": [0, 1, 2, 3, 4, 5],
        }


_LOOK_AT_TENSORFLOW = """
import hvdtune.alias
import importlib, json
import horovod.tensorflow as hvd
import horovod.tensorflow.keras
import horovod.keras
from horovod.common.util import extension_available
from horovod.keras import callbacks as callbacks_of_keras
from horovod.keras.callbacks import BestModelCheckpoint
from horovod.tensorflow.compression import Compression, FP16Compressor
from horovod.tensorflow.functions import allgather_object, broadcast_variables
from horovod.tensorflow.keras import callbacks
from horovod.tensorflow.keras.callbacks import MetricAverageCallback
from horovod.tensorflow.mpi_ops import _basics, check_num_rank_power_of_2, rank_op
from horovod.tensorflow.mpi_ops import handle_average_backwards_compatibility
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

def different(name, modules):
    mine, ours = (importlib.import_module(f"{top}.{name}") for top in ("horovod", "hvdtune"))
    names = set(ours.__all__) - set(modules)
    found = [n for n in names if getattr(mine, n) is not getattr(ours, n)]
    for module in modules:
        assert getattr(mine, module) is importlib.import_module(f"horovod.{name}.{module}")
        found += different(f"{name}.{module}", ())
    return found

def data_of_tensorflow():
    try:
        import horovod.tensorflow.data
    except ImportError as error:
        return str(error)

print(json.dumps({
    "different": different("tensorflow", ["elastic"])
    + different("tensorflow.keras", ["callbacks", "elastic"])
    + different("keras", ["callbacks", "elastic"]),
    "same": [
        Compression is hvd.Compression and Compression.fp16 is FP16Compressor,
        allgather_object is hvd.allgather_object,
        broadcast_variables is hvd.broadcast_variables,
        rank_op is hvd.rank_op,
        SyncBatchNormalization is hvd.SyncBatchNormalization,
        MetricAverageCallback is horovod.tensorflow.keras.callbacks.MetricAverageCallback,
        BestModelCheckpoint is callbacks_of_keras.BestModelCheckpoint,
    ],
    "basics": _basics.rank is hvd.rank,
    "average": handle_average_backwards_compatibility(None, None) == hvd.Average,
    "powers": check_num_rank_power_of_2(4),
    "data": data_of_tensorflow(),
    "available": [extension_available(name) for name in ("tensorflow", "torch", "keras", "mxnet")],
}))
"""


def test_the_names_of_tensorflow_and_keras_are_there_and_are_hvdtunes(python):
    seen = json.loads(python(_LOOK_AT_TENSORFLOW))
    assert comes_later("tensorflow.data", seen.pop("data"))
    assert seen == {
        "different": [],
        "same": [True] * 7,
        "basics": True,
        "average": True,
        "powers": True,
        "available": [True, True, True, False],
    }


def comes_later(module, message):
    return message.startswith(f"hvdtune {hvdtune.__version__} has no horovod.{module}: ")


@pytest.mark.parametrize("module", ["mxnet", "spark", "ray", "data"])
def test_a_part_that_comes_later_is_an_import_error_that_names_this_version(python, module):
    body = f"""
import hvdtune.alias
try:
    import horovod.{module}
except ImportError as error:
    print(error)
"""
    assert comes_later(module, python(body))


def test_elastic_state_is_refused_where_it_is_made(python):
    body = """
import hvdtune.alias
from horovod.common.elastic import ObjectState, State, run_fn
for make in (ObjectState, State, lambda: run_fn(print, print)):
    try:
        make()
    except NotImplementedError as error:
        print(error)
"""
    assert python(body).count(f"hvdtune {hvdtune.__version__} has no elastic training") == 3


def test_horovod_run_returns_the_results_of_all_ranks(python):
    body = """
import hvdtune.alias
import horovod

def train(scale):
    import horovod.torch as hvd
    import torch

    hvd.init()
    return hvd.allreduce(torch.tensor([scale * hvd.rank()]), op=hvd.Sum).item()

print(horovod.run(train, args=(10.0,), num_proc=2, use_gloo=True))
"""
    assert python(body) == "[10.0, 10.0]\n"
