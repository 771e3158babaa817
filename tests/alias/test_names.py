"""The names that Horovod's users import, as ranks of a job see them."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
from horovod.torch.mpi_ops import _NULL, check_num_rank_power_of_2, gpu_available
from horovod.torch.optimizer import DistributedOptimizer
from horovod.torch.optimizer import _DistributedAdasumOptimizer, _DistributedOptimizer
import torch

hvd.init()
pair = hvd.add_process_set([0])
handle = hvd.mpi_ops.allreduce_async(torch.ones(2), op=hvd.Sum)
inner = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=0.1)
optimizers = [hvd.DistributedOptimizer(inner, op=op) for op in (hvd.Average, hvd.Adasum)]
kinds = (_DistributedOptimizer, _DistributedAdasumOptimizer)

def derive():
    class Mine(_DistributedOptimizer):
        pass

def refusal(make, *arguments):
    try:
        make(*arguments)
    except NotImplementedError as error:
        return str(error)

copied = type("SGD", (torch.optim.SGD,), dict(_DistributedOptimizer.__dict__))
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
    "private": [_NULL, check_num_rank_power_of_2(2), gpu_available("mxnet")],
    "kinds": [[isinstance(optimizer, kind) for kind in kinds] for optimizer in optimizers],
    "derived": [refusal(derive), refusal(copied, [], None), refusal(_DistributedOptimizer, [])],
    "elastic": hvd.elastic is horovod.torch.elastic and hvd.elastic.state.TorchState
    is hvd.elastic.TorchState and hvd.elastic.sampler.ElasticSampler.__name__,
    "values": [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product],
}
print(json.dumps(seen))
"""


DERIVED = (
    f"hvdtune {hvdtune.__version__} has no horovod.torch.optimizer._DistributedOptimizer: "
    "hvdtune's optimizer is built differently and cannot be subclassed; wrap your optimizer with "
    "hvd.DistributedOptimizer, whose compression= changes the data sent"
)


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
            "private": ["", True, False],
            "kinds": [[True, False], [False, True]],
            "derived": [DERIVED] * 3,
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
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.keras import callbacks
from horovod.tensorflow.keras.callbacks import MetricAverageCallback
from horovod.tensorflow.mpi_ops import _basics, check_num_rank_power_of_2, rank_op
from horovod.tensorflow.mpi_ops import handle_average_backwards_compatibility
from horovod.tensorflow.mpi_ops import _allreduce, gpu_available
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.util import _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs
import tensorflow as tf

hvd.init()
variables = [tf.Variable(1.0), tf.Variable(2.0)]
combine = hvd._make_allreduce_grads_fn("Mine", "", "", Compression.none, True)
gradients = [tf.IndexedSlices(tf.ones((1, 2)), [1], (3, 2)), None, tf.constant(4.0)]
combined = combine(gradients, [*variables, tf.Variable(0.0)])

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

seen = {
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
        LocalGradientAggregationHelper is hvd.LocalGradientAggregationHelper,
    ],
    "eager": [
        each._executing_eagerly() for each in (hvd, horovod.tensorflow.util, horovod.tensorflow)
    ] + [bool(_make_subgraph(lambda: tf.constant(_executing_eagerly()))())],
    "variables": refs_to_vars(vars_to_refs(variables)) == variables,
    "combined": [None if g is None else tf.convert_to_tensor(g).numpy().tolist() for g in combined],
    "sum": _allreduce(tf.constant([2.0]), "mine").numpy().tolist(),
    "gpu": gpu_available("tensorflow") == bool(tf.config.list_physical_devices("GPU")),
    "basics": _basics.rank is hvd.rank,
    "average": handle_average_backwards_compatibility(None, None) == hvd.Average,
    "powers": check_num_rank_power_of_2(4),
    "data": data_of_tensorflow(),
    "available": [extension_available(name) for name in ("tensorflow", "torch", "keras", "mxnet")],
}
"""


def test_the_names_of_tensorflow_and_keras_are_there_and_are_hvdtunes(looked):
    seen = dict(looked["seen"])
    assert comes_later("tensorflow.data", seen.pop("data"))
    assert seen == {
        "different": [],
        "same": [True] * 8,
        "eager": [True, True, True, False],
        "variables": True,
        "combined": [[[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], None, 4.0],
        "sum": [2.0],
        "gpu": True,
        "basics": True,
        "average": True,
        "powers": True,
        "available": [True, True, True, False],
    }


def comes_later(module, message):
    return message.startswith(f"hvdtune {hvdtune.__version__} has no horovod.{module}: ")


_ASK_FOR_WHAT_IS_ABSENT = """
import sys
asked, modules, names = json.load(sys.stdin), {}, {}
for name in asked["modules"]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        modules[name] = [str(error), error.name]
for statement in asked["statements"]:
    exec(statement)
    try:
        call(1, key=2)
    except NotImplementedError as error:
        names[statement] = str(error)
