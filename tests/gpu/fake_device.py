"""Tensors on the fake GPU of tests/fake_gpu, without a framework."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hvdtune.core.rank.adapter import Buffer, OnGpu, Ready

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "cpp"
LIBRARIES = BUILD / "tests" / "fake_gpu"
CUDA, NCCL = LIBRARIES / "libcuda.so.1", LIBRARIES / "libnccl.so.2"
KERNELS = LIBRARIES / "libhvdtune_kernels.so"  # for FAKE_GPU_KERNELS, before anything loads CUDA


def build() -> None:
    """Compiles the fake driver, the fake NCCL and hvdtune's kernels for them."""
    options = ["-DHVDTUNE_TESTS=ON", "-DHVDTUNE_PYTHON=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    configure = ["cmake", f"-S{ROOT}", f"-B{BUILD}", "-GNinja", *options]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    targets = ["--target", "fake_cuda", "fake_nccl", "hvdtune_kernels"]
    subprocess.run(
        ["cmake", "--build", str(BUILD), *targets], check=True, stdout=subprocess.DEVNULL
    )


class Driver:
    """The fake driver, with a context and a stream on one GPU."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._cuda = ctypes.CDLL(str(CUDA), mode=ctypes.RTLD_GLOBAL)
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), number)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.stream = self.new_stream()

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._cuda, name)(*arguments)
        assert result == 0, f"{name} returned {result}"

    def new_stream(self) -> int:
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)
        assert stream.value is not None
        return stream.value

    def violations(self) -> str:
        self._cuda.fakeGpuLastViolation.restype = ctypes.c_char_p
        return self._cuda.fakeGpuLastViolation().decode()

    def pause(self, paused: bool) -> None:
        self._cuda.fakeGpuPause(int(paused))

    def set_faults(self, faults: str) -> None:
        assert self._cuda.fakeGpuSetFaults(faults.encode()) == 0

    def begin_capture(self) -> None:
        self.call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.stream), 0)

    def end_capture(self) -> None:
        graph = ctypes.c_void_p()
        self.call("cuStreamEndCapture", ctypes.c_void_p(self.stream), ctypes.byref(graph))
        self.call("cuGraphDestroy", graph)

    def peek(self, address: int) -> int:
        self._cuda.fakeGpuPeek.restype = ctypes.c_void_p
        return self._cuda.fakeGpuPeek(ctypes.c_uint64(address))


class FakeTensor:
    """Memory on the fake GPU, uninitialised."""

    def __init__(self, driver: Driver, shape: Sequence[int], dtype: Any) -> None:
        self.driver, self.shape, self.dtype = driver, tuple(shape), np.dtype(dtype)
        self.nbytes = int(np.prod(self.shape)) * self.dtype.itemsize
        address = ctypes.c_uint64()
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(self.nbytes, 1)))
        self.address = address.value

    @classmethod
    def of(cls, driver: Driver, values: Any) -> FakeTensor:
        """These values, which its driver's stream brings there."""
        array = np.ascontiguousarray(values)
        tensor = cls(driver, array.shape, array.dtype)
        stream = ctypes.c_void_p(driver.stream)
        to, size = ctypes.c_uint64(tensor.address), ctypes.c_size_t(tensor.nbytes)
        driver.call("cuMemcpyHtoDAsync_v2", to, ctypes.c_void_p(array.ctypes.data), size, stream)
        return tensor

    def numpy(self) -> Any:
        """The values once the driver's stream has come to its end."""
        self.driver.call("cuStreamSynchronize", ctypes.c_void_p(self.driver.stream))
        bytes_ = ctypes.string_at(self.driver.peek(self.address), self.nbytes)
        return np.frombuffer(bytes_, self.dtype).reshape(self.shape)


class FakeAdapter:
    """Implements hvdtune.core.rank.adapter.Adapter for tensors on the fake GPU, without staging."""

    def on_host(self) -> FakeAdapter:
        raise NotImplementedError("the fake's tensors are not staged")

    def copy_in(self, tensor: FakeTensor) -> tuple[FakeTensor, Ready | None]:
        return tensor, None

    def staging_output(self, output: FakeTensor) -> FakeTensor:
        return output

    def copy_out(self, staged: FakeTensor, output: FakeTensor) -> None:
        pass

    def buffer(self, tensor: FakeTensor) -> Buffer:
        driver = tensor.driver
        place = OnGpu(driver.number, driver.stream, lambda: driver.stream)
        return Buffer(tensor.address, tensor.shape, tensor.dtype.name, tensor, place)

    def address(self, tensor: FakeTensor) -> int:
        return tensor.address

    def empty(self, shape: Sequence[int], like: FakeTensor) -> FakeTensor:
        return FakeTensor(like.driver, shape, like.dtype)


ADAPTER = FakeAdapter()
