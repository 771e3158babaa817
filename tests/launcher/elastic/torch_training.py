"""A training of PyTorch with dropout, shuffled data and momentum, for Horovod's elastic runs.

    torch_training.py [readers] [WORKER:STEP:FAULT ...]

Worker WORKER, or `any`, has its FAULT before step STEP of the training: kill, or change, which
makes the file `changed-STEP` and waits until the launcher tells of another membership. With
`readers` two processes of each rank read ahead for it; when the training begins in another
generation it prints how many it still has, and how many worker 1 has left. At the end every rank
prints the sizes under which it has trained, and its weights.
"""

import os
import signal
import sys
import time
from pathlib import Path

import horovod.torch as hvd
import psutil
import torch

worker = os.environ["HVDTUNE_WORKER"]
told = [word.split(":") for word in sys.argv[1:] if ":" in word]
has_readers = "readers" in sys.argv
faults = {
    int(step): fault
    for who, step, fault in told
    if who in (worker, "any") and not Path(f"changed-{step}").exists()
}


def begin_step(state):
    fault = faults.pop(len(state.sizes), "")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "change":
        Path(f"changed-{len(state.sizes)}").touch()
        while True:  # until it raises HostsUpdatedInterrupt
            state.check_host_updates()
            time.sleep(0.01)


def is_of_worker_1(process):
    """In this job."""
    try:
        is_here = os.getpgid(process.pid) == os.getpgid(0)
        return is_here and process.environ().get("HVDTUNE_WORKER") == "1"
    except (psutil.Error, ProcessLookupError):
        return False


hvd.init()
# The other ranks wait from here on, for what the first optimizer would import, too.
assert {"torch._dynamo", "hvdtune.torch.elastic"} <= sys.modules.keys()
torch.manual_seed(11)
data = torch.utils.data.TensorDataset(torch.randn(48, 4), torch.randn(48, 1))
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(data)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, sizes=[])


@hvd.elastic.run
def train(state):
    if has_readers and state.sizes:
        left = [process for process in psutil.process_iter() if is_of_worker_1(process)]
        own = psutil.Process().children()
        print(f"{len(own)} readers are left here, {len(left)} of worker 1")
    while state.epoch < 2:
        loader = torch.utils.data.DataLoader(
            data,
            batch_size=2,
            sampler=sampler,
            num_workers=2 * has_readers,
            persistent_workers=has_readers,
        )
        for number, (x, y) in enumerate(loader):
            begin_step(state)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            sampler.record_batch(number, len(x))
            state.sizes.append(hvd.size())
            state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


train(state)
weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().tobytes().hex()
print(f"ended with {hvd.size()}: sizes {','.join(map(str, state.sizes))}; weights {weights}")
