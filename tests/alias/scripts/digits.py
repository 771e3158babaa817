"""Training on handwritten digits with a sampler, a learning rate by size and averaged metrics."""

import horovod.torch as hvd
import sklearn.datasets
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def accuracy_of(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return right / len(loader.sampler)


hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)
digits = sklearn.datasets.load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train, test = (
    TensorDataset(images[:1500], labels[:1500]),
    TensorDataset(images[1500:], labels[1500:]),
)
train_sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = DataLoader(train, batch_size=16, sampler=train_sampler, num_workers=1)
test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank())
test_loader = DataLoader(test, batch_size=100, sampler=test_sampler)

model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(576, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

before = metric_average(accuracy_of(model, test_loader), "before")
for epoch in range(5):
    model.train()
    train_sampler.set_epoch(epoch)
    for x, y in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
after = metric_average(accuracy_of(model, test_loader), "after")
best = hvd.broadcast_object({"accuracy": after}, root_rank=0)
assert best == {"accuracy": after}
assert after > 0.7 > 0.3 > before, (before, after)
if hvd.rank() == 0:
    print(f"ok: accuracy {before:.2f} to {after:.2f}")
