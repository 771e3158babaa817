"""Libraries to link against, so that what is linked runs with an older glibc and libstdc++.

A shared library asks at load time for each symbol in the version that it was linked with, so what
is linked on this machine would run only where glibc and libstdc++ are as new as here. Libraries
keep the older versions of their symbols, though. For each of them a library is made here that has
only the symbols which the oldest supported release has too, without code: the linker takes names
and versions from it. What is newer comes

- for libstdc++ from its static library, piece by piece, as in the compilers that PyPA's images for
  wheels use;
- for glibc from `glibc_compat.c` beside this file, which has the few functions that hvdtune needs.

Anything else that is newer is an undefined symbol, which the linker names.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection
from target import Target

# The newest versions of symbols that manylinux_2_28 has, which is what RHEL 8 has.
PLATFORM: Final = "manylinux_2_28"
_NEWEST: Final = {
    "GLIBC": (2, 28),
    "GLIBCXX": (3, 4, 24),
    "CXXABI": (1, 3, 11),
    "GCC": (7, 0, 0),
}
# What one library, libc, has since glibc 2.34 was in several: by the names of functions.
_FORMER: Final = (
    ("libc.so.6", re.compile(r"__libc_start_main")),
    ("libpthread.so.0", re.compile(r"_*(pthread|sem)_\w+|raise|sigwait|\w*call_once")),
    ("libdl.so.2", re.compile(r"dl\w+")),
    ("librt.so.1", re.compile(r"(aio|lio|mq|shm|timer)_\w+")),
)


@dataclass(frozen=True)
class _Symbol:
    name: str
    version: str
    kind: str
    size: int
    is_default: bool

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, self.version.partition("_")[2].split(".")))


def make(folder: Path, target: Target) -> None:
    """Make the libraries in `folder`, for `-L` in front of all other folders."""
    folder.mkdir(parents=True)
    compiler = target.compiler
    find = _Find(compiler)
    for soname in ("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6"):
        _link(folder / soname, soname, _old_enough(_symbols(find(soname))), compiler)
    of_libc: dict[str, list[_Symbol]] = {"libc.so.6": []}
    for symbol, soname in _by_former_library(_symbols(find("libc.so.6"))):
        of_libc.setdefault(soname, []).append(symbol)
    for soname, symbols in of_libc.items():
        _link(folder / soname, soname, symbols, compiler)
    compat = folder / "glibc_compat.o"
    source = Path(__file__).with_name("glibc_compat.c")
    command = ["-O2", "-fPIC", "-fvisibility=hidden", "-c", "-xc", str(source), "-o", str(compat)]
    subprocess.run([*compiler, *command], check=True)
    subprocess.run([target.archiver, "rcD", folder / "libglibc_compat.a", compat], check=True)
    own = {path.name: str(path) for path in folder.iterdir()}
    former = " ".join(own[soname] for soname in sorted(set(of_libc) - {"libc.so.6"}))
    _script(folder / "libstdc++.so", own["libstdc++.so.6"], str(find("libstdc++.a")))
    # The archive has what no shared library does: on arm64 the choice among atomic instructions.
    _script(folder / "libgcc_s.so", own["libgcc_s.so.1"], str(find("libgcc.a")))
    _script(folder / "libm.so", own["libm.so.6"])
    _script(
        folder / "libc.so",
        own["libglibc_compat.a"],  # first, as it needs the others
        own["libc.so.6"],
        f"AS_NEEDED ( {former} )",
        str(find("libc_nonshared.a")),
        f"AS_NEEDED ( {find(_loader(find('libc.so.6')))} )",
    )


class _Find:
    """Where the compiler has a library."""

    def __init__(self, compiler: Sequence[str]) -> None:
        self._compiler = compiler

    def __call__(self, name: str) -> Path:
        command = [*self._compiler, f"-print-file-name={name}"]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
        path = Path(found.stdout.strip())
        if not path.is_absolute():
            raise SystemExit(f"the compiler has no {name}: install it, or another compiler")
        return path.resolve() if ".so" in name else path


def _script(path: Path, *libraries: str) -> None:
    """What `-l` finds: a text for the linker that names the libraries."""
    path.write_text(f"GROUP ( {' '.join(libraries)} )\n")


def _loader(libc: Path) -> str:
    """The dynamic loader's file name, which libc itself depends on."""
    with libc.open("rb") as file:
        for tag in ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED"):
            return str(tag.needed)
    raise SystemExit(f"{libc} names no dynamic loader")


