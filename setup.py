"""Builds the C++ core with CMake; everything else about the package is in pyproject.toml.

CMAKE_ARGS is for more of CMake's options. HVDTUNE_BROUGHT names a folder whose files are taken into
the package, at their places: what `make wheels` has compiled for other libraries' versions.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
_CORE = "hvdtune.core._native"


class CMakeBuild(build_ext):
    """Configures and builds CMakeLists.txt, then installs `_native` where setuptools wants it.

    `_scan` and `_plan` come with it, to their own place; they are named below so that setuptools
    knows of them.
    """

    def run(self) -> None:
        super().run()
        if brought := os.environ.get("HVDTUNE_BROUGHT"):
            shutil.copytree(brought, self.build_lib, dirs_exist_ok=True)

    def build_extension(self, ext: Extension) -> None:
        if ext.name != _CORE:
            return
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build = Path(self.build_temp).resolve()
        configure = [
            "cmake",
            f"-S{ROOT}",
            f"-B{build}",
            "-GNinja",
            # pip builds with a ninja of the moment, which the cache of the last build names.
            f"-DCMAKE_MAKE_PROGRAM={shutil.which('ninja')}",
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_INSTALL_PREFIX={target}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
            *shlex.split(os.environ.get("CMAKE_ARGS", "")),
        ]
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "install"], check=True)


setup(
    ext_modules=[
        Extension(name, sources=[])
        for name in (_CORE, "hvdtune.timeline._scan", "hvdtune.timeline._plan")
    ],
    cmdclass={"build_ext": CMakeBuild},
)