print(json.dumps({"seen": seen, "modules": modules, "names": names}))
"""

# What Horovod 0.28.1 has below `horovod.runner` and beside its frameworks.
LAUNCHER = """
    common.service.driver_service common.util.codec common.util.config_parser common.util.host_hash
    common.util.network common.util.safe_shell_exec common.util.secret common.util.settings
    common.util.timeout common.util.tiny_shell_exec driver.driver_service gloo_run
    http.http_client http.http_server js_run mpi_run run_task task.task_service task_fn util.cache
    util.lsf util.network util.remote util.streams
"""
LATER = """
    data.data_loader_base mxnet.mpi_ops ray.runner spark.common.store
    tensorflow.data.compute_service
"""
OTHERS = {
    "runner.elastic.discovery": "hvdtune run --min-np starts an elastic job",
    "_keras.callbacks": "use horovod.keras or horovod.tensorflow.keras",
    "torch.mpi_lib_v2": "its operations are functions of horovod.torch",
}
REASONS = (
    {f"runner.{name}": "hvdtune has a launcher of its own" for name in LAUNCHER.split()}
    | dict.fromkeys(LATER.split(), "it comes in a later version")
    | OTHERS
)


ABSENT = {
    "from horovod.runner import _HorovodArgs as call": "runner._HorovodArgs",
    "from horovod.runner.launch import _run as call": "runner.launch._run",
    "from horovod.runner.launch import parse_args as call": "runner.launch.parse_args",
    "from horovod.runner.launch import check_build as call": "runner.launch.check_build",
    "from horovod.torch.mpi_ops import _allreduce_async as call": "torch.mpi_ops._allreduce",
    "from horovod.torch.mpi_ops import _check_has_gpu as call": "torch.mpi_ops._check_has_gpu",
    "from horovod.torch.sync_batch_norm import _SyncBatchNorm as call": (
        "torch.sync_batch_norm._SyncBatchNorm"
    ),
    "from horovod.tensorflow import _DistributedOptimizer as call": (
        "tensorflow._DistributedOptimizer"
    ),
}


@pytest.fixture(scope="module")
def looked():
    """What one process has seen: importing all frameworks takes many seconds."""
    asked = {"modules": [f"horovod.{name}" for name in REASONS], "statements": list(ABSENT)}
    done = subprocess.run(
        [sys.executable, "-c", _LOOK_AT_TENSORFLOW + _ASK_FOR_WHAT_IS_ABSENT],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        env=os.environ
        | {"PYTHONPATH": str(Path(__file__).parents[2]), "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(("module", "reason"), REASONS.items())
def test_an_absent_module_is_an_import_error_that_says_why(looked, module, reason):
    message, name = looked["modules"][f"horovod.{module}"]
    assert f"horovod.{module}.".startswith(f"{name}.")
    assert message.startswith(f"hvdtune {hvdtune.__version__} has no {name}: {reason}")


@pytest.mark.parametrize(("statement", "name"), ABSENT.items())
def test_an_absent_name_can_be_imported_and_refuses_to_be_called(looked, statement, name):
    said = looked["names"][statement]
    assert said.startswith(f"hvdtune {hvdtune.__version__} has no horovod.{name}")


def test_horovodrun_s_module_is_the_command(python):
    body = """
import sys
import hvdtune.alias
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.launch import run_commandline
if sys.argv[1:] == ["as a rank"]:
    from hvdtune.core.rank.runtime import init
    init()
    print("ranks:", get_env_rank_and_size()[1])
else:
    sys.argv[1:] = ["-np", "2", sys.executable, "train.py", "as a rank"]
    run_commandline()
"""
    assert python(body).count("ranks: 2") == 2


def test_elastic_names_need_no_framework(python):
    body = """
import hvdtune.alias
from horovod.common.elastic import ObjectState, State, run_fn
from horovod.common.elastic import notification_manager
import sys
assert "torch" not in sys.modules
notification_manager.init()
state = ObjectState(lambda value: value, lambda: 0, batch=[1])
state.batch.append(2)
state.restore()
print(run_fn(lambda state: state.batch, print)(state))
notification_manager.register_listener(state)
for update in (1, 2, 3):
    notification_manager.handle_hosts_updated(0.0, update)
    assert not state._host_messages.empty()
    try:
        state.commit()
    except Exception as error:
        print(type(error).__name__, error.skip_sync)
state.commit()
notification_manager.remove_listener(state)
notification_manager.handle_hosts_updated(0.0, 1)
assert state._host_messages.empty()
try:
    notification_manager.register_listener(print)
except NotImplementedError as error:
    print(error)
"""
    assert python(body).splitlines() == [
        "[1]",
        "HostsUpdatedInterrupt True",
        "HostsUpdatedInterrupt False",
        "HostsUpdatedInterrupt False",
        "notification_manager.register_listener: only a State receives changes of hosts, not "
        "builtin_function_or_method; call state.check_host_updates()",
    ]


@pytest.mark.slow  # as the page's, which tests/alias/test_docs.py runs
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
