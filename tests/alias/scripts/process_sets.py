"""Even and odd ranks, each with a model of their own."""

import horovod.torch as hvd
import torch
from horovod.common.process_sets import add_process_set, remove_process_set
from horovod.runner.common.util.env import get_env_rank_and_size

rank, size = get_env_rank_and_size()
even = hvd.ProcessSet(range(0, size, 2))
odd = hvd.ProcessSet(range(1, size, 2))
hvd.init(process_sets=[even, odd])
torch.set_num_threads(1)
ours = even if even.included() else odd
assert ours.ranks[ours.rank()] == rank

model = torch.nn.Linear(3, 1, bias=False).double()
hvd.broadcast_(model.weight.data, root_rank=ours.ranks[0], process_set=ours)
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=1.0),
    named_parameters=model.named_parameters(),
    process_set=ours,
)
before = model.weight.detach().clone()
model(torch.full((1, 3), float(rank), dtype=torch.double)).sum().backward()
optimizer.step()
mean = sum(ours.ranks) / ours.size()
torch.testing.assert_close(model.weight.detach(), before - mean)

gathered = hvd.allgather(torch.tensor([rank]), process_set=ours)
assert gathered.tolist() == ours.ranks
known = hvd.mpi_ops._basics._get_process_set_ids_and_ranks()
assert sorted(known.values()) == sorted([list(range(size)), even.ranks, odd.ranks])
assert remove_process_set(odd)
again = add_process_set([*range(1, size, 2)])
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size
if rank == 0:
    print(f"ok: sets {even.ranks} and {again.ranks}")
