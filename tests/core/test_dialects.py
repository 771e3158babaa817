"""What the variables of each launcher mean, and what happens where two of them are there."""

import dataclasses
import json
import re

import pytest

from hvdtune.core.config.dialect import LauncherPlace, expand_hosts, repeated_counts
from hvdtune.core.config.dialects import DIALECTS, recognise
from hvdtune.core.config.environment import Config, environ_rank_and_size
from hvdtune.errors import UsageError
from tests.kit.pages import Page

_SRUN = {
    "SLURM_JOB_ID": "42",
    "SLURM_STEP_ID": "1",
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_NTASKS": "7",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "node[07-08]",
    "SLURM_STEP_TASKS_PER_NODE": "4,3",
    "SLURMD_NODENAME": "node08",
}
_TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "1",
}
_OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_RANK": "3",
    "PMIX_NAMESPACE": "prterun-a-77@1",
}
_CLUSTER = {"worker": ["b:1", "c:1"], "chief": ["a:1"], "ps": ["d:1"]}
_POOLS = {"workerpool0": ["a:2222"], "workerpool1": ["b:2222", "c:2222"], "workerpool2": ["d:2"]}


def cluster(of, kind, index):
    return json.dumps({"cluster": of, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("dialect", "environ", "told"),
    [
        (
            "hvdtune",
            {"HVDTUNE_RENDEZVOUS": "10.0.0.1:4", "HVDTUNE_RANK": "1", "HVDTUNE_SIZE": "2"}
            | {"HVDTUNE_LOCAL_RANK": "0", "HVDTUNE_LOCAL_SIZE": "1", "HVDTUNE_CROSS_RANK": "1"}
            | {"HVDTUNE_CROSS_SIZE": "2", "HVDTUNE_HOST": "b"},
            {"rank": 1, "size": 2, "local_rank": 0, "local_size": 1, "cross_rank": 1}
            | {"cross_size": 2, "host": "b", "job": "10.0.0.1:4"},
        ),
        (
            "horovod",
            {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2", "HOROVOD_HOSTNAME": "b"}
            | {"HOROVOD_GLOO_RENDEZVOUS_ADDR": "a", "HOROVOD_GLOO_RENDEZVOUS_PORT": "5"},
            {"rank": 1, "size": 2, "host": "b", "job": "a/5"},
        ),
        (
            "torchrun",
            _TORCHRUN,
            {"rank": 3, "size": 4, "local_rank": 1, "local_size": 2, "cross_rank": 1}
            | {"cross_size": 2, "hosts": ("a",), "job": "a/29500/none/1"},
        ),
        (
            "openmpi",
            _OPENMPI,
            {"rank": 3, "size": 4, "local_rank": 1, "local_size": 2, "job": "prterun-a-77@1"},
        ),
        (
            "pmix",
            {"PMIX_RANK": "5", "PMIX_NAMESPACE": "slurm.pmix.42.1"} | _SRUN,
            {"rank": 5, "size": 7, "local_rank": 1, "local_size": 3, "cross_rank": 1}
            | {"cross_size": 2, "host": "node08", "hosts": ("node07", "node08")}
            | {"job": "slurm.pmix.42.1"},
        ),
        ("pmix", {"PMIX_RANK": "1"}, {"rank": 1}),
        (
            "hydra",
            {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
            {"rank": 1, "size": 2, "local_rank": 1, "local_size": 2},
        ),
        (
            "mvapich",
            {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}
            | {"MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_LOCAL_SIZE": "2"},
            {"rank": 1, "size": 2, "local_rank": 1, "local_size": 2},
        ),
        (
            "pals",
            {"PALS_RANKID": "3", "PALS_LOCAL_RANKID": "1", "PALS_LOCAL_SIZE": "2"}
            | {"PALS_NODEID": "1", "PALS_APID": "f0", "PBS_NODEFILE": "/var/nodes"},
            {"rank": 3, "local_rank": 1, "local_size": 2, "cross_rank": 1, "job": "f0"}
            | {"hosts_file": "/var/nodes"},
        ),
        (
            "pmi",
            {"PALS_RANKID": "3", "PALS_LOCAL_RANKID": "1", "PALS_NODEID": "1", "PALS_APID": "f0"}
            | {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"},
            {"rank": 3, "size": 4, "local_rank": 1, "local_size": 2, "cross_rank": 1, "job": "f0"},
        ),
        (
            "flux",
            {"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "1"}
            | {"FLUX_JOB_NNODES": "2", "FLUX_JOB_ID": "123"},
            {"rank": 3, "size": 4, "local_rank": 1, "cross_size": 2, "job": "123"},
        ),
        (
            "slurm",
            _SRUN,
            {"rank": 5, "size": 7, "local_rank": 1, "local_size": 3, "cross_rank": 1}
            | {"cross_size": 2, "host": "node08", "hosts": ("node07", "node08"), "job": "42/1"},
        ),
        (
            "jsrun",
            {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "4", "LSB_JOBID": "9"}
            | {"JSM_NAMESPACE_LOCAL_RANK": "1", "JSM_NAMESPACE_LOCAL_SIZE": "2"},
            {"rank": 3, "size": 4, "local_rank": 1, "local_size": 2, "job": "9"},
        ),
        (
            "torch",
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            {"rank": 1, "size": 2, "hosts": ("a",), "job": "a/1"},
        ),
        (
            "nodes",
            {"HVDTUNE_NODE": "1", "HVDTUNE_NODES": "2", "PBS_JOBID": "7.pbs"},
            {"rank": 1, "size": 2, "job": "7.pbs", "is_node": True},
        ),
        (
            "kubeflow",
            {"PET_NNODES": "3", "PET_NODE_RANK": "2", "PET_NPROC_PER_NODE": "1"}
            | {"PET_MASTER_ADDR": "a", "PET_MASTER_PORT": "29400"},
            {"rank": 2, "size": 3, "hosts": ("a",), "job": "a/29400", "is_node": True},
        ),
        (
            "sagemaker",
            {"SM_HOSTS": '["algo-2","algo-1"]', "SM_CURRENT_HOST": "algo-2"}
            | {"TRAINING_JOB_NAME": "mine"},
            {"rank": 1, "size": 2, "host": "algo-2", "hosts": ("algo-1", "algo-2")}
            | {"job": "mine", "is_node": True},
        ),
        (
            "sagemaker",
            {"SM_HOSTS": '["b","A"]', "SM_CURRENT_HOST": "B", "TRAINING_JOB_NAME": "mine"},
            {"rank": 1, "size": 2, "host": "B", "hosts": ("a", "b")}
            | {"job": "mine", "is_node": True},
        ),
        (
            "sagemaker",
            {"SM_RESOURCE_CONFIG": '{"current_host": "a", "hosts": ["a", "b"]}'}
            | {"SM_TRAINING_ENV": '{"job_name": "mine"}'},
            {"rank": 0, "size": 2, "hosts": ("a", "b"), "job": "mine", "is_node": True},
        ),
        (
            "azureml",
            {"AZUREML_NODE_COUNT": "2", "AZ_BATCHAI_TASK_INDEX": "1", "AZUREML_RUN_ID": "r"}
            | {"AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"},
            {"rank": 1, "size": 2, "hosts": ("10.0.0.4",), "job": "r", "is_node": True},
        ),
        (
            "vertex",
            {"CLUSTER_SPEC": cluster(_POOLS, "workerpool1", 1), "CLOUD_ML_JOB_ID": "7"},
            {"rank": 2, "size": 3, "hosts": ("a", "b", "c"), "job": "7", "is_node": True},
        ),
        (
            "tensorflow",
            {"TF_CONFIG": cluster(_CLUSTER, "worker", 0), "CLOUD_ML_JOB_ID": "7"},
            {"rank": 1, "size": 3, "hosts": ("a", "b", "c"), "job": "7", "is_node": True},
        ),
    ],
)
def test_a_dialect_tells_a_place(dialect, environ, told):
    place = recognise(environ)
    said = {name: value for name, value in vars(place).items() if value not in (None, "", ())}
    if not place.is_node:
        said.pop("is_node")
    for name in ("dialect", "title", "rank_by", "size_by", "remark"):
        said.pop(name, None)
    assert (place.dialect, said) == (dialect, told)


def test_every_dialect_has_a_case():
    cases = test_a_dialect_tells_a_place.pytestmark[0].args[1]
    assert {case[0] for case in cases} == {row.name for row in DIALECTS}


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"SLURM_JOB_ID": "42", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"},
        _SRUN | {"SLURM_STEP_ID": "4294967291"},
        _SRUN | {"SLURM_STEP_ID": "4294967290"},
        {"SLURM_JOB_ID": "42", "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"},
        {"WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"TF_CONFIG": cluster(_CLUSTER, "ps", 0)},
        {"TF_CONFIG": cluster(_CLUSTER, "evaluator", 0)},
        {"TF_CONFIG": '{"task": {}}'},
        {"TF_CONFIG": cluster({}, "worker", 0)},
        {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'},
        {"CLUSTER_SPEC": cluster(_POOLS, "workerpool2", 0)},
        {"CLUSTER_SPEC": "{}"},
        {"TF_CONFIG": cluster({"trainer": ["a:1"]}, "trainer", 0)},
        {"RANK": "8"},
        {"SLURM_STEP_ID": "4294967291", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"},
        {"SM_CURRENT_HOST": "b"},
        {"SM_HOSTS": '["a"]'},
        {"AZUREML_NODE_COUNT": "1"},
        {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "4"},
        _SRUN | {"HVDTUNE_STARTED_BY": "none"},
        {"RANK": "0", "WORLD_SIZE": "4", "HVDTUNE_STARTED_BY": "none"},
    ],
    ids=[
        "nothing", "script-of-sbatch", "step-of-sbatch", "shell-of-salloc", "no-task",
        "torch-for-its-tasks", "torch-alone", "parameter-server", "evaluator", "another-TF_CONFIG",
        "no-cluster", "cluster-of-one", "reduction-server", "no-pools", "type-of-ones-own",
        "rank-of-a-matrix", "script-of-sbatch-with-its-step",
        "host-without-others", "one-host", "azure-alone", "kubeflow-alone", "said-so",
        "said-so-of-torch",
    ],
)  # fmt: skip
def test_a_process_is_alone_where_no_launcher_has_started_it_as_one_of_many(environ):
    assert recognise(environ) is None


_IMPOSSIBLE = [
    (
        {"RANK": "0", "WORLD_SIZE": "4"},
        "WORLD_SIZE is 4, but MASTER_ADDR is not set. Correct it, or set "
        "HVDTUNE_STARTED_BY=none for a single process",
    ),
    (
        {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "4"},
        "PET_NNODES is 2, but PET_NODE_RANK and PET_MASTER_ADDR are not set",
    ),
    (
        {"PET_NNODES": "1:4", "PET_NODE_RANK": "0"},
        "PET_NNODES=1:4 is not a number of nodes. Start an elastic job with `hvdtune run` and "
        "--min-np. Correct it",
    ),
    (
        {"PET_NNODES": "x", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "a"},
        "PET_NNODES=x is not a number of nodes",
    ),
    ({"HVDTUNE_NODES": "2"}, "HVDTUNE_NODES is 2, but HVDTUNE_NODE is not set"),
    ({"HVDTUNE_NODE": "0"}, "HVDTUNE_NODE is 0, but HVDTUNE_NODES is not set"),
    (
        {"AZUREML_NODE_COUNT": "2"},
        "AZUREML_NODE_COUNT is 2, but AZ_BATCHAI_TASK_INDEX or NODE_RANK is not set",
    ),
    (
        {"SM_HOSTS": '["a", "b"]', "SM_CURRENT_HOST": "c"},
        "SM_CURRENT_HOST is c, which is not in SM_HOSTS (a, b)",
    ),
    (
        {"SM_HOSTS": '["a"]', "SM_CURRENT_HOST": "b"},
        "SM_CURRENT_HOST is b, which is not in SM_HOSTS (a)",
    ),
    ({"SM_HOSTS": '["a", "b"]'}, "SM_CURRENT_HOST is not set, but required by SM_HOSTS (a, b)"),
    ({"SM_HOSTS": "3", "SM_CURRENT_HOST": "a"}, "SM_HOSTS is not a list of different hosts: 3"),
    (
        {"SM_RESOURCE_CONFIG": '{"current_host": "c", "hosts": ["a", "b"]}'},
        "SM_CURRENT_HOST is c, which is not in SM_RESOURCE_CONFIG (a, b)",
    ),
    ({"SM_HOSTS": "a,b", "SM_CURRENT_HOST": "a"}, "SM_HOSTS is not JSON: a,b"),
    (
        {"TF_CONFIG": cluster({"worker": ["a:1", "b:1"]}, "worker", 7)},
        "TF_CONFIG has task worker 7, but its cluster is worker 0, worker 1",
    ),
    (
        {"TF_CONFIG": cluster({"worker": ["a:1"]}, "chief", 0)},
        "TF_CONFIG has task chief 0, but its cluster is worker 0",
    ),
    (
        {"TF_CONFIG": json.dumps({"cluster": _CLUSTER})},
        "TF_CONFIG has task (not set), but its cluster is chief 0, worker 0, worker 1, ps 0",
    ),
    (
        {"TF_CONFIG": cluster({"chief": ["a:1"], "worker": ["b:1"]}, "workr", 0)},
        "TF_CONFIG has a task of type workr, which is not one of chief, master, worker, "
        "ps, evaluator",
    ),
    *(
        ({"TF_CONFIG": cluster({"chief": ["a:1"], "workr": ["b:1"]}, kind, 0)}, "of type workr,")
        for kind in ("chief", "workr", "worker")
    ),
    (
        {"CLUSTER_SPEC": cluster(_POOLS, "workerpool", 0)},
        "CLUSTER_SPEC has a task of type workerpool, which is not one of "
        "workerpool0, workerpool1, ",
    ),
    ({"FLUX_JOB_SIZE": "2", "FLUX_JOB_ID": "f"}, "FLUX_JOB_SIZE is 2, but FLUX_TASK_RANK is not"),
    (
        {"SLURM_JOB_ID": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"},
        "SLURM_STEP_NUM_TASKS is 2, but SLURM_PROCID is not set",
    ),
    (
        {"SLURM_JOB_ID": "4", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
        "SLURM_PROCID is 1, but SLURM_STEP_ID is not set",
    ),
    ({"RANK": "", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "WORLD_SIZE is 2, but RANK is not set"),
    (
        {"RANK": "1", "LOCAL_RANK": "1"},
        "RANK is 1, but WORLD_SIZE and MASTER_ADDR are not set",
    ),
    (
        {"TF_CONFIG": cluster({"worker": "a:1,b:1"}, "worker", 0)},
        "TF_CONFIG is not an object with a cluster of tasks: {",
    ),
    (
        {"TF_CONFIG": '{"task": {"type": "worker", "index": 1}}'},
        "TF_CONFIG has task worker 1, but its cluster is empty",
    ),
    (
        {"SM_HOSTS": '["a", "a"]', "SM_CURRENT_HOST": "a"},
        'SM_HOSTS is not a list of different hosts: ["a", "a"]',
    ),
    (
        {"AZUREML_NODE_COUNT": "2", "NODE_RANK": "0", "AZ_BATCHAI_TASK_INDEX": "1"},
        "NODE_RANK is 0, but AZ_BATCHAI_TASK_INDEX is 1. Correct it",
    ),
    ({"RANK": "1", "TORCHELASTIC_RUN_ID": "x"}, "RANK is 1, but WORLD_SIZE is not set"),
    ({"LOCAL_RANK": "1"}, "LOCAL_RANK is 1, but RANK, WORLD_SIZE and MASTER_ADDR are not set"),
    ({"LOCAL_WORLD_SIZE": "2"}, "LOCAL_WORLD_SIZE is 2, but RANK, WORLD_SIZE and MASTER_ADDR are"),
    ({"SLURM_LOCALID": "1"}, "SLURM_LOCALID is 1, but SLURM_PROCID and SLURM_STEP_ID are not set"),
    (
        {"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "0"},
        "MPI_LOCALNRANKS is 2, but PMI_RANK is not set",
    ),
    ({"PET_NODE_RANK": "1"}, "PET_NODE_RANK is 1, but PET_NNODES and PET_MASTER_ADDR are not"),
    (
        {"AZ_BATCHAI_TASK_INDEX": "1"},
        "AZ_BATCHAI_TASK_INDEX is 1, but AZUREML_NODE_COUNT is not set",
    ),
    ({"TF_CONFIG": "worker=a"}, "TF_CONFIG is not JSON: worker=a"),
    ({"TF_CONFIG": "[]"}, "TF_CONFIG is not an object with a cluster of tasks: []"),
    (
        {"TF_CONFIG": '{"cluster": 3}'},
        'TF_CONFIG is not an object with a cluster of tasks: {"cluster": 3}',
    ),
    (
        {"CLUSTER_SPEC": "m4.large"},
        "CLUSTER_SPEC is not JSON: m4.large. Correct it, or set HVDTUNE_STARTED_BY=none for a",
    ),
    (
        {"CLUSTER_SPEC": cluster(_POOLS, "workerpool1", 5)},
        "CLUSTER_SPEC has task workerpool1 5, but its cluster is workerpool0 0, ",
    ),
    (
        {"TF_CONFIG": cluster(_CLUSTER, "worker", 7), "HVDTUNE_STARTED_BY": "tensorflow"},
        "HVDTUNE_STARTED_BY=tensorflow, but TF_CONFIG has task worker 7",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("environ", "sentence"), _IMPOSSIBLE)
def test_several_processes_of_which_none_is_this_one_are_refused(environ, sentence):
    with pytest.raises(UsageError) as refused:
        recognise(environ)
    assert sentence in str(refused.value)
    with pytest.raises(UsageError):
        Config.from_environ(environ, ())


@pytest.mark.parametrize(
    ("environ", "outer"),
    [
        (_SRUN | _TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1"}, "slurm"),
        (
            _SRUN | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
            "slurm",
        ),
        (
            _TORCHRUN | {"RANK": "0", "WORLD_SIZE": "1", "HVDTUNE_NODES": "2", "HVDTUNE_NODE": "1"},
            "nodes",
        ),
    ],
)
def test_a_launcher_of_one_process_in_each_of_several_tasks_is_remarked(environ, outer):
    environ = environ | {"LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    (remark,) = Config.from_environ(environ, ()).ignored
    size = recognise(environ | {"HVDTUNE_STARTED_BY": outer}).size
    assert re.match(
        rf"[A-Z_]+ reports 1 process, [A-Z_]+ reports {size}\. Starting {size} ", remark
    )
    assert remark.endswith(f"; set HVDTUNE_STARTED_BY={outer} to start one job of {size} ranks.")
    assert recognise(_SRUN | _TORCHRUN).remark == ""


def test_a_cluster_may_number_its_tasks():
    workers = {"10": "c:1", "1": "b:1", "0": "a:1"}
    told = recognise({"TF_CONFIG": cluster({"worker": workers}, "worker", 10)})
    assert (told.rank, told.size, told.hosts) == (2, 3, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            _SRUN | {"SLURM_LOCALID": "5"},
            "srun sets local rank 5 on a host with 3 ranks. Correct it",
        ),
        (
            _TORCHRUN | {"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "1"},
            "torchrun sets local rank 2 on a host with 1 rank. Correct it",
        ),
    ],
)
def test_a_local_rank_beyond_the_ranks_of_its_host_is_refused(environ, sentence):
    with pytest.raises(UsageError) as refused:
        recognise(environ)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("launched", [_SRUN, _TORCHRUN], ids=["srun", "torchrun"])
@pytest.mark.parametrize("environ", [case[0] for case in _IMPOSSIBLE])
def test_what_a_launcher_was_started_with_is_nothing_to_its_ranks(launched, environ):
    """A torchrun's own options are PET_NNODES and the like, and its ranks inherit them."""
    environ = {name: value for name, value in environ.items() if name not in launched}
    environ.pop("HVDTUNE_STARTED_BY", None)
    assert recognise(launched | environ).rank == recognise(launched).rank


@pytest.mark.parametrize(
    ("environ", "dialect"),
    [
        (_SRUN | _TORCHRUN, "torchrun"),
        (_OPENMPI | _TORCHRUN | {"RANK": "0"}, "torchrun"),
        # srun has started the daemons that have started the ranks.
        (_OPENMPI | _SRUN, "openmpi"),
        (_SRUN | {"PMI_RANK": "0", "PMI_SIZE": "9", "MPI_LOCALNRANKS": "3"}, "hydra"),
        (_SRUN | {"PMI_RANK": "5", "PMI_SIZE": "7", "PMI_JOBID": "42.1"}, "pmi"),
        (_SRUN | {"FLUX_TASK_RANK": "0", "FLUX_JOB_SIZE": "3"}, "flux"),
        (
            _SRUN | {"HVDTUNE_RENDEZVOUS": "a:1", "HVDTUNE_RANK": "1", "HVDTUNE_SIZE": "3"},
            "hvdtune",
        ),
        (
            _SRUN
            | {"HVDTUNE_RENDEZVOUS": "a:1", "HVDTUNE_RANK": "1", "HVDTUNE_SIZE": "3"}
            | {"HVDTUNE_STARTED_BY": "none"},
            "hvdtune",
        ),
        # One launcher's processes under both names
        (_SRUN | {"RANK": "5", "WORLD_SIZE": "7", "MASTER_ADDR": "a"}, "slurm"),
        # The hosts of one are what the tasks of the other run on.
        (_SRUN | {"TF_CONFIG": cluster(_CLUSTER, "chief", 0)}, "slurm"),
        (_SRUN | _TORCHRUN | {"HVDTUNE_STARTED_BY": "slurm"}, "slurm"),
    ],
)
def test_the_innermost_launcher_counts(environ, dialect):
    assert recognise(environ).dialect == dialect


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            _SRUN | {"RANK": "0", "WORLD_SIZE": "7", "MASTER_ADDR": "a"},
            "srun and torch.distributed disagree: SLURM_PROCID is 5, RANK is 0. Unset the "
            "variables of the launcher that did not start this process, or set "
            "HVDTUNE_STARTED_BY to slurm or torch",
        ),
        (
            _SRUN | {"RANK": "5", "WORLD_SIZE": "14", "MASTER_ADDR": "a"},
            "SLURM_STEP_NUM_TASKS is 7, WORLD_SIZE is 14",
        ),
        (
            _OPENMPI | {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "4"},
            "HOROVOD_RANK is 0, OMPI_COMM_WORLD_RANK is 3",
        ),
        (_OPENMPI | {"PMIX_RANK": "2"}, "OMPI_COMM_WORLD_RANK is 3, PMIX_RANK is 2"),
        ({"PMIX_RANK": "4"} | _SRUN, "PMIX_RANK is 4, SLURM_PROCID is 5"),
        (
            _SRUN | {"PMI_RANK": "1", "PMI_SIZE": "7"},
            "PMI_RANK is 1, SLURM_PROCID is 5",
        ),
        (
            _SRUN | {"JSM_NAMESPACE_RANK": "5", "JSM_NAMESPACE_SIZE": "8"},
            "SLURM_STEP_NUM_TASKS is 7, JSM_NAMESPACE_SIZE is 8",
        ),
        (
            {"PMI_RANK": "2", "PMI_SIZE": "2"},
            "PMI_RANK=2 is out of range: PMI_SIZE is 2, so ranks are numbered 0 to 1.",
        ),
        ({"PMI_RANK": "x", "PMI_SIZE": "2"}, "PMI_RANK=x is not a whole number"),
        (
            {"HVDTUNE_NODE": "2", "HVDTUNE_NODES": "2"},
            "HVDTUNE_NODE=2 is out of range: HVDTUNE_NODES is 2, so hosts are numbered 0 to 1.",
        ),
        ({"HVDTUNE_STARTED_BY": "srun"}, "HVDTUNE_STARTED_BY=srun is not one of hvdtune, horovod"),
        (
            {"HVDTUNE_STARTED_BY": "slurm"},
            "HVDTUNE_STARTED_BY=slurm, but srun has not set SLURM_PROCID, SLURM_STEP_ID and "
            "SLURM_STEP_NUM_TASKS",
        ),
        (
            {"HVDTUNE_STARTED_BY": "tensorflow"},
            "HVDTUNE_STARTED_BY=tensorflow, but TensorFlow's cluster has not set TF_CONFIG",
        ),
    ],
)
def test_what_cannot_be_is_refused(environ, sentence):
    with pytest.raises(UsageError) as refused:
        recognise(environ)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("one", ("one",)),
        ("login,node[1-3,07]-ib", ("login", "node1-ib", "node2-ib", "node3-ib", "node07-ib")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("r[1-2]n[1,3]", ("r1n1", "r1n3", "r2n1", "r2n3")),
    ],
)
def test_slurms_short_form_of_hosts(text, hosts):
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize(
    ("text", "counts"),
    [("4", (4,)), ("4(x2),3", (4, 4, 3)), ("", ()), ("4(y2)", ())],
)
def test_slurms_short_form_of_counts(text, counts):
    assert repeated_counts(text) == counts


@pytest.mark.parametrize(
    ("expand", "text"),
    [
        (expand_hosts, "n[1-99999999999]"),
        (expand_hosts, "n[1-60000],m[1-60000]"),
        (expand_hosts, "r[1-1000]n[1-1000]m[1-1000]"),
        (repeated_counts, "2(x99999999999)"),
        (repeated_counts, "2(x60000),3(x60000)"),
    ],
)
def test_a_short_form_of_too_many_hosts_is_refused(expand, text):
    with pytest.raises(ValueError, match=r"^has more than 100000 hosts$"):
        expand(text)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"PMI_RANK": "1", "PMI_SIZE": "4000000000"},
            "PMI_SIZE=4000000000 is more than 1000000 ranks. Correct it, or set "
            "HVDTUNE_STARTED_BY=none for a single process",
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "9" * 23}, f"PMI_SIZE={'9' * 23} is more than 1000000"),
        *(
            (
                {"PMI_RANK": rank, "PMI_SIZE": "2"},
                f"PMI_RANK={rank} {fault}. Correct it, or set HVDTU",
            )
            for rank, fault in (
                ("x", "is not a whole number"),
                ("-1", "is negative"),
                ("2", "is out of range: PMI_SIZE is 2, so ranks are numbered 0 to 1"),
            )
        ),
        (
            _SRUN | {"SLURM_STEP_NODELIST": "n[1-99999999999]"},
            "SLURM_STEP_NODELIST=n[1-99999999999] has more than 100000 hosts. Correct it, or set",
        ),
        (
            _SRUN | {"SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x99999999999)"},
            "SLURM_STEP_TASKS_PER_NODE=2(x99999999999) has more than 100000 hosts",
        ),
    ],
)
def test_numbers_that_no_job_has_are_refused(environ, sentence):
    with pytest.raises(UsageError) as refused:
        recognise(environ)
    assert str(refused.value).startswith(sentence)


def test_one_launchers_place_is_that_of_scripts_and_of_init():
    environ = _SRUN | {"HVDTUNE_SHARED_FOLDER": "/shared"}
    assert environ_rank_and_size(environ) == (5, 7)
    config = Config.from_environ(environ, ())
    meeting = config.rendezvous.meeting
    assert (config.place.host, meeting.place.rank, meeting.job) == ("node08", 5, "42/1")
    assert meeting.host == "node07"


@pytest.mark.parametrize("size", ["1", "7"])
def test_a_process_that_is_alone_in_its_step_meets_nobody(size):
    environ = _SRUN | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": size}
    assert (Config.from_environ(environ, ()).rendezvous.meeting is None) == (size == "1")


@pytest.mark.parametrize(
    ("place", "is_on_one_host"),
    [
        ({"size": 2, "local_size": 2}, True),
        ({"size": 2, "local_size": 1}, False),
        ({"size": 2}, False),
        ({"size": 1}, True),
        ({}, False),
    ],
)
def test_a_place_knows_whether_there_are_other_hosts(place, is_on_one_host):
    told = dataclasses.replace(LauncherPlace("slurm", "srun"), **place)
    assert told.is_on_one_host is is_on_one_host


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({}, "42/1"),
        ({"SLURM_RESTART_COUNT": "2"}, "42/1/2"),
        ({"SLURM_CLUSTER_NAME": "old"}, "old/42/1"),
        ({"SLURM_CLUSTER_NAME": "new", "SLURM_RESTART_COUNT": "2"}, "new/42/1/2"),
        ({"SLURM_JOB_ID": ""}, ""),
    ],
)
def test_a_job_of_slurm_is_named_apart_from_its_restarts_and_from_other_clusters(variables, job):
    assert recognise(_SRUN | variables).job == job


@pytest.mark.parametrize("own_variable", [{}, {"CLOUD_ML_JOB_ID": "7"}])
def test_all_tasks_of_a_cluster_have_one_name_for_their_job(own_variable):
    tasks = [("chief", 0), ("worker", 0), ("worker", 1)]
    told = [recognise({"TF_CONFIG": cluster(_CLUSTER, *task)} | own_variable) for task in tasks]
    assert [place.rank for place in told] == [0, 1, 2]
    assert len({place.job for place in told}) == 1 and told[0].job


def test_the_page_lists_the_dialects_in_their_order():
    rows = re.findall(r"^\| `([a-z]+)` \| ", Page("docs/schedulers.md").text, re.MULTILINE)
    assert rows == [row.name for row in DIALECTS]


@pytest.mark.parametrize(
    ("environ", "source"),
    [
        ({"TF_CONFIG": cluster(_CLUSTER, "worker", 0)}, "TF_CONFIG"),
        (_SRUN, "SLURM_PROCID and SLURM_STEP_NUM_TASKS"),
        ({"PMIX_RANK": "0"}, "PMIX_RANK"),
    ],
)
def test_a_place_names_each_variable_that_told_it_once(environ, source):
    assert recognise(environ).source == source


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
        ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    ],
)
def test_a_rank_without_a_size_is_no_matter_of_plugins(told, missing):
    with pytest.raises(
        UsageError,
        match=rf"^{told} is (2, but {missing} is not set|set, but {missing} is not\. .* sets both)"
        r"\. Correct it, or set",
    ):
        Config.from_environ({told: "2"}, ())
