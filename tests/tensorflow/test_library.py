"""The library of TensorFlow's operations, as it is kept in a folder of the user's."""

import hashlib
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from hvdtune.cli import main
from hvdtune.core.toolchain import op_library
from hvdtune.core.toolchain.compiler import find_compiler
from hvdtune.errors import HvdtuneError
from hvdtune.tensorflow import library


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kept", [pytest.param(0, marks=pytest.mark.slow), 20_000])
def test_a_damaged_library_is_found_and_made_again(tmp_path, monkeypatch, capsys, kept):
    whole = library.build()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    damaged = library.path()
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(whole.read_bytes()[:kept])
    damaged.with_suffix(".sha256").write_bytes(whole.with_suffix(".sha256").read_bytes())
    copies = tmp_path / "c++"  # in place of half a minute's compilation
    copies.write_text(f'#!/bin/sh\nfor last; do :; done\ncp "{whole}" "$last"\n')
    copies.chmod(0o755)
    monkeypatch.setenv("CXX", str(copies))
    with pytest.raises(SystemExit) as checked:
        main(["build", "tensorflow", "--check"])
    assert checked.value.code == 1
    assert "not built: run `hvdtune build tensorflow`" in capsys.readouterr().out
    assert library.build() == damaged
    assert library.is_made() and damaged.read_bytes() == whole.read_bytes()


def test_a_library_where_others_can_write_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    theirs = library.path()
    theirs.parent.mkdir(parents=True)
    theirs.parent.chmod(0o777)
    theirs.write_bytes(b"code")
    theirs.with_suffix(".sha256").write_bytes(hashlib.sha256(b"code").hexdigest().encode())
    with pytest.raises(HvdtuneError, match="tensorflow can be written to by other users"):
        library.build()


def test_the_compiler_is_the_one_that_is_asked_for(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    with pytest.raises(HvdtuneError, match="The compiler no-such-compiler, set by CXX"):
        find_compiler()
    monkeypatch.setenv("CXX", f"{sys.executable} -v")
    assert find_compiler() == [sys.executable, "-v"]
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HvdtuneError, match="Found no C\\+\\+ compiler"):
        find_compiler()


def test_what_a_wheel_brings_needs_no_compiler(tmp_path, monkeypatch, capsys):
    brought = tmp_path / op_library.packaged_name(
        [library.version()], Path(tf.sysconfig.get_include())
    )
    brought.touch()
    monkeypatch.setattr(op_library, "_PACKAGE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(SystemExit) as checked:
        main(["build", "tensorflow", "--check"])
    assert checked.value.code == 0
    assert f"operations  {brought}" in capsys.readouterr().out
