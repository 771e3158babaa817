"""A sampler that hands out the rest of an epoch to however many ranks there are."""

from __future__ import annotations

import torch

from hvdtune.core.elastic.samples import SampleLedger


class ElasticSampler(SampleLedger, torch.utils.data.Sampler[int]):
    """A SampleLedger as torch's DataLoader wants it; a part of a TorchState."""
