"""Libraries that train through DDP, as PyPI has them: docs/distributed-trainers.md."""

import re
import socket

import pytest

from tests.kit import third_party
from tests.kit.pages import Page

PAGE = Page("docs/distributed-trainers.md")

pytestmark = [
    pytest.mark.slow,  # imports torch and such a library in six processes
    third_party.is_needed("trainers"),
]


def losses(folder, script, command, **variables):
    """What each rank says of its loss."""
    _, *words = command.replace("SCRIPT", script).split()
    module = {"torchrun": "torch.distributed.run", "hvdtune": "hvdtune"}[command.split()[0]]
    said = third_party.run("trainers", "-m", module, *words, folder=folder, **variables)
    found = dict(re.findall(r"rank (\d) of 2: (\S+)", said))
    assert sorted(found) == ["0", "1"], said
    return [float(found[rank]) for rank in sorted(found)]


@pytest.mark.parametrize("name", ["lightning", "accelerate", "trainer"])
def test_each_trains_as_over_gloo(name, tmp_path):
    text = PAGE.block(f"{name}.py")
    # Not by the library's own name, which the script imports.
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "over_gloo.py").write_text(text.replace('"hvdtune"', '"gloo"'))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if name == "lightning" else {}
    by_torchrun, by_hvdtune = PAGE.commands()
    expected = losses(tmp_path, "over_gloo.py", by_torchrun)
    assert expected[0] > 0
    for command, variables in ((by_torchrun, {}), (by_hvdtune, meet)):
        found = losses(tmp_path, "train.py", command, **variables)
        assert found == pytest.approx(expected, rel=1e-5)
