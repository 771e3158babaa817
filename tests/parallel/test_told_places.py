"""Three hosts whose processes meet by what each launcher tells them, over a network."""

import json

import pytest

from hvdtune.core.config.dialects import DIALECTS
from tests.parallel import netns
from tests.parallel.told_processes import KEY, check, said_by, said_in

pytestmark = [
    pytest.mark.slow,  # makes network namespaces
    pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not() or ""),
]
_HOSTS = 3
_EACH = 2  # ranks of a host, where a launcher starts one process for each rank
_ALL = _HOSTS * _EACH


@pytest.fixture(scope="module")
def net():
    with netns.network(_HOSTS) as made:
        yield made


def of_openmpi(node, local, hosts):
    return {
        "OMPI_COMM_WORLD_RANK": node * _EACH + local,
        "OMPI_COMM_WORLD_SIZE": _ALL,
        "OMPI_COMM_WORLD_LOCAL_RANK": local,
        "OMPI_COMM_WORLD_LOCAL_SIZE": _EACH,
        "PMIX_NAMESPACE": "prterun-a-77@1",
    }


def of_hydra(node, local, hosts):
    return {
        "PMI_RANK": node * _EACH + local,
        "PMI_SIZE": _ALL,
        "MPI_LOCALRANKID": local,
        "MPI_LOCALNRANKS": _EACH,
        "HVDTUNE_JOB_ID": "mine",  # there is no mpiexec here whose port could name the job
    }


def of_mvapich(node, local, hosts):
    return {
        "MV2_COMM_WORLD_RANK": node * _EACH + local,
        "MV2_COMM_WORLD_SIZE": _ALL,
        "MV2_COMM_WORLD_LOCAL_RANK": local,
        "MV2_COMM_WORLD_LOCAL_SIZE": _EACH,
        "HVDTUNE_JOB_ID": "mine",
    }


def of_pals(node, local, hosts):
    return {
        "PALS_RANKID": node * _EACH + local,
        "PALS_LOCAL_RANKID": local,
        "PALS_LOCAL_SIZE": _EACH,
        "PALS_NODEID": node,
        "PALS_APID": "3a9f",
        "PMI_SIZE": _ALL,
        "PMI_RANK": node * _EACH + local,
        "PMI_LOCAL_RANK": local,
        "PMI_LOCAL_SIZE": _EACH,
    }


def of_flux(node, local, hosts):
    return {
        "FLUX_TASK_RANK": node * _EACH + local,
        "FLUX_JOB_SIZE": _ALL,
        "FLUX_TASK_LOCAL_ID": local,
        "FLUX_JOB_NNODES": _HOSTS,
        "FLUX_JOB_ID": "123",
    }


def of_slurm(node, local, hosts):
    return {
        "SLURM_JOB_ID": 42,
        "SLURM_STEP_ID": 0,
        "SLURM_PROCID": node * _EACH + local,
        "SLURM_STEP_NUM_TASKS": _ALL,
        "SLURM_LOCALID": local,
        "SLURM_NODEID": node,
        "SLURM_STEP_TASKS_PER_NODE": f"{_EACH}(x{_HOSTS})",
        "SLURM_STEP_NODELIST": ",".join(hosts),
        "SLURMD_NODENAME": f"host-{node}",
    }


def of_pmix(node, local, hosts):
    told = {"PMIX_RANK": node * _EACH + local, "PMIX_NAMESPACE": "slurm.pmix.42.0"}
    return of_slurm(node, local, hosts) | told


def of_jsrun(node, local, hosts):
    return {
        "JSM_NAMESPACE_RANK": node * _EACH + local,
        "JSM_NAMESPACE_SIZE": _ALL,
        "JSM_NAMESPACE_LOCAL_RANK": local,
        "JSM_NAMESPACE_LOCAL_SIZE": _EACH,
        "LSB_JOBID": 9,
        "HVDTUNE_RENDEZVOUS_HOST": hosts[0],  # jsrun names no hosts; read with a key only
    }


def of_torch(node, local, hosts):
    return {
        "RANK": node * _EACH + local,
        "WORLD_SIZE": _ALL,
        "LOCAL_RANK": local,
        "LOCAL_WORLD_SIZE": _EACH,
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": 29500,
    }


