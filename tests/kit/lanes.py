"""A pytest plugin: which test files run in one lane of pytest-xdist.

Files that share something dear, such as an import of TensorFlow or a compiled plugin, are one
piece of work; every other file is one by itself.
"""

import pytest
from xdist.scheduler import LoadFileScheduling

_TOGETHER = {
    "tests/contract/": "tensorflow",
    "tests/keras/": "tensorflow",
    "tests/tensorflow/": "tensorflow",
    "tests/mpi/": "mpi",
}


class _Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        folder = nodeid[: nodeid.find("/", len("tests/")) + 1]
        return _TOGETHER.get(folder) or super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
