"""The arithmetic of `training.py`, and the same training without ranks.

A step trains BATCH samples on each rank, with noise of the rank's own.
"""

import functools

import numpy as np

from hvdtune.core.elastic.randomness import dealt_seed

BATCH, RATE, SEED, NOISE = 2, 0.01, 5, 1e-3


def seed_of(seed, commits, rank):
    return dealt_seed(seed, commits, rank) % 2**32


def batch_of(samples, done, rank, size):
    return range(done, samples)[rank::size][:BATCH]


def gradient_of(batch, weights, noise):
    parts = (np.sin((n + 1) * (weights + 1)) for n in batch)
    return sum(parts, np.zeros(8)) + NOISE * noise.random_sample(8)


def replay(samples, sizes, dealt_at):
    """The weights of a training as planned.

    Args:
        sizes: the number of ranks in each step.
        dealt_at: after how many commits the random numbers of each step were dealt, -1 for those
            that a rank begins with.
    """
    weights, done, before = np.zeros(8), 0, -1
    noises = [np.random.RandomState(SEED) for _ in range(sizes[0])]
    for size, commits in zip(sizes, dealt_at, strict=True):
        if commits != before:
            noises = [np.random.RandomState(seed_of(SEED, commits, r)) for r in range(size)]
            before = commits
        batches = [batch_of(samples, done, r, size) for r in range(size)]
        parts = [gradient_of(batches[r], weights, noises[r]) for r in range(size)]
        weights = weights + RATE * functools.reduce(np.add, parts)
        done = (done + sum(map(len, batches))) % samples
    return weights
