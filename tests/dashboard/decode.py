"""A tile read back, as the browser does."""

import json

import numpy as np


def decode(body):
    """The head with its columns."""
    length = int.from_bytes(body[:4], "little")
    head = json.loads(body[4 : 4 + length])
    at = 4 + length
    assert at % 8 == 0
    sizes = {"begin": "<f8", "end": "<f8", "row": "<i4", "name": "<u4", "lane": "<u2"}
    sizes |= {"kind": "u1", "depth": "u1"}
    for column, kind in sizes.items():
        if column == "lane":
            shape = len(head["counters"]), 2, head["pixels"]
            head["levels"] = np.frombuffer(body, "<f4", np.prod(shape), at).reshape(shape)
            at += head["levels"].nbytes
        head[column] = np.frombuffer(body, kind, head["slices"], at)
        at += head[column].nbytes
    if head["exact"]:
        assert at == len(body)
    else:
        head["busy"] = np.frombuffer(body, "u1", offset=at).reshape(head["lanes"], head["pixels"])
    return head
