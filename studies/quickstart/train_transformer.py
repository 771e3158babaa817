"""Trains a small transformer on handwritten digits, data-parallel, as people bring their training.

    hvdtune run -np 2 --config-file studies/quickstart/old_cluster.yaml \\
      studies/quickstart/train_transformer.py

Its settings come from the page of another cluster, and so do its four threads for each rank, of
which nobody has thought since. `make demo` says what that costs, and tunes it.

The data set is the one that scikit-learn ships: 1,797 real 8x8 images.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import hvdtune.torch as hvd

WIDTH = 64
THREADS = [4, 1]  # of a rank: as on the page, and the fewest


class Transformer(nn.Module):
    """Each row of an image is a token. 79 gradient tensors, 0.2 M parameters."""

    def __init__(self, layers: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, WIDTH)
        self.position = nn.Parameter(torch.zeros(8, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH,
            nhead=4,
            dim_feedforward=2 * WIDTH,
            dropout=0.0,
            batch_first=True,
            norm_first=True,
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embedding(images) + self.position).mean(1))


def load(test_share: float = 0.2) -> tuple[torch.Tensor, ...]:
    """Train images [n, 8, 8] and labels [n], then the same for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
    labels = torch.tensor(digits.target)
    train, test = train_test_split(
        torch.arange(len(labels)).numpy(), test_size=test_share, random_state=0, stratify=labels
    )
    return images[train], labels[train], images[test], labels[test]


def use_threads() -> None:
    """As many as are to be used in this step. Results differ in their last bits: sums are split."""
    threads = hvd.knob("threads", THREADS, changes_results=True)
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def train(arguments: argparse.Namespace) -> None:
    torch.manual_seed(arguments.seed)
    log = print if hvd.rank() == 0 else lambda *_, **__: None
    images, labels, test_images, test_labels = load()
    model = Transformer()
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    steps = len(labels) // hvd.size() // arguments.batch_size
    for epoch in range(arguments.epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        order = order[hvd.rank() :: hvd.size()]
        total = 0.0
        for batch in order.split(arguments.batch_size)[:steps]:
            use_threads()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
        if (epoch + 1) % 10 == 0:
            log(f"epoch {epoch + 1:3d}  loss {total / steps:.4f}", flush=True)

    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean()
    log(f"test accuracy {accuracy.item():.2%} on {len(test_labels)} digits", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=16, help="images per step")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    hvd.init()
    train(arguments)


if __name__ == "__main__":
    main()
