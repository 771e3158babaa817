"""The recipes in packaging/ parse, and ask for what pyproject.toml asks for."""

import ast
import re
from pathlib import Path

import pytest
import tomllib
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import hvdtune

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def lower_bounds(texts):
    """The lowest version that is asked for, by the name of the package."""
    found = {}
    for requirement in map(Requirement, texts):
        (lowest,) = (each.version for each in requirement.specifier if each.operator == ">=")
        found[canonicalize_name(requirement.name)] = lowest
    return found


RUNTIME = lower_bounds(PROJECT["project"]["dependencies"])
BUILDING = lower_bounds(PROJECT["build-system"]["requires"])
PYTHON = PROJECT["project"]["requires-python"].removeprefix(">=")


def spack_calls(name):
    """Arguments and keywords of each call of a directive."""
    tree = ast.parse((FOLDER / "spack/package.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
            yield (
                [ast.literal_eval(argument) for argument in node.args],
                {word.arg: ast.literal_eval(word.value) for word in node.keywords},
            )


def test_spack():
    assert [given for given, _ in spack_calls("version")] == [[hvdtune.__version__]]
    running, building, optional = {}, {}, {}
    for (spec,), words in spack_calls("depends_on"):
        name, _, version = spec.removeprefix("py-").partition("@")
        kinds = building if words["type"] == "build" else running
        (optional if "when" in words else kinds)[name] = version.rstrip(":")
    assert running.pop("python") == PYTHON
    assert building.pop("cxx") == ""
    assert (running, building) == (RUNTIME, BUILDING)
    extras = PROJECT["project"]["optional-dependencies"]
    for name in ("torch", "tensorflow"):
        assert {name: optional[name]} == lower_bounds(extras[name])


@pytest.fixture
def easyconfig():
    (path,) = FOLDER.glob("easybuild/*.eb")
    values = {}
    exec(compile(path.read_text(), str(path), "exec"), values)
    toolchain = values["toolchain"]
    assert path.stem == f"hvdtune-{values['version']}-{toolchain['name']}-{toolchain['version']}"
    return values


def test_easybuild(easyconfig):
    assert easyconfig["version"] == hvdtune.__version__
    installed = {canonicalize_name(each[0]): each[1] for each in easyconfig["exts_list"]}
    assert installed.pop("hvdtune") == hvdtune.__version__
    assert set(installed) >= RUNTIME.keys() - {"numpy"}  # which SciPy-bundle has
    assert installed.keys() <= RUNTIME.keys() | BUILDING.keys()
    tools = {name.lower(): version for name, version in easyconfig["builddependencies"]}
    wanted = RUNTIME | BUILDING
    for name, version in (installed | tools).items():
        assert version in SpecifierSet(f">={wanted[name]}"), name
    (python,) = (each[1] for each in easyconfig["dependencies"] if each[0] == "Python")
    assert python in SpecifierSet(f">={PYTHON}")


def test_conda():
    recipe = yaml.safe_load((FOLDER / "conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == hvdtune.__version__

    def versions(section):
        named = (text.partition(" >=") for text in recipe["requirements"][section])
        return {canonicalize_name(name): version for name, _, version in named if version}

    running = versions("run")
    assert running.pop("python") == PYTHON
    assert running == RUNTIME
    assert versions("build") | versions("host") == BUILDING
    programs = (text.partition(" = ") for text in recipe["build"]["python"]["entry_points"])
    assert PROJECT["project"]["scripts"] == {name: target for name, _, target in programs}


def test_docker():
    text = (FOLDER / "docker/Dockerfile").read_text()
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    instructions = [line.partition(" ")[::2] for line in lines if line]
    known = {"ARG", "FROM", "RUN", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert {name for name, _ in instructions} == known
    told, after_from = set(), set()
    for name, words in instructions:
        assert set(re.findall(r"\$\{?(\w+)", words)) <= (told if name == "FROM" else after_from)
        if name == "ARG":
            told.add(words.partition("=")[0])
            after_from.add(words.partition("=")[0])
        elif name == "FROM":
            after_from.clear()  # what was told before it is known to it only
        elif name in ("ENTRYPOINT", "CMD"):
            assert all(isinstance(word, str) for word in ast.literal_eval(words))
