"""What keeps the code easy to find one's way in: names, folders, imports."""

import ast
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]

# Their classes have Horovod's names.
HOROVODS = ("torch", "tensorflow", "keras", "mxnet", "alias", "horovod")
# One thing that both languages know
IN_BOTH = {"Knob", "ReduceOp", "Reduction", "StackSource", "StepWindow"}
# In a script that is loaded by path, since it may import nothing of hvdtune's
LOADED_BY_PATH = {"StepClock"}


def _classes_in_python():
    for path in ROOT.glob("hvdtune/**/*.py"):
        if path.relative_to(ROOT / "hvdtune").parts[0] not in HOROVODS:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    yield node.name, path


def _classes_in_cpp():
    """Yield name and file of every class that stands in a namespace, not inside another class.

    TensorFlow's operations are left out, because they are a library of their own.
    """
    kind = r"^(?:class|struct|enum class) (?:\w+\([^)]*\) |\[\[\w+\]\] )?(\w+)(?!::|\w)[^;{]*\{"
    for path in sorted({*ROOT.glob("csrc/**/*.h"), *ROOT.glob("csrc/**/*.cc")}):
        if path.is_relative_to(ROOT / "csrc/tensorflow"):
            continue
        for found in re.finditer(kind, path.read_text(), re.MULTILINE):
            yield found[1], path


def test_a_class_name_has_one_meaning():
    places = defaultdict(set)
    for name, path in [*_classes_in_python(), *_classes_in_cpp()]:
        places[name].add(str(path.relative_to(ROOT)))
    twice = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert {n: found for n, found in twice.items() if n not in IN_BOTH | LOADED_BY_PATH} == {}


@pytest.mark.parametrize("top", ["csrc", "hvdtune"])
def test_a_folder_has_at_most_twenty_modules(top):
    modules = defaultdict(set)
    for path in (ROOT / top).rglob("*"):
        if path.suffix in (".py", ".cc", ".h") and path.name != "__init__.py":
            modules[str(path.parent.relative_to(ROOT))].add(path.stem)
    assert {folder: len(names) for folder, names in modules.items() if len(names) > 20} == {}


def _is_of_an_extension(line):
    """A compiled module is no module to grimp: it sees an import of the package."""
    return re.search(r"import _(native|plan|scan)\b", line) is not None


def test_imports_of_modules_form_no_circle():
    graph = grimp.build_graph("hvdtune", exclude_type_checking_imports=True)
    imports = {
        module: {
            other
            for other in graph.find_modules_directly_imported_by(module)
            for found in graph.get_import_details(importer=module, imported=other)
            if not _is_of_an_extension(found["line_contents"])
        }
        for module in graph.modules
    }
    TopologicalSorter(imports).prepare()  # else CycleError, which names the circle
