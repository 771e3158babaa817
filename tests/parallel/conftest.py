"""What tests of jobs share that no launcher of ours has started."""

from contextlib import ExitStack

import pytest

from tests.parallel.told_processes import SCRIPT, Processes


@pytest.fixture
def processes(tmp_path):
    """What starts processes; those that still run then end with the test."""
    tmp_path.chmod(0o700)
    with ExitStack() as stack:
        yield Processes(tmp_path, stack)


@pytest.fixture
def train(tmp_path):
    """A script whose ranks say in a line each what they were told."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("print(json.dumps(said)", "print('said ' + json.dumps(said)"))
    return str(script)
