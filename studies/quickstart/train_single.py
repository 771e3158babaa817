"""Trains a small residual network on handwritten digits, in one process.

The data set is the one that scikit-learn ships: 1,797 real 8x8 images. train_torch.py does the
same data-parallel.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.first_norm(self.first(images)))
        return torch.relu(self.second_norm(self.second(out)) + self.shortcut(images))


def make_model() -> nn.Module:
    """37 gradient tensors, from 40 B to 2 MB; 1.2 M parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 25, 3, padding=1, bias=False),
        nn.BatchNorm2d(25),
        nn.ReLU(),
        Block(25, 32),
        nn.MaxPool2d(2),
        Block(32, 48),
        Block(48, 64),
        nn.MaxPool2d(2),
        Block(64, 96),
        nn.Flatten(),
        nn.Linear(96 * 4, 1024),
        nn.ReLU(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def load(test_share: float = 0.2) -> tuple[torch.Tensor, ...]:
    """Train images [n, 1, 8, 8] and labels [n], then the same for the test."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target)
    train, test = train_test_split(
        torch.arange(len(labels)).numpy(), test_size=test_share, random_state=0, stratify=labels
    )
    return images[train], labels[train], images[test], labels[test]


def train(arguments: argparse.Namespace) -> None:
    torch.manual_seed(arguments.seed)
    log = print
    images, labels, test_images, test_labels = load()
    model = make_model()
    lr = arguments.lr
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)

    steps = len(labels) // arguments.batch_size
    for epoch in range(arguments.epochs):
        model.train()
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        total = 0.0
        for batch in order.split(arguments.batch_size)[:steps]:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item()
        if (epoch + 1) % 20 == 0:
            log(f"epoch {epoch + 1:3d}  loss {total / steps:.4f}", flush=True)

    model.eval()
    with torch.no_grad():
        accuracy = (model(test_images).argmax(1) == test_labels).float().mean()
    log(f"test accuracy {accuracy.item():.2%} on {len(test_labels)} digits", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    train(arguments)


if __name__ == "__main__":
    main()
