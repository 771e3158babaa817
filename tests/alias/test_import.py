"""Which package `import horovod` finds."""

from pathlib import Path

import pytest
import setuptools
import tomllib

import hvdtune

_ROOT = Path(__file__).parents[2]

# Without a framework, whose import would take most of the time
_WHO = "import horovod; print(getattr(horovod, 'who', None) or horovod.run.__module__)\n"
_ALIAS = "hvdtune.launcher.function"
_WITHOUT = "import hvdtune.launcher, importlib.util; print(importlib.util.find_spec('horovod'))"
_INIT = "from hvdtune.core.rank.runtime import init; init()"


@pytest.mark.parametrize(
    ("body", "under", "said"),
    [
        (_WHO + _INIT, ("run", "-np", "2"), [f"[{rank}]<stdout>:{_ALIAS}" for rank in (0, 1)]),
        ("import hvdtune.alias\n" + _WHO, (), [_ALIAS]),
        (_WITHOUT, (), ["None"]),
    ],
    ids=["hvdtune-run", "plain-python-with-a-line", "plain-python-without-the-line"],
)
def test_where_horovod_is_hvdtune(python, body, under, said):
    assert sorted(python(body, under=under).splitlines()) == said


def test_in_a_function_on_ranks_horovod_is_hvdtune():
    def look():
        import horovod

        return horovod.__file__.endswith("hvdtune/alias/horovod/__init__.py")

    assert hvdtune.run(look) == [True]


@pytest.mark.parametrize(
    ("before", "after", "under", "said"),
    [
        ("", _WHO + _INIT, ("run",), "[0]<stdout>:installed\n"),
        ("import hvdtune.alias\n", _WHO, (), "installed\n"),
        ("", "import hvdtune.alias\n" + _WHO, (), "installed\n"),
    ],
    ids=["under-hvdtune-run", "after-the-line", "before-the-line"],
)
def test_an_installed_horovod_wins(python, installed_horovod, before, after, under, said):
    assert python(before + installed_horovod + after, under=under) == said


def test_the_installed_horovod_is_imported_once_and_whole(python, installed_horovod):
    body = (
        "import hvdtune.alias\n"
        + installed_horovod
        + "import horovod, sys\n"
        + "print(horovod is sys.modules['horovod'], horovod.who, horovod.__path__)\n"
    )
    out = python(body)
    assert out.startswith("True installed [") and "site-packages/horovod" in out


def test_a_horovod_that_only_a_finder_of_its_own_knows_wins(python, installed_horovod, tmp_path):
    """As those do that pip installs with --editable."""
    body = f"""
import hvdtune.alias, importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "horovod":
            folder = {str(tmp_path / "site-packages" / "horovod")!r}
            return importlib.util.spec_from_file_location(name, folder + "/__init__.py")
sys.meta_path.append(Finder)
"""
    assert python(body + _WHO) == "installed\n"


def test_a_folder_that_is_called_horovod_does_not_win(python, tmp_path):
    (tmp_path / "horovod").mkdir()
    assert python("import hvdtune.alias\n" + _WHO) == f"{_ALIAS}\n"


def test_two_aliases_on_the_path_do_not_pass_the_import_on_for_ever(python, tmp_path):
    """A job that another installation's job has started has both."""
    other = tmp_path / "other" / "hvdtune" / "alias"
    other.mkdir(parents=True)
    body = f"""
import hvdtune.alias, os, sys
os.symlink(os.path.dirname(hvdtune.alias.__file__) + "/horovod", {str(other / "horovod")!r})
sys.path.insert(0, {str(other)!r})
"""
    assert python(body + _WHO) == f"{_ALIAS}\n"


def test_an_installed_wheel_has_every_folder_of_the_alias():
    pyproject = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    options = pyproject["tool"]["setuptools"]["packages"]["find"]
    found = setuptools.find_namespace_packages(str(_ROOT), **options)
    alias = _ROOT / "hvdtune" / "alias"
    folders = {".".join(file.parent.relative_to(_ROOT).parts) for file in alias.rglob("*.py")}
    assert len(folders) > 6
    assert folders <= set(found)