def _symbols(library: Path) -> Iterator[_Symbol]:
    """Every symbol that the library defines, in every version that has a number."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        sections = list(elf.iter_sections())
        table = elf.get_section_by_name(".dynsym")
        versions = next(s for s in sections if isinstance(s, GNUVerSymSection))
        defined = next(s for s in sections if isinstance(s, GNUVerDefSection))
        assert isinstance(table, SymbolTableSection)
        names = {each["vd_ndx"]: next(aux).name for each, aux in defined.iter_versions()}
        for index, symbol in enumerate(table.iter_symbols()):
            number = versions.get_symbol(index)["ndx"]
            if symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS") or not isinstance(number, int):
                continue
            version = names[number & 0x7FFF]
            if re.fullmatch(r"[A-Z]+_\d+(\.\d+)*", version):
                kind, is_default = symbol["st_info"]["type"], not number & 0x8000
                yield _Symbol(symbol.name, version, kind, symbol["st_size"], is_default)


def _old_enough(symbols: Iterable[_Symbol]) -> list[_Symbol]:
    """Of each symbol the newest version that the oldest supported release has."""
    chosen: dict[str, _Symbol] = {}
    for symbol in symbols:
        newest = _NEWEST.get(symbol.version.partition("_")[0])
        if newest is None or symbol.number > newest:
            continue
        if symbol.name not in chosen or chosen[symbol.name].number < symbol.number:
            chosen[symbol.name] = symbol
    return sorted(chosen.values(), key=lambda symbol: symbol.name)


def _by_former_library(symbols: Iterable[_Symbol]) -> Iterator[tuple[_Symbol, str]]:
    """Each symbol of libc with the library that had it in the oldest supported release.

    One that moved into libc since then got a new version there, beside the one from before.
    """
    for symbol in _old_enough(symbols):
        if symbol.is_default:
            yield symbol, "libc.so.6"
            continue
        for soname, names in _FORMER:
            if names.fullmatch(symbol.name):
                yield symbol, soname
                break
        # Others have changed what they do, or belong to libraries that hvdtune does not use.


def _link(path: Path, soname: str, symbols: Sequence[_Symbol], compiler: Sequence[str]) -> None:
    assembly, versions = path.with_suffix(".s"), path.with_suffix(".versions")
    assembly.write_text("\n".join(_definitions(symbols)) + "\n")
    names = sorted({symbol.version for symbol in symbols})
    assert names, f"nothing of {soname} is old enough"
    versions.write_text("".join(f"{name} {{}};\n" for name in names))
    command = ["-shared", "-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script,{versions}"]
    subprocess.run([*compiler, *command, "-xassembler", assembly, "-o", path], check=True)
    assembly.unlink()
    versions.unlink()


def _definitions(symbols: Sequence[_Symbol]) -> Iterator[str]:
    kinds = {"STT_OBJECT": ("object", ".data"), "STT_TLS": ("tls_object", ".tbss")}
    for i, symbol in enumerate(symbols):
        kind, section = kinds.get(symbol.kind, ("function", ".text"))
        flags = ', "awT", %nobits' if section == ".tbss" else ""
        yield f".section {section}{flags}" if flags else section
        yield f".globl s{i}\n.type s{i}, %{kind}\n.size s{i}, {symbol.size}\ns{i}:"
        yield f".zero {max(symbol.size, 1)}" if kind != "function" else ".byte 0"
        yield f".symver s{i}, {symbol.name}@@{symbol.version}, remove"
