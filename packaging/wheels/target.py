"""The machine that a wheel is for: the one that the compiler compiles for."""

from __future__ import annotations

import os
import shlex
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# What has been tried; others may lack a name in link_libraries.py.
_MACHINES: Final = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Target:
    """A compiler, as the words of its command, and what PyPI calls the machine it compiles for."""

    compiler: tuple[str, ...]
    machine: str

    @classmethod
    def of_environment(cls) -> Target:
        """That of CXX, else of g++."""
        compiler = tuple(shlex.split(os.environ.get("CXX", "g++")))
        machine = _answer(compiler, "-dumpmachine").partition("-")[0]
        if machine not in _MACHINES:
            raise SystemExit(
                f"{shlex.join(compiler)} compiles for {machine}; wheels are made for "
                f"{' and '.join(_MACHINES)}"
            )
        return cls(compiler, machine)

    @property
    def is_foreign(self) -> bool:
        """Whether it is another machine than this one."""
        return self.machine != os.uname().machine

    @property
    def archiver(self) -> str:
        """`ar` for this machine."""
        return _answer(self.compiler, "-print-prog-name=ar")

    def of_pypi(self, *platforms: str) -> list[str]:
        """Options for `pip download` to take wheels for this machine: of these platforms."""
        return [word for name in platforms for word in ("--platform", f"{name}_{self.machine}")]

    def environ(self) -> dict[str, str]:
        """The variables with which setuptools, and setup.py's CMake, build for this machine.

        Python's headers are those of the interpreter that runs this: on machines of 64 bits with
        Linux they differ in nothing that pybind11 uses.
        """
        if not self.is_foreign:
            return {}
        suffix = sysconfig.get_config_var("EXT_SUFFIX").replace(os.uname().machine, self.machine)
        options = {
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": self.machine,
            # Else pybind11 would not ask this interpreter for the folder of its headers.
            "PYBIND11_USE_CROSSCOMPILING": "OFF",
            "PYTHON_MODULE_EXTENSION": suffix,
            "PYTHON_MODULE_DEBUG_POSTFIX": "",
        }
        return {
            "_PYTHON_HOST_PLATFORM": f"linux-{self.machine}",
            "SETUPTOOLS_EXT_SUFFIX": suffix,
            "CMAKE_ARGS": shlex.join(f"-D{name}={value}" for name, value in options.items()),
        }


@dataclass(frozen=True)
class Build:
    """How the libraries of one wheel are compiled.

    Attributes:
        source: an unpacked sdist.
        brought: where they go, each to its place in the package.
        kept: for what is downloaded, from one wheel to the next.
        flags, linking: for the compiler, for all of them.
    """

    target: Target
    source: Path
    brought: Path
    kept: Path
    flags: tuple[str, ...]
    linking: tuple[str, ...]

    @property
    def compiler(self) -> tuple[str, ...]:
        return (*self.target.compiler, *self.flags)


def _answer(compiler: tuple[str, ...], question: str) -> str:
    command = [*compiler, question]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
