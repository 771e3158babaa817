"""The launchers that may have started a process, innermost first, and what they tell it. Pure.

Some launchers start others: a torchrun on each host of an srun, an mpirun whose daemons srun has
started. Both sets of variables are then there, with different numbers, and the inner launcher is
the one that has started the process. So a row names in `hides` the launchers that it may run
inside; their numbers do not count. Two launchers that cannot run inside each other have to agree.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from hvdtune.core.config.dialect import (
    REMEDY,
    Dialect,
    Environ,
    ToldPlace,
    counts_in,
    first_of,
    hosts_in,
    joined,
    whole_of,
)
from hvdtune.core.config.documents import (
    cluster,
    cluster_fault,
    document,
    sagemaker,
    sagemaker_fault,
)
from hvdtune.errors import UsageError

STARTED_BY: Final = "HVDTUNE_STARTED_BY"
_ALONE: Final = "none"
# Slurm's own steps, which no srun has started: the script of sbatch (0xfffffffb), the shell of
# salloc (0xfffffffa) and what the site runs beside a job (0xfffffffc).
_FIRST_OF_SLURMS_OWN_STEPS: Final = 0xFFFFFFF0
_OF_TORCH: Final = (
    "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
)  # fmt: skip
_SCHEDULERS: Final = frozenset({"pals", "flux", "slurm", "jsrun"})
_MPI: Final = frozenset({"openmpi", "pmix", "hydra", "mvapich", "pmi"})
# Of Vertex AI and of TF_CONFIG: the tasks that train together, and those that take no part.
_POOLS: Final = (("workerpool0", "workerpool1"), ("workerpool2", "workerpool3"))
_TASKS: Final = (("chief", "master", "worker"), ("ps", "evaluator"))


def _has_srun_task(env: Environ) -> bool:
    step = env.get("SLURM_STEP_ID", "")
    is_of_srun = step.isdigit() and int(step) < _FIRST_OF_SLURMS_OWN_STEPS
    return is_of_srun and bool(env.get("SLURM_PROCID"))


def _slurm_fault(env: Environ) -> str:
    step = env.get("SLURM_STEP_ID", "")
    if step.isdigit() and int(step) >= _FIRST_OF_SLURMS_OWN_STEPS:
        return ""
    lone = _unsaid(env, "SLURM_STEP_NUM_TASKS", ("SLURM_PROCID",), ("SLURM_STEP_ID",))
    # A batch script is task 0 of its own.
    return lone or _not_first(env, "SLURM_PROCID", ("SLURM_STEP_ID",))


def _slurm_place(env: Environ) -> dict[str, int]:
    node = whole_of(env, ("SLURM_NODEID",))
    counts = counts_in(env, ("SLURM_STEP_TASKS_PER_NODE",))
    return {} if node is None or node >= len(counts) else {"local_size": counts[node]}


def _slurm_hosts(env: Environ) -> tuple[str, ...]:
    return hosts_in(env, ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))


def _slurm_job(env: Environ) -> str:
    step = joined(env, "SLURM_JOB_ID", "SLURM_STEP_ID")
    if not step:
        return ""
    # Clusters may share homes, and so files and keys, and number their jobs alike.
    around = (env.get("SLURM_CLUSTER_NAME"), step, env.get("SLURM_RESTART_COUNT"))
    return "/".join(filter(None, around))


def _has_hydra(env: Environ) -> bool:
    return bool(joined(env, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"))


def _has_elastic_torch(env: Environ) -> bool:
    return all(env.get(name) for name in ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE"))


def _has_torch_by_hand(env: Environ) -> bool:
    is_complete = all(env.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))
    return is_complete and not env.get("TORCHELASTIC_RUN_ID")


def _torch_fault(env: Environ) -> str:
    if "RANK" not in env:
        # A batch script's, which prepares what its tasks will find, but for a local rank.
        return _lone_local(env, "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    if fault := _unsaid(env, "WORLD_SIZE", ("RANK",), ("MASTER_ADDR",)):
        return fault
    # By itself the name may mean anything, as the rank of a matrix.
    is_of_torch = first_of(env, _OF_TORCH)
    return _not_first(env, "RANK", ("WORLD_SIZE",), ("MASTER_ADDR",)) if is_of_torch else ""


def _torch_job(env: Environ) -> str:
    where = joined(env, "MASTER_ADDR", "MASTER_PORT")
    run = env.get("TORCHELASTIC_RUN_ID")
    return f"{where}/{run}/{env.get('TORCHELASTIC_RESTART_COUNT', '0')}" if run else where


def _has_sagemaker(env: Environ) -> bool:
    current, hosts = sagemaker(env)
    return current in hosts and len({*hosts}) == len(hosts)


def _sagemaker_place(env: Environ) -> dict[str, int]:
    current, hosts = sagemaker(env)
    return {"rank": hosts.index(current), "size": len(hosts)}


def _sagemaker_job(env: Environ) -> str:
    whole = document(env, "SM_TRAINING_ENV")
    name = whole.get("job_name", "") if isinstance(whole, dict) else ""
    return env.get("TRAINING_JOB_NAME") or str(name)


def _vertex(env: Environ) -> tuple[int, tuple[str, ...]] | None:
    return cluster(env, "CLUSTER_SPEC", *_POOLS)


def _tensorflow(env: Environ) -> tuple[int, tuple[str, ...]] | None:
    return cluster(env, "TF_CONFIG", *_TASKS)


def _tensorflow_job(env: Environ) -> str:
    """The name of the job, else its cluster, which all its tasks are told alike."""
    whole = document(env, "TF_CONFIG")["cluster"]
    return env.get("CLOUD_ML_JOB_ID") or json.dumps(whole, sort_keys=True)


def _number_and_size(found: tuple[int, tuple[str, ...]] | None) -> dict[str, int]:
    return {} if found is None else {"rank": found[0], "size": len(found[1])}


def _hosts_of(found: tuple[int, tuple[str, ...]] | None) -> tuple[str, ...]:
    return () if found is None else found[1]


def _unsaid(env: Environ, size: str, *needed: tuple[str, ...]) -> str:
    """What is missing where a variable says that there are several, "" for nothing.

    Args:
        needed: of each of these one variable is to be set.
    """
    most = env.get(size, "")
    return _missing(env, size, needed) if most.isdigit() and int(most) > 1 else ""


def _not_first(env: Environ, rank: str, *needed: tuple[str, ...]) -> str:
    """What is missing where a variable says that this is not the first of several."""
    number = env.get(rank, "")
    return _missing(env, rank, needed) if number.isdigit() and int(number) > 0 else ""


def _lone_local(env: Environ, rank: str, local_rank: str, local_size: str) -> str:
    """What is missing where a variable says that this host has several, "" for nothing."""
    return _unsaid(env, local_size, (rank,)) or _not_first(env, local_rank, (rank,))


def _missing(env: Environ, name: str, needed: tuple[tuple[str, ...], ...]) -> str:
    missing = [" or ".join(names) for names in needed if not first_of(env, names)]
    if not missing:
        return ""
    verb = "is" if len(missing) == 1 else "are"
    return f"{name} says {env[name]}, but {' and '.join(missing)} {verb} not set"


def _nodes_fault(env: Environ) -> str:
    if env.get("HVDTUNE_NODE") and not env.get("HVDTUNE_NODES"):
        return f"HVDTUNE_NODE says {env['HVDTUNE_NODE']}, but HVDTUNE_NODES is not set"
    return _unsaid(env, "HVDTUNE_NODES", ("HVDTUNE_NODE",))


def _has_kubeflow(env: Environ) -> bool:
    told = joined(env, "PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR")
    return bool(told) and env["PET_NNODES"].isdigit()


def _kubeflow_fault(env: Environ) -> str:
    nodes = env.get("PET_NNODES", "")
    if ":" in nodes:
        return (
            f"PET_NNODES={nodes} is torchrun's form for an elastic job, which hvdtune forms by one "
            "`hvdtune run` with --min-np and --max-np; here it has to be one number"
        )
    if nodes and not nodes.isdigit():
        return f"PET_NNODES={nodes} is not a number of nodes"
    several = _unsaid(env, "PET_NNODES", ("PET_NODE_RANK",), ("PET_MASTER_ADDR",))
    return several or _not_first(env, "PET_NODE_RANK", ("PET_NNODES",), ("PET_MASTER_ADDR",))


def _azure_ranks(env: Environ) -> set[str]:
    return {env[name] for name in ("NODE_RANK", "AZ_BATCHAI_TASK_INDEX") if env.get(name)}


def _azure_fault(env: Environ) -> str:
    if env.get("AZUREML_NODE_COUNT") and len(_azure_ranks(env)) > 1:
        return (
            f"NODE_RANK says {env['NODE_RANK']}, but AZ_BATCHAI_TASK_INDEX "
            f"{env['AZ_BATCHAI_TASK_INDEX']}"
        )
    several = _unsaid(env, "AZUREML_NODE_COUNT", ("NODE_RANK", "AZ_BATCHAI_TASK_INDEX"))
    return several or _not_first(env, "AZ_BATCHAI_TASK_INDEX", ("AZUREML_NODE_COUNT",))


def _azure_hosts(env: Environ) -> tuple[str, ...]:
    master = env.get("AZ_BATCH_MASTER_NODE", "").partition(":")[0]
    first = master or first_of(env, ("MASTER_ADDR", "MASTER_IP"))
    return (first,) if first else ()


def _one(env: Environ, name: str) -> tuple[str, ...]:
    return (env[name],) if env.get(name) else ()


# Where the variables are described:
# horovod     `horovod/runner/gloo_run.py` of Horovod.
# torchrun    https://docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables".
# openmpi     https://docs.open-mpi.org/en/v5.0.x/tuning-apps/environment-var.html; the namespace
#             is PMIx's.
# pmix        the PMIx standard, "Environmental variables" of a client; it names no size, so it
#             counts with Slurm's, whose plugin sets it (https://slurm.schedmd.com/mpi_guide.html).
# hydra       MPICH's `src/pm/hydra/proxy`; Intel MPI documents MPI_LOCALNRANKS, too.
# mvapich     as HOOMD-blue, DeepSpeed and others read them; mpirun_rsh itself was not at hand.
# pmi         pals.h of HPE for Cray's, `src/plugins/mpi/pmi2` of Slurm for srun's.
# pals        pals.h of HPE, and https://docs.alcf.anl.gov for what scripts read.
# flux        https://flux-framework.readthedocs.io, flux-environment(7), "Job Environment".
# slurm       https://slurm.schedmd.com/srun.html, "OUTPUT ENVIRONMENT VARIABLES"; the numbers of
#             its own steps are in `slurm/slurm.h`.
# jsrun       IBM's "Job Step Manager"; as PyTorch Lightning's LSFEnvironment reads it.
# torch       https://docs.pytorch.org/docs/stable/distributed.html, "Environment variable
#             initialization"; PyTorchJob of Kubeflow and Azure ML set them, too.
# nodes       ours, for what starts programs without telling them a place: pbsdsh, blaunch, ssh.
# kubeflow    `pkg/constants/constants.go` of kubeflow/trainer: the options of torchrun.
# sagemaker   ENVIRONMENT_VARIABLES.md of aws/sagemaker-training-toolkit.
# azureml     https://learn.microsoft.com/azure/batch/batch-compute-node-environment-variables.
# vertex      https://cloud.google.com/vertex-ai/docs/training/distributed-training.
# tensorflow  https://www.tensorflow.org/guide/distributed_training, "TF_CONFIG".
DIALECTS: Final = (
    Dialect(
        "hvdtune",
        "`hvdtune run`",
        rank=("HVDTUNE_RANK",),
        size=("HVDTUNE_SIZE",),
        local_rank=("HVDTUNE_LOCAL_RANK",),
        local_size=("HVDTUNE_LOCAL_SIZE",),
        cross_rank=("HVDTUNE_CROSS_RANK",),
        cross_size=("HVDTUNE_CROSS_SIZE",),
        host=("HVDTUNE_HOST",),
        job=lambda env: env.get("HVDTUNE_RENDEZVOUS", ""),
        present=lambda env: bool(env.get("HVDTUNE_RENDEZVOUS")),
        remedy="`hvdtune run` sets it for its ranks; unset it elsewhere",
        hides=_SCHEDULERS | _MPI | {"horovod", "torchrun", "torch"},
    ),
    Dialect(
        "horovod",
        "horovodrun",
        rank=("HOROVOD_RANK",),
        size=("HOROVOD_SIZE",),
        local_rank=("HOROVOD_LOCAL_RANK",),
        local_size=("HOROVOD_LOCAL_SIZE",),
        cross_rank=("HOROVOD_CROSS_RANK",),
        cross_size=("HOROVOD_CROSS_SIZE",),
        host=("HOROVOD_HOSTNAME",),
        job=lambda env: joined(env, "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"),
        forms_jobs=False,  # its rendezvous speaks another protocol
    ),
    Dialect(
        "torchrun",
        "torchrun",
        rank=("RANK",),
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
        cross_rank=("GROUP_RANK",),
        cross_size=("GROUP_WORLD_SIZE",),
        hosts=lambda env: _one(env, "MASTER_ADDR"),
        job=_torch_job,
        present=_has_elastic_torch,
        hides=_SCHEDULERS | _MPI,
    ),
    Dialect(
        "openmpi",
        "Open MPI's mpirun",
        rank=("OMPI_COMM_WORLD_RANK",),
        size=("OMPI_COMM_WORLD_SIZE",),
        local_rank=("OMPI_COMM_WORLD_LOCAL_RANK",),
        local_size=("OMPI_COMM_WORLD_LOCAL_SIZE",),
        job=lambda env: first_of(env, ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
        hides=_SCHEDULERS - {"jsrun"} | {"hydra", "pmi"},
        mpi="openmpi",
    ),
    Dialect(
        "pmix",
        "a launcher that speaks PMIx",
        rank=("PMIX_RANK",),
        size=(),
        job=lambda env: env.get("PMIX_NAMESPACE", ""),
        mpi="",
    ),
    Dialect(
        "hydra",
        "Hydra's mpiexec",
        rank=("PMI_RANK",),
        size=("PMI_SIZE",),
        local_rank=("MPI_LOCALRANKID",),
        local_size=("MPI_LOCALNRANKS",),
        present=_has_hydra,
        hides=frozenset({"slurm"}),
        mpi="mpich",
    ),
    Dialect(
        "mvapich",
        "MVAPICH's mpirun_rsh",
        rank=("MV2_COMM_WORLD_RANK",),
        size=("MV2_COMM_WORLD_SIZE",),
        local_rank=("MV2_COMM_WORLD_LOCAL_RANK",),
        local_size=("MV2_COMM_WORLD_LOCAL_SIZE",),
        hides=frozenset({"slurm"}),
        mpi="mpich",
    ),
    Dialect(
        "pmi",
        "a launcher that speaks PMI",
        rank=("PMI_RANK",),
        size=("PMI_SIZE",),
        local_rank=("PMI_LOCAL_RANK",),
        local_size=("PMI_LOCAL_SIZE",),
        job=lambda env: env.get("PMI_JOBID", ""),
        present=lambda env: not _has_hydra(env) and bool(env.get("PMI_RANK", env.get("PMI_SIZE"))),
        mpi="mpich",
    ),
    Dialect(
        "pals",
        "PALS's mpiexec",
        rank=("PALS_RANKID",),
        size=("PMI_SIZE",),
        local_rank=("PALS_LOCAL_RANKID",),
        local_size=("PALS_LOCAL_SIZE",),
        cross_rank=("PALS_NODEID",),
        hosts_file=("PBS_NODEFILE",),
        job=lambda env: env.get("PALS_APID", ""),
        present=lambda env: bool(env.get("PALS_RANKID")),
    ),
    Dialect(
        "flux",
        "`flux run`",
        rank=("FLUX_TASK_RANK",),
        size=("FLUX_JOB_SIZE",),
        local_rank=("FLUX_TASK_LOCAL_ID",),
        cross_size=("FLUX_JOB_NNODES",),
        job=lambda env: env.get("FLUX_JOB_ID", ""),
        present=lambda env: bool(env.get("FLUX_TASK_RANK")),
        fault=lambda env: _unsaid(env, "FLUX_JOB_SIZE", ("FLUX_TASK_RANK",)),
        hides=frozenset({"slurm", "jsrun"}),
    ),
    Dialect(
        "slurm",
        "srun",
        rank=("SLURM_PROCID",),
        size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        local_rank=("SLURM_LOCALID",),
        cross_rank=("SLURM_NODEID",),
        cross_size=("SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES"),
        host=("SLURMD_NODENAME",),
        hosts=_slurm_hosts,
        job=_slurm_job,
        place=_slurm_place,
        present=_has_srun_task,
        fault=_slurm_fault,
    ),
    Dialect(
        "jsrun",
        "jsrun",
        rank=("JSM_NAMESPACE_RANK",),
        size=("JSM_NAMESPACE_SIZE",),
        local_rank=("JSM_NAMESPACE_LOCAL_RANK",),
        local_size=("JSM_NAMESPACE_LOCAL_SIZE",),
        job=lambda env: first_of(env, ("PMIX_NAMESPACE", "LSB_JOBID")),
    ),
    Dialect(
        "torch",
        "whoever has set the variables of torch.distributed",
        rank=("RANK",),
        size=("WORLD_SIZE",),
        local_rank=("LOCAL_RANK",),
        local_size=("LOCAL_WORLD_SIZE",),
        cross_rank=("GROUP_RANK", "NODE_RANK"),
        hosts=lambda env: _one(env, "MASTER_ADDR"),
        job=_torch_job,
        present=_has_torch_by_hand,
        fault=_torch_fault,
    ),
    Dialect(
        "nodes",
        "whoever has set HVDTUNE_NODES",
        rank=("HVDTUNE_NODE",),
        size=("HVDTUNE_NODES",),
        job=lambda env: first_of(env, ("PBS_JOBID", "LSB_JOBID", "SLURM_JOB_ID")),
        present=lambda env: bool(joined(env, "HVDTUNE_NODE", "HVDTUNE_NODES")),
        fault=_nodes_fault,
        is_node=True,
    ),
    Dialect(
        "kubeflow",
        "Kubeflow Trainer",
        rank=("PET_NODE_RANK",),
        size=("PET_NNODES",),
        hosts=lambda env: _one(env, "PET_MASTER_ADDR"),
        job=lambda env: joined(env, "PET_MASTER_ADDR", "PET_MASTER_PORT"),
        present=_has_kubeflow,
        fault=_kubeflow_fault,
        is_node=True,
    ),
    Dialect(
        "sagemaker",
        "SageMaker",
        rank=("SM_CURRENT_HOST", "SM_RESOURCE_CONFIG"),
        size=("SM_HOSTS", "SM_RESOURCE_CONFIG"),
        host=("SM_CURRENT_HOST",),
        hosts=lambda env: sagemaker(env)[1],
        job=_sagemaker_job,
        place=_sagemaker_place,
        present=_has_sagemaker,
        fault=sagemaker_fault,
        is_node=True,
    ),
    Dialect(
        "azureml",
        "Azure ML",
        rank=("NODE_RANK", "AZ_BATCHAI_TASK_INDEX"),
        size=("AZUREML_NODE_COUNT",),
        hosts=_azure_hosts,
        job=lambda env: env.get("AZUREML_RUN_ID", ""),
        present=lambda env: bool(env.get("AZUREML_NODE_COUNT")) and len(_azure_ranks(env)) == 1,
        fault=_azure_fault,
        is_node=True,
    ),
    Dialect(
        "vertex",
        "Vertex AI",
        rank=("CLUSTER_SPEC",),
        size=("CLUSTER_SPEC",),
        hosts=lambda env: _hosts_of(_vertex(env)),
        job=lambda env: env.get("CLOUD_ML_JOB_ID", ""),
        place=lambda env: _number_and_size(_vertex(env)),
        present=lambda env: _vertex(env) is not None,
        fault=lambda env: cluster_fault(env, "CLUSTER_SPEC", *_POOLS),
        is_node=True,
    ),
    Dialect(
        "tensorflow",
        "TensorFlow's cluster",
        rank=("TF_CONFIG",),
        size=("TF_CONFIG",),
        hosts=lambda env: _hosts_of(_tensorflow(env)),
        job=_tensorflow_job,
        place=lambda env: _number_and_size(_tensorflow(env)),
        present=lambda env: _tensorflow(env) is not None,
        fault=lambda env: cluster_fault(env, "TF_CONFIG", *_TASKS),
        is_node=True,
    ),
)
_ROWS: Final = {dialect.name: dialect for dialect in DIALECTS}


def recognise(env: Environ, *, forming: bool = False) -> ToldPlace | None:
    """This process's place as its innermost launcher tells it, None where there is no launcher.

    What that one leaves out is taken from others that have to agree with it.

    Args:
        forming: leave out the dialects that do not form jobs.

    Raises:
        UsageError: two launchers that cannot run inside each other tell different numbers, a
            value cannot be, no launcher tells a place although one says that there are several, or
            HVDTUNE_STARTED_BY names a launcher that has set no variables.
    """
    chosen = env.get(STARTED_BY, "")
    # Said of whoever has started a launcher of ours, it is not said of the launcher's ranks.
    if chosen and not env.get("HVDTUNE_RENDEZVOUS"):
        return _chosen(env, chosen, forming=forming)
    found = [told for row in DIALECTS if (told := row.read(env)) is not None]
    if not found:
        if fault := next(filter(None, (_fault(row, env) for row in DIALECTS)), ""):
            raise UsageError(f"{fault}: {REMEDY}")
        return None
    found[0] = replace(found[0], remark=_alone_among(found[0], found[1:]))
    found = [told for told in found if told.dialect not in _ROWS[found[0].dialect].hides]
    for other in found[1:]:
        _require_agreement(found[0], other)
    if forming:
        found = [told for told in found if _ROWS[told.dialect].forms_jobs]
    if not found:
        return None
    told = _completed(found)
    told.require_local_rank()
    return told


def _fault(row: Dialect, env: Environ) -> str:
    """What is wrong with the variables of a launcher that tells no place, "" for nothing."""
    if fault := row.fault(env):
        return fault
    # hvdtune's own are its launcher's; torch's names may be anything's, and have a fault above.
    if not row.local_rank or row.name in ("hvdtune", "torchrun", "torch"):
        return ""
    return _lone_local(env, row.rank[0], row.local_rank[0], next(iter(row.local_size), ""))


def _alone_among(inner: ToldPlace, others: list[ToldPlace]) -> str:
    """A sentence where a launcher has started one process in each of several tasks or hosts."""
    outer = next((told for told in others if (told.size or 1) > 1), None)
    if inner.size != 1 or outer is None or inner.dialect == "hvdtune":
        return ""
    return (
        f"{inner.title} says that this process is alone, by {inner.told_by}, and "
        f"{outer.title} that there are {outer.size}, by {outer.told_by}: each of them is a job of "
        f"its own; {STARTED_BY}={outer.dialect} makes them one"
    )


def mpi_flavour(told: ToldPlace) -> str | None:
    """The flavour of MPI that the launcher's programs have, "" for any, None for none."""
    return _ROWS[told.dialect].mpi


