import itertools

import pytest

from studies.workloads.tensor_lists import WORKLOADS, tensors

# Parameters as published with each model: torchvision's model pages, Hugging Face's num_parameters.
PUBLISHED = {
    "resnet50": (161, 25_557_032),
    "mobilenet_v2": (158, 3_504_872),
    "vgg16": (32, 138_357_544),
    "bert_base": (199, 109_482_240),
    "gpt2_small": (148, 124_439_808),
    "thousand_small": (1000, 256_000),
    "wide_embedding": (7, 64_000_000 + 1677 * 512 + 512 + 512 * 256 + 256 + 256 + 1),
}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_workload_has_the_published_number_of_tensors_and_parameters(workload):
    rows = tensors(workload)
    assert (len(rows), sum(row.count for row in rows)) == PUBLISHED[workload]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_names_are_unique_and_every_module_s_tensors_are_adjacent(workload):
    rows = tensors(workload)
    assert len({row.name for row in rows}) == len(rows)
    modules = [row.module for row in rows]
    changes = sum(a != b for a, b in itertools.pairwise(modules))
    assert changes + 1 == len(set(modules))
