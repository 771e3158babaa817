"""The table of launchers, innermost first, and the rule that picks one. Pure.

Some launchers start others: a torchrun on each host of an srun, an mpirun whose daemons srun has
started. Both sets of variables are then set, with different numbers. The first row that matches
counts; `hides` lists the launchers that it may run inside. Other launchers have to agree with it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from hvdtune.core.config.dialect import (
    REMEDY,
    Dialect,
    Environ,
    LauncherPlace,
    expand_hosts,
    expanded,
    first_of,
    joined,
    listed,
    name_of,
    number_in,
    repeated_counts,
    whole_of,
)
from hvdtune.core.config.documents import cluster, document, sagemaker
from hvdtune.errors import UsageError

STARTED_BY: Final = "HVDTUNE_STARTED_BY"
_ALONE: Final = "none"
# Slurm's own steps, not started by srun: the script of sbatch (0xfffffffb), the shell of salloc
# (0xfffffffa) and helpers of the site (0xfffffffc).
_FIRST_OF_SLURMS_OWN_STEPS: Final = 0xFFFFFFF0
_SCHEDULERS: Final = frozenset({"pals", "flux", "slurm", "jsrun"})
_MPI: Final = frozenset({"openmpi", "pmix", "hydra", "mvapich", "pmi"})
# Of Vertex AI and of TF_CONFIG: types of tasks that train together, and of the other ones.
_POOLS: Final = (("workerpool0", "workerpool1"), ("workerpool2", "workerpool3"))
_TASKS: Final = (("chief", "master", "worker"), ("ps", "evaluator"))


def _slurm(env: Environ) -> dict[str, Any]:
    node = whole_of(env, "SLURM_NODEID")
    counts = expanded(env, "SLURM_STEP_TASKS_PER_NODE", repeated_counts)
    local = {} if node is None or node >= len(counts) else {"local_size": counts[node]}
    hosts = expanded(env, "SLURM_STEP_NODELIST|SLURM_JOB_NODELIST", expand_hosts)
    return {"hosts": hosts, **local}


def _slurm_job(env: Environ) -> str:
    step = joined(env, "SLURM_JOB_ID", "SLURM_STEP_ID")
    # Clusters may share homes, and so files and keys, and number their jobs alike.
    around = (env.get("SLURM_CLUSTER_NAME"), step, env.get("SLURM_RESTART_COUNT"))
    return "/".join(filter(None, around)) if step else ""


def _is_not_torchs(env: Environ) -> bool:
    if env.get("TORCHELASTIC_RUN_ID"):
        return True
    if "RANK" not in env:  # a batch script may set WORLD_SIZE and MASTER_ADDR for its tasks
        return number_in(env, "LOCAL_RANK") < 1 and number_in(env, "LOCAL_WORLD_SIZE") < 2
    # By itself, RANK may be the rank of a matrix.
    return not first_of(env, "WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT")


def _torch_job(env: Environ) -> str:
    where = joined(env, "MASTER_ADDR", "MASTER_PORT")
    run = env.get("TORCHELASTIC_RUN_ID")
    return f"{where}/{run}/{env.get('TORCHELASTIC_RESTART_COUNT', '0')}" if run else where


def _kubeflow(env: Environ) -> dict[str, Any]:
    nodes = env.get("PET_NNODES", "")
    if nodes and not nodes.isdigit():
        raise ValueError(
            f"PET_NNODES={nodes} is not a number of nodes. Start an elastic job with `hvdtune run` "
            "and --min-np"
        )
    return {}


def _sagemaker_job(env: Environ) -> str:
    try:
        whole = document(env, "SM_TRAINING_ENV")
    except ValueError:
        whole = None
    name = whole.get("job_name", "") if isinstance(whole, dict) else ""
    return env.get("TRAINING_JOB_NAME") or str(name)


def _azure(env: Environ) -> dict[str, Any]:
    one, two = env.get("NODE_RANK"), env.get("AZ_BATCHAI_TASK_INDEX")
    if env.get("AZUREML_NODE_COUNT") and one and two and one != two:
        raise ValueError(f"NODE_RANK is {one}, but AZ_BATCHAI_TASK_INDEX is {two}")
    master = env.get("AZ_BATCH_MASTER_NODE", "").partition(":")[0]
    first = master or first_of(env, "MASTER_ADDR|MASTER_IP")
    return {"hosts": (first,) if first else ()}


def _tensorflow_job(env: Environ) -> str:
    """Return the name of the job, else its cluster, which is the same for all tasks."""
    whole = document(env, "TF_CONFIG")["cluster"]
    return env.get("CLOUD_ML_JOB_ID") or json.dumps(whole, sort_keys=True)


# Where the variables are described:
# horovod     `horovod/runner/gloo_run.py` of Horovod.
# torchrun    https://docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables".
# openmpi     https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html; the namespace
#             is PMIx's.
# pmix        the PMIx standard, "Environmental variables" of a client; it names no size, so it
#             counts with Slurm's, whose plugin sets it (https://slurm.schedmd.com/mpi_guide.html).
# hydra       MPICH's `src/pm/hydra/proxy`; Intel MPI documents MPI_LOCALNRANKS, too.
# mvapich     as HOOMD-blue, DeepSpeed and others read them; not tried with mpirun_rsh.
# pmi         pals.h of HPE for Cray's, `src/plugins/mpi/pmi2` of Slurm for srun's.
# pals        pals.h of HPE, and https://docs.alcf.anl.gov for what scripts read.
# flux        https://flux-framework.readthedocs.io, flux-environment(7), "Job Environment".
# slurm       https://slurm.schedmd.com/srun.html, "OUTPUT ENVIRONMENT VARIABLES"; the numbers of
#             its own steps are in `slurm/slurm.h`.
# jsrun       IBM's "Job Step Manager"; as PyTorch Lightning's LSFEnvironment reads it.
# torch       https://docs.pytorch.org/docs/stable/distributed.html, "Environment variable
#             initialization"; PyTorchJob of Kubeflow and Azure ML set them, too.
# nodes       hvdtune's, for pbsdsh, blaunch and ssh, which set no place.
# kubeflow    `pkg/constants/constants.go` of kubeflow/trainer: the options of torchrun.
# sagemaker   ENVIRONMENT_VARIABLES.md of aws/sagemaker-training-toolkit.
# azureml     https://learn.microsoft.com/azure/batch/batch-compute-node-environment-variables.
# vertex      https://cloud.google.com/vertex-ai/docs/training/distributed-training.
# tensorflow  https://www.tensorflow.org/guide/distributed_training, "TF_CONFIG".
# fmt: off
DIALECTS: Final = (
    Dialect(
        "hvdtune", "`hvdtune run`", "HVDTUNE_RANK", "HVDTUNE_SIZE",
        "HVDTUNE_LOCAL_RANK", "HVDTUNE_LOCAL_SIZE", "HVDTUNE_CROSS_RANK", "HVDTUNE_CROSS_SIZE",
        host="HVDTUNE_HOST", needs=("HVDTUNE_RENDEZVOUS",),
        job=lambda env: env.get("HVDTUNE_RENDEZVOUS", ""),
        ignored=lambda env: not env.get("HVDTUNE_RENDEZVOUS"),
        remedy="`hvdtune run` sets it for its ranks; unset it elsewhere",
        hides=_SCHEDULERS | _MPI | {"horovod", "torchrun", "torch"},
    ),
    Dialect(
        "horovod", "horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
        host="HOROVOD_HOSTNAME",
        job=lambda env: joined(env, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
        forms_jobs=False,  # its rendezvous has another protocol
    ),
    Dialect(
        "torchrun", "torchrun", "RANK", "WORLD_SIZE",
        "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
        first_host="MASTER_ADDR", needs=("RANK", "WORLD_SIZE"), job=_torch_job,
        ignored=lambda env: not env.get("TORCHELASTIC_RUN_ID"),
        hides=_SCHEDULERS | _MPI,
    ),
    Dialect(
        "openmpi", "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
        job=lambda env: first_of(env, "PMIX_NAMESPACE|OMPI_MCA_ess_base_jobid"),
        hides=_SCHEDULERS - {"jsrun"} | {"hydra", "pmi"}, mpi="openmpi",
    ),
    Dialect(
        "pmix", "a launcher with PMIx", "PMIX_RANK",
        job=lambda env: env.get("PMIX_NAMESPACE", ""), mpi="",
    ),
    Dialect(
        "hydra", "Hydra's mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
        ignored=lambda env: not env.get("MPI_LOCALNRANKS"),
        hides=frozenset({"slurm"}), mpi="mpich",
    ),
    Dialect(
        "mvapich", "MVAPICH's mpirun_rsh", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE",
        hides=frozenset({"slurm"}), mpi="mpich",
    ),
    Dialect(
        "pmi", "a launcher with PMI", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE",
        job=lambda env: env.get("PMI_JOBID", ""),
        ignored=lambda env: bool(env.get("MPI_LOCALNRANKS")), mpi="mpich",
    ),
    Dialect(
        "pals", "PALS's mpiexec", "PALS_RANKID", "PMI_SIZE",
        "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS_NODEID",
        hosts_file="PBS_NODEFILE", job=lambda env: env.get("PALS_APID", ""),
    ),
    Dialect(
        "flux", "`flux run`", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID",
        cross_size="FLUX_JOB_NNODES", job=lambda env: env.get("FLUX_JOB_ID", ""),
        hides=frozenset({"slurm", "jsrun"}),
    ),
    Dialect(
        "slurm", "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS|SLURM_NTASKS", "SLURM_LOCALID",
        cross_rank="SLURM_NODEID", cross_size="SLURM_STEP_NUM_NODES|SLURM_JOB_NUM_NODES",
        host="SLURMD_NODENAME", needs=("SLURM_PROCID", "SLURM_STEP_ID"),
        job=_slurm_job, more=_slurm,
        ignored=lambda env: number_in(env, "SLURM_STEP_ID") >= _FIRST_OF_SLURMS_OWN_STEPS,
    ),
    Dialect(
        "jsrun", "jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE",
        job=lambda env: first_of(env, "PMIX_NAMESPACE|LSB_JOBID"),
    ),
    Dialect(
        "torch", "torch.distributed", "RANK", "WORLD_SIZE",
        "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK|NODE_RANK",
        first_host="MASTER_ADDR", needs=("RANK", "WORLD_SIZE", "MASTER_ADDR"), job=_torch_job,
        ignored=_is_not_torchs,
    ),
    Dialect(
        "nodes", "HVDTUNE_NODES", "HVDTUNE_NODE", "HVDTUNE_NODES",
        needs=("HVDTUNE_NODE", "HVDTUNE_NODES"), is_node=True,
        job=lambda env: first_of(env, "PBS_JOBID|LSB_JOBID|SLURM_JOB_ID"),
    ),
    Dialect(
        "kubeflow", "Kubeflow Trainer", "PET_NODE_RANK", "PET_NNODES", first_host="PET_MASTER_ADDR",
        needs=("PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR"), more=_kubeflow, is_node=True,
        job=lambda env: joined(env, "PET_MASTER_ADDR", "PET_MASTER_PORT"),
    ),
    Dialect(
        "sagemaker", "SageMaker", "SM_CURRENT_HOST|SM_RESOURCE_CONFIG",
        "SM_HOSTS|SM_RESOURCE_CONFIG", host="SM_CURRENT_HOST",
        needs=("SM_CURRENT_HOST|SM_RESOURCE_CONFIG",), job=_sagemaker_job, more=sagemaker,
        is_node=True,
    ),
    Dialect(
        "azureml", "Azure ML", "AZ_BATCHAI_TASK_INDEX|NODE_RANK", "AZUREML_NODE_COUNT",
        needs=("AZUREML_NODE_COUNT", "AZ_BATCHAI_TASK_INDEX|NODE_RANK"), more=_azure,
        job=lambda env: env.get("AZUREML_RUN_ID", ""), is_node=True,
    ),
    Dialect(
        "vertex", "Vertex AI", "CLUSTER_SPEC", "CLUSTER_SPEC",
        job=lambda env: env.get("CLOUD_ML_JOB_ID", ""), is_node=True,
        more=lambda env: cluster(env, "CLUSTER_SPEC", *_POOLS),
    ),
    Dialect(
        "tensorflow", "TensorFlow's cluster", "TF_CONFIG", "TF_CONFIG", job=_tensorflow_job,
        more=lambda env: cluster(env, "TF_CONFIG", *_TASKS), is_node=True,
    ),
)
# fmt: on
_ROWS: Final = {row.name: row for row in DIALECTS}


def recognise(env: Environ, *, forming: bool = False) -> LauncherPlace | None:
    """Return this process's place by its innermost launcher, None if no launcher started it.

    Numbers that this launcher does not set come from others that have to agree with it.

    Args:
        forming: leave out the dialects that do not form jobs.

    Raises:
        UsageError: launchers that cannot run inside each other set different numbers, a value is
            wrong, variables of several processes are set only in part, or HVDTUNE_STARTED_BY
            names a launcher that has set no variables.
    """
    chosen = env.get(STARTED_BY, "")
    # The variable is about the process that started a launcher of ours, not about its ranks.
    if chosen and not env.get("HVDTUNE_RENDEZVOUS"):
        return _chosen(env, chosen, forming=forming)
    found = [place for row in DIALECTS if (place := row.read(env)) is not None]
    if not found:
        if fault := next(filter(None, (row.fault(env) for row in DIALECTS)), ""):
            raise UsageError(f"{fault}. {REMEDY}")
        return None
    found[0] = replace(found[0], remark=_alone_among(found[0], found[1:]))
    found = [place for place in found if place.dialect not in _ROWS[found[0].dialect].hides]
    for other in found[1:]:
        _require_agreement(found[0], other)
    if forming:
        found = [place for place in found if _ROWS[place.dialect].forms_jobs]
    if not found:
        return None
    place = _completed(found)
    place.require_local_rank()
    return place


def mpi_flavour(place: LauncherPlace) -> str | None:
    """Return the flavour of MPI that the launcher's programs have, "" for any, None for none."""
    return _ROWS[place.dialect].mpi


