"""Builds what hvdtune is distributed as: an sdist, and a wheel that needs no compiler.

`make wheels` runs it in an environment of its own, by the Python that the wheel is for; CXX names
the compiler, and with it the machine. The wheel is built from the sdist, so that the sdist is known
to be complete. It runs with the glibc of `link_libraries.PLATFORM` and newer, and holds the plugins
for MPI's ABIs and the kernels for the releases of TensorFlow that `tensorflow_kernels.py` names.
Two builds of one commit with one compiler give the same bytes: times are those of the commit, or
SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import link_libraries
import mpi_plugins
import sbom
import tensorflow_kernels
from elftools.elf.elffile import ELFFile
from target import Build, Target

ROOT: Final = Path(__file__).parents[2]
# Libraries of the program that loads ours: not to be bundled.
_OF_OTHERS: Final = (*mpi_plugins.LIBRARIES, tensorflow_kernels.LIBRARY)
# Names of files in messages are the same wherever the checkout lies.
_ANYWHERE: Final = f"-ffile-prefix-map={ROOT}=."
# What a library does not use of itself, or of libstdc++, is left out of it.
_SEPARATE: Final = ("-ffunction-sections", "-fdata-sections")
_BACKEND: Final = "import sys; from setuptools import build_meta as b; b.build_{}(sys.argv[1])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--tensorflow",
        metavar="VERSION,...",
        default=",".join(tensorflow_kernels.VERSIONS),
        help="TensorFlow's releases whose kernels are in the wheel (%(default)s)",
    )
    given = parser.parse_args()
    target = Target.of_environment()
    kept = ROOT / "build" / "wheels"
    work = kept / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    epoch = int(os.environ.setdefault("SOURCE_DATE_EPOCH", _time_of_commit()))
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)

    sdist = make_sdist(work / "export", out, epoch)
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    source = work / sdist.name.removesuffix(".tar.gz")

    link_libraries.make(work / "link", target)
    # Symbols of libstdc++'s static pieces must not be taken for those of its shared library.
    exported = ("-Wl,--exclude-libs,ALL", "-Wl,--gc-sections")
    linking = (f"-L{work / 'link'}", *exported, "-Wl,--build-id=none", "-s")
    downloaded = kept / target.machine
    build = Build(target, source, work / "brought", downloaded, (_ANYWHERE, *_SEPARATE), linking)
    mpis = mpi_plugins.make(build)
    tensorflows = tensorflow_kernels.make(build, _versions(given.tensorflow))
    wheel = make_wheel(build, work / "wheel")
    unpacked = unpack(repaired(wheel, work / "repaired", target), work / "unpacked")
    check_symbols(unpacked)
    built_from = [*sbom.toolchain(target.compiler), *mpis, *tensorflows]
    sbom.write(unpacked, built_from, epoch)
    wheel = pack(unpacked, out)
    print_sizes(sdist, wheel)


def _versions(given: str) -> list[str]:
    return [version for version in given.split(",") if version]


def _time_of_commit() -> str:
    if not (ROOT / ".git").exists():
        raise SystemExit("this is no checkout: say with SOURCE_DATE_EPOCH what time files have")
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def make_sdist(folder: Path, out: Path, epoch: int) -> Path:
    """The sdist of this checkout, of the files that git knows or might add, by way of `folder`."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():  # and not deleted since the last commit
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    _backend("sdist", folder, folder / "made")
    (made,) = (folder / "made").iterdir()
    target = out / made.name
    with tarfile.open(made) as archive:
        target.write_bytes(gzip.compress(_normal_tar(archive, epoch), mtime=epoch))
    return target


def _backend(kind: str, source: Path, out: Path, environ: Mapping[str, str] | None = None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", _BACKEND.format(kind), str(out)]
    subprocess.run(command, cwd=source, check=True, env=environ, stdout=subprocess.DEVNULL)


def _normal_tar(archive: tarfile.TarFile, epoch: int) -> bytes:
    """The same files in the order of their names, of nobody, and of one time."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as normal:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            member.pax_headers = {}
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            normal.addfile(member, archive.extractfile(member) if member.isfile() else None)
    return written.getvalue()


def make_wheel(build: Build, out: Path) -> Path:
    """The wheel of an unpacked sdist, with all that lies in `build.brought`."""
    environ = os.environ | build.target.environ()
    environ |= {
        "CXXFLAGS": shlex.join(build.flags),
        "LDFLAGS": shlex.join(build.linking),
        # Else there would be a plugin for an MPI of this machine.
        "CMAKE_ARGS": f"{environ.get('CMAKE_ARGS', '')} -DHVDTUNE_MPI=OFF",
        "HVDTUNE_BROUGHT": str(build.brought),
    }
    _backend("wheel", build.source, out, environ)
    (made,) = out.iterdir()
    return made


def repaired(wheel: Path, out: Path, target: Target) -> Path:
    """The wheel with the platform's tag, which auditwheel gives if it finds nothing against it."""
    platform = f"{link_libraries.PLATFORM}_{target.machine}"
    if target.is_foreign:
        platform = "auto"  # auditwheel knows the names of this machine's platforms only
    excluded = [word for library in _OF_OTHERS for word in ("--exclude", library)]
    command = ["auditwheel", "repair", "--plat", platform, "--only-plat", *excluded]
    subprocess.run([*command, "-w", out, wheel], check=True, stderr=subprocess.DEVNULL)
    (made,) = out.iterdir()
    if _glibc(made.name) > _glibc(link_libraries.PLATFORM):
        raise SystemExit(f"{made.name} needs a newer glibc than {link_libraries.PLATFORM}")
    return made


def _glibc(platform: str) -> tuple[int, int]:
    """The version that a name has behind `manylinux_`."""
    found = re.search(r"manylinux_(\d+)_(\d+)", platform)
    assert found is not None, platform
    return int(found[1]), int(found[2])


def unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def check_symbols(folder: Path) -> None:
    """Refuse a Python module with a symbol of glibc that no library to link against had.

    The linker does not name it, because it leaves all of Python's symbols to the interpreter.
    """
    for path in folder.rglob("*.cpython-*.so"):
        with path.open("rb") as file:
            elf = ELFFile(file)
            versions = elf.get_section_by_name(".gnu.version")
            symbols = elf.get_section_by_name(".dynsym").iter_symbols()
            open_ends = [
                symbol.name
                for index, symbol in enumerate(symbols)
                if symbol["st_shndx"] == "SHN_UNDEF"
                and symbol["st_info"]["bind"] == "STB_GLOBAL"
                and versions.get_symbol(index)["ndx"] in ("VER_NDX_LOCAL", "VER_NDX_GLOBAL")
                and not re.match(r"_?Py", symbol.name)
            ]
        if open_ends:
            raise SystemExit(
                f"{path.name} needs {', '.join(open_ends)}, which {link_libraries.PLATFORM} lacks: "
                "define it in packaging/wheels/glibc_compat.c"
            )


def pack(folder: Path, out: Path) -> Path:
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.suffix == ".so" else 0o644)
    command = [sys.executable, "-m", "wheel", "pack", folder, "-d", out]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    name = re.search(r"([\w.+-]+\.whl)", done.stdout)
    assert name is not None, done.stdout
    return out / name[1]


def print_sizes(sdist: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    libraries = sum(size for name, size in sizes.items() if name.endswith(".so"))
    print(f"{sdist}: {sdist.stat().st_size / 1e6:.2f} MB")
    print(
        f"{wheel}: {wheel.stat().st_size / 1e6:.2f} MB, installed {sum(sizes.values()) / 1e6:.2f} "
        f"MB, of which shared libraries {libraries / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
