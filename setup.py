"""Builds the C++ core with CMake; everything else about the package is in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

import pybind11
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    """Configures and builds CMakeLists.txt, then installs `_native` where setuptools wants it."""

    def build_extension(self, ext: Extension) -> None:
        target = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build = Path(self.build_temp).resolve()
        configure = [
            "cmake",
            f"-S{ROOT}",
            f"-B{build}",
            "-GNinja",
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DCMAKE_INSTALL_PREFIX={target}",
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        ]
        subprocess.run(configure, check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "install"], check=True)


setup(
    ext_modules=[Extension("hvdtune.core._native", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
)
