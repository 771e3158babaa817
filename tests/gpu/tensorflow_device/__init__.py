"""TensorFlow's device "GPU" on the fake GPU of tests/fake_gpu: real kernels, eager operations and
graphs, in a TensorFlow without CUDA."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hvdtune.core.toolchain.compiler import find_compiler
from tests.gpu import fake_device

_SOURCES = Path(__file__).parent
STREAM_HANDLES = fake_device.LIBRARIES / "libfake_stream_handles.so"
"""To be loaded before TensorFlow, as by LD_PRELOAD."""
DEVICE = fake_device.LIBRARIES / "libfake_tensorflow_device.so"


def build() -> None:
    """Compiles the device, beside the fake that it is on."""
    import tensorflow as tf

    fake_device.build()
    options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra"]
    compiler = [*find_compiler(), *options, f"-I{fake_device.ROOT / 'tests/fake_gpu/include'}"]
    handles = [str(_SOURCES / "stream_handles.cc"), "-o", str(STREAM_HANDLES)]
    subprocess.run([*compiler, *handles], check=True)
    own = [f"-L{fake_device.LIBRARIES}", "-Wl,-rpath,$ORIGIN", "-l:libfake_stream_handles.so"]
    linked = [*own, "-l:libcuda.so.1", *tf.sysconfig.get_link_flags()]
    device = [f"-isystem{tf.sysconfig.get_include()}", str(_SOURCES / "device.cc")]
    subprocess.run([*compiler, *device, *linked, "-o", str(DEVICE)], check=True)


def plug_in(number: int) -> None:
    """Gives this process the fake GPU of that number as TensorFlow's only one."""
    import tensorflow as tf
    from tensorflow.python.framework import load_library

    load_library.load_pluggable_device_library(str(DEVICE))
    tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[number], "GPU")