def _alone_among(inner: LauncherPlace, others: list[LauncherPlace]) -> str:
    """Return a warning if a launcher has started one process in each of several tasks."""
    outer = next((place for place in others if (place.size or 1) > 1), None)
    if inner.size != 1 or outer is None or inner.dialect == "hvdtune":
        return ""
    return (
        f"{inner.size_by} reports 1 process, {outer.size_by} reports {outer.size}. Starting "
        f"{outer.size} separate jobs; set {STARTED_BY}={outer.dialect} to start one job of "
        f"{outer.size} ranks."
    )


def _chosen(env: Environ, name: str, *, forming: bool) -> LauncherPlace | None:
    if name == _ALONE:
        return None
    if name not in _ROWS:
        raise UsageError(f"{STARTED_BY}={name} is not one of {', '.join([*_ROWS, _ALONE])}")
    row = _ROWS[name]
    if forming and not row.forms_jobs:
        raise UsageError(
            f"{STARTED_BY}={name}, but hvdtune cannot form a job from the variables of "
            f"{row.title}. Start the ranks with `hvdtune run`"
        )
    place = row.read(env)
    if place is None:
        missing = [
            *row.missing(env),
            *([] if first_of(env, row.size) else [name_of(env, row.size)]),
        ]
        unset = listed([*filter(None, dict.fromkeys(missing))]) or "a place"
        fault = row.fault(env) or f"{row.title} has not set {unset}"
        raise UsageError(f"{STARTED_BY}={name}, but {fault}")
    return place


def _require_agreement(first: LauncherPlace, other: LauncherPlace) -> None:
    if first.is_node != other.is_node:
        return  # one counts processes, the other one hosts
    for what in ("rank", "size"):
        one, two = getattr(first, what), getattr(other, what)
        if None in (one, two) or one == two:
            continue
        by_one, by_two = getattr(first, f"{what}_by"), getattr(other, f"{what}_by")
        raise UsageError(
            f"{first.title} and {other.title} disagree: {by_one} is {one}, {by_two} is {two}. "
            f"Unset the variables of the launcher that did not start this process, or set "
            f"{STARTED_BY} to {first.dialect} or {other.dialect}"
        )


def _completed(found: list[LauncherPlace]) -> LauncherPlace:
    """Return the first place, with missing values from the others of its kind."""
    first = found[0]
    for other in found[1:]:
        if other.is_node == first.is_node:
            unset = [name for name, value in vars(first).items() if value in (None, "", ())]
            first = replace(first, **{name: getattr(other, name) for name in unset})
    return first
