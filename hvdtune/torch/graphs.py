"""CUDA graphs that hold collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hvdtune.core.rank.in_flight import WAIT_SLICE_S
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self


class CUDAGraph(torch.cuda.CUDAGraph):
    """A torch.cuda.CUDAGraph that may hold operations of hvdtune's and of its optimizers.

    Every rank captures the same operations, and launches the graph equally often:

        graph = hvd.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
        for batch in loader:
            inputs.copy_(batch)
            graph.replay()
        graph.synchronize()

    Run the captured code once before. Allreduce, broadcast and reducescatter can be captured, on
    tensors in a GPU's memory, in jobs whose GPU operations are NCCL's. Operations submitted before
    a replay run before it, and later ones after it, on the stream on which it is launched.

    The host does not wait for a replay. If a rank is lost during one, later results of the graph
    are worthless: the next `replay` or `synchronize` raises the error.

    A graph belongs to the job in which it was captured. After `shutdown`, or a reset of an elastic
    job, capture again.
    """

    def __new__(cls, keep_graph: bool = False) -> Self:
        """Raises UsageError where PyTorch is built without CUDA."""
        if torch.version.cuda is None and torch.version.hip is None:
            raise UsageError("a CUDA graph needs PyTorch built for CUDA, and this one is not")
        return super().__new__(cls, keep_graph)

    def __init__(self, keep_graph: bool = False) -> None:
        """`keep_graph` is torch.cuda.CUDAGraph's."""
        super().__init__()
        self._captured_in: Any = None  # the core's job

    def capture_begin(self, *args: Any, **options: Any) -> None:
        """Begins the capture on the current stream, as `torch.cuda.graph` does.

        Raises:
            UsageError: this process is in no job with GPU operations, or captures another graph.
        """
        native = PROCESS.native()
        if not PROCESS.has_gpu_operations():
            raise UsageError(
                "a CUDA graph can contain hvdtune's operations only with NCCL, and this job copies "
                "GPU tensors through host memory. Set HVDTUNE_GPU_OPERATIONS=nccl, or use "
                "torch.cuda.CUDAGraph for work without hvdtune's operations"
            )
        while not native.begin_capture(WAIT_SLICE_S):
            pass
        try:
            super().capture_begin(*args, **options)
        except BaseException:
            _end_capture(native)
            raise
        self._captured_in = native

    def capture_end(self) -> None:
        """Ends the capture."""
        try:
            _end_capture(self._captured_in)
        finally:
            super().capture_end()

    def replay(self) -> None:
        """Launches the graph on the current stream.

        Raises:
            UsageError: the job in which it was captured has ended.
            CollectiveError: the job has failed; what the graph has computed lately is worthless.
        """
        native = self._native()
        stream = int(torch.cuda.current_stream().cuda_stream)
        while not native.before_replay(stream, WAIT_SLICE_S):
            pass
        super().replay()
        native.after_replay(stream)

    def synchronize(self) -> None:
        """Returns when the current stream has done all that it was given, replays included.

        Raises:
            UsageError: the job in which the graph was captured has ended.
            CollectiveError: the job has failed meanwhile.
        """
        native = self._native()
        torch.cuda.current_stream().synchronize()
        native.check_gpu()

    def _native(self) -> Any:
        native = self._captured_in
        if native is None:
            raise UsageError("nothing has been captured into this CUDA graph yet")
        if native is not PROCESS.runtime:
            raise UsageError("this CUDA graph belongs to a job that has ended; capture a new one")
        return native


def _end_capture(native: Any) -> None:
    while not native.end_capture(WAIT_SLICE_S):
        pass
