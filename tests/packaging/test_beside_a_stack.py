"""What pip does to the environment of a training stack that hvdtune's wheel comes into."""

import json
import subprocess
import sys

import pytest

from tests.packaging.conftest import ROOT

# Frameworks are downloaded and installed.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
_SIZE = """
import importlib.metadata, sys
files = [file for name in sys.argv[1:] for file in importlib.metadata.files(name)]
print(sum(path.stat().st_size for path in {file.locate() for file in files} if path.is_file()))
"""


def pinned(package):
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.partition("==")[0] == package)


class Fresh:
    """A virtual environment with these packages, and what they need, and nothing else."""

    def __init__(self, folder, *packages):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        self._python = folder / "bin" / "python"
        self.pip("install", "-q", *packages)

    def run(self, *words):
        command = [self._python, *words]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    def pip(self, *words):
        return self.run("-m", "pip", "--disable-pip-version-check", *words)

    def packages(self):
        found = json.loads(self.pip("list", "--format", "json"))
        return {package["name"]: package["version"] for package in found}


@pytest.mark.parametrize(
    "stack",
    [(pinned("torch"), "numpy==1.26.4"), (pinned("tensorflow_cpu"),)],
    ids=["torch-and-numpy-1", "tensorflow"],
)
def test_pip_adds_little_and_changes_nothing(built, tmp_path, stack):
    environment = Fresh(tmp_path / "environment", *stack)
    before = environment.packages()
    environment.pip("install", "-q", str(built.wheel))
    after = environment.packages()
    assert after | before == after
    added = after.keys() - before.keys()
    assert len(added) <= 6
    assert int(environment.run("-c", _SIZE, *added)) <= 15e6
    environment.run("-c", "import hvdtune")