def of_torchrun(node, local, hosts):
    return of_torch(node, local, hosts) | {"TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": node}


def by_hand(node, hosts):
    return {
        "HVDTUNE_NODE": node,
        "HVDTUNE_NODES": _HOSTS,
        "LSB_JOBID": 9,
        "HVDTUNE_RENDEZVOUS_HOST": hosts[0],
    }


def of_kubeflow(node, hosts):
    return {
        "PET_NNODES": _HOSTS,
        "PET_NODE_RANK": node,
        "PET_NPROC_PER_NODE": 1,
        "PET_MASTER_ADDR": hosts[0],
        "PET_MASTER_PORT": 29400,
    }


def of_sagemaker(node, hosts):
    return {
        "SM_HOSTS": json.dumps(hosts),
        "SM_CURRENT_HOST": hosts[node],
        "TRAINING_JOB_NAME": "mine",
    }


def of_azureml(node, hosts):
    return {
        "AZUREML_NODE_COUNT": _HOSTS,
        "AZ_BATCHAI_TASK_INDEX": node,
        "AZ_BATCH_MASTER_NODE": f"{hosts[0]}:6000",
        "AZUREML_RUN_ID": "mine",
    }


def of_vertex(node, hosts):
    first, *others = (f"{host}:2222" for host in hosts)
    task = {"type": f"workerpool{min(node, 1)}", "index": max(node - 1, 0)}
    cluster = {"workerpool0": [first], "workerpool1": others}
    return {
        "CLUSTER_SPEC": json.dumps({"cluster": cluster, "task": task}),
        "CLOUD_ML_JOB_ID": 7,
    }


def of_tensorflow(node, hosts):
    cluster = {"worker": [f"{host}:2222" for host in hosts]}
    task = {"type": "worker", "index": node}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


_BY_TASK = (
    of_openmpi, of_hydra, of_mvapich, of_pals, of_flux, of_slurm, of_pmix, of_jsrun, of_torch,
    of_torchrun,
)  # fmt: skip
_BY_NODE = (by_hand, of_kubeflow, of_sagemaker, of_azureml, of_vertex, of_tensorflow)


@pytest.mark.parametrize("way", ["file", "port"])
@pytest.mark.parametrize("told", [*_BY_TASK, *_BY_NODE], ids=lambda told: told.__name__)
def test_ranks_of_three_hosts_meet(net, processes, told, way):
    hosts = [host.address for host in net.hosts]
    each = _EACH if told in _BY_TASK else 1
    if way == "port":
        processes.environ |= {"HVDTUNE_KEY": KEY}
    started = []
    for node, host in enumerate(net.hosts):
        for local in range(each):
            variables = told(node, local, hosts) if told in _BY_TASK else told(node, hosts)
            texts = {name: str(value) for name, value in variables.items()}
            where = ["nsenter", "-t", str(host.pid), "--net", "--uts"]
            started.append(processes.start(texts, within=where))
    check([said_by(process) for process in started], [each] * _HOSTS)


def test_every_dialect_that_forms_jobs_has_a_case():
    kinds = {told.__name__.partition("_")[2] for told in (*_BY_TASK, *_BY_NODE)}
    # pmi is what PALS tells of itself; by hand it is nodes.
    assert kinds - {"hand"} | {"pmi", "nodes", "hvdtune", "horovod"} == {
        dialect.name for dialect in DIALECTS
    }


@pytest.mark.parametrize("way", ["file", "port"])
def test_a_real_torchrun_on_each_of_three_hosts(net, processes, train, way):
    if way == "port":
        processes.environ |= {"HVDTUNE_KEY": KEY}
    master = ["--master-addr", net.hosts[0].address, "--master-port", "29400"]
    command = ["-m", "torch.distributed.run", "--nnodes", str(_HOSTS), *master]
    started = [
        processes.start(
            {},
            command=[*command, "--node-rank", str(node), "--nproc-per-node", str(_EACH), train],
            within=["nsenter", "-t", str(host.pid), "--net", "--uts"],
        )
        for node, host in enumerate(net.hosts)
    ]
    said = []
    for process in started:
        out, error = process.communicate(timeout=200)
        assert process.returncode == 0, error
        said += said_in(out)
    check(sorted(said), [_EACH] * _HOSTS)