def _chosen(env: Environ, name: str, *, forming: bool) -> ToldPlace | None:
    if name == _ALONE:
        return None
    if name not in _ROWS:
        raise UsageError(f"{STARTED_BY}={name} is none of {', '.join([*_ROWS, _ALONE])}")
    row = _ROWS[name]
    if forming and not row.forms_jobs:
        raise UsageError(
            f"{STARTED_BY}={name}, but hvdtune's ranks do not find each other by what {row.title} "
            "sets: start them with `hvdtune run`"
        )
    told = row.read(env)
    if told is None:
        unset = [name for name in (*row.rank[:1], *row.size[:1]) if not env.get(name)]
        missing = " and ".join(dict.fromkeys(unset)) or "all that names a place"
        why = row.fault(env) or f"{row.title} has not set {missing}"
        raise UsageError(f"{STARTED_BY}={name}, but {why}")
    return told


def _require_agreement(first: ToldPlace, other: ToldPlace) -> None:
    if first.is_node != other.is_node:
        return  # one counts processes, the other one hosts
    for what in ("rank", "size"):
        one, two = getattr(first, what), getattr(other, what)
        if None in (one, two) or one == two:
            continue
        by_one, by_two = getattr(first, f"{what}_by"), getattr(other, f"{what}_by")
        raise UsageError(
            f"{first.title} and {other.title} disagree: {by_one} says {what} {one}, {by_two} says "
            f"{what} {two}; unset the variables of the one that did not start this process, or "
            f"set {STARTED_BY} to {first.dialect} or {other.dialect}"
        )


def _completed(found: list[ToldPlace]) -> ToldPlace:
    """The first, with what it leaves out from the others of its kind."""
    first = found[0]
    for other in found[1:]:
        if other.is_node == first.is_node:
            nothing = (None, "", ())
            told = {name: value for name, value in vars(other).items() if value not in nothing}
            left_out = [name for name, value in vars(first).items() if value in nothing]
            first = replace(first, **{name: told[name] for name in left_out if name in told})
    return first
