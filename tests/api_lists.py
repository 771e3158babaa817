"""What Horovod's bindings have in common, for the tests that hold their lists."""

import inspect

BASICS = {
    "init": "comm=None, process_sets=None",
    "start_timeline": "file_path, mark_cycles=False",
    **dict.fromkeys(["shutdown", "is_initialized", "stop_timeline"], ""),
    **dict.fromkeys(["size", "local_size", "cross_size", "rank", "local_rank", "cross_rank"], ""),
    **dict.fromkeys(["mpi_threads_supported", "mpi_enabled", "mpi_built"], ""),
    **dict.fromkeys(["gloo_enabled", "gloo_built", "nccl_built", "ddl_built"], ""),
    **dict.fromkeys(["ccl_built", "cuda_built", "rocm_built"], ""),
}
CONSTANTS = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}


def parameters(function):
    rows = inspect.signature(function).parameters.values()
    return [(row.name, row.default, row.kind) for row in rows if row.kind is not row.VAR_KEYWORD]


def check_signature(module, name, wanted):
    """`wanted` is written with the module's names; parameters of ours come after it."""
    expected = parameters(eval(f"lambda {wanted}: None", vars(module)))
    function = getattr(module, name)
    if isinstance(function, type):  # as it is called: without self
        function = function.__init__.__get__(object())
    found = parameters(function)
    assert found[: len(expected)] == expected
    for _, default, _ in found[len(expected) :]:
        assert default is not inspect.Parameter.empty
