"""The layers of the architecture, and the documents that describe them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A unit of csrc may include itself and these.
LAYERS = {
    "base": set(),
    "wire": {"base"},
    "timeline": {"base"},
    "scan": set(),
    "transport": {"base"},
    "negotiate": {"base", "wire"},
    "collective": {"base", "transport"},
    # Compiled with the planner of buckets only.
    "plan": {"negotiate"},
    "mpi": {"base", "collective"},
    "device": {"base"},
    "nccl": {"base", "device"},
    "runtime": {
        *("base", "wire", "timeline", "transport", "negotiate", "collective"),
        *("mpi", "device", "nccl"),
    },
    # Compiled by itself, for the TensorFlow that is installed; its table is its only way in.
    "tensorflow": set(),
    "bindings": {"base", "timeline", "transport", "collective", "mpi", "device", "nccl", "runtime"},
}
SOURCES = sorted([*ROOT.glob("csrc/**/*.h"), *ROOT.glob("csrc/**/*.cc")])


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def includes(path):
    named = re.findall(r'^#include "([\w/.]+)"', path.read_text(), re.MULTILINE)
    # What is compiled by itself, where it is installed, has all its files in one folder.
    return [name if "/" in name else f"{path.parent.name}/{name}" for name in named]


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_unit_includes_lower_layers_only(path):
    unit = path.relative_to(ROOT / "csrc").parts[0]
    for included in includes(path):
        other = included.split("/")[0]
        assert other == unit or other in LAYERS[unit], f"{unit} may not include {included}"


def test_headers_form_no_cycle():
    graph = {
        str(path.relative_to(ROOT / "csrc")): includes(path)
        for path in SOURCES
        if path.suffix == ".h"
    }

    def visit(header, path):
        assert header not in path, " -> ".join([*path, header])
        for included in graph.get(header, []):
            visit(included, [*path, header])

    for header in graph:
        visit(header, [])


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_the_core_does_not_read_the_environment(path):
    assert not re.search(r"\bgetenv\b", path.read_text())


def test_no_wait_ends_at_a_time_of_a_clock_that_can_be_set():
    # It only says in a trace when the trace began.
    allowed = {"csrc/runtime/runtime.cc"}
    assert {name_of(path) for path in SOURCES if "system_clock" in path.read_text()} == allowed


@pytest.mark.parametrize("path", sorted(ROOT.glob("csrc/negotiate/*")), ids=name_of)
def test_decisions_are_pure(path):
    text = path.read_text()
    assert not re.search(r"now_ns\(\)|#include <(sys|poll|thread|mutex)", text)


def test_the_environment_has_one_reader():
    readers = [
        name_of(path)
        for path in ROOT.glob("hvdtune/**/*.py")
        if re.search(r"os\.(environ|getenv)", path.read_text())
    ]
    assert readers == ["hvdtune/core/config/environment.py"]


@pytest.mark.parametrize("document", ["ARCHITECTURE.md", "README.md", "CONTRIBUTING.md"])
def test_every_path_that_a_document_names_exists(document):
    text = (ROOT / document).read_text()
    names = re.findall(r"`((?:csrc|hvdtune|tests|studies|docs)/[\w./-]*)`", text)
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_architecture_stays_short():
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) < 200
