"""Documents whose code blocks are tested: those below a line `<!-- docs-test: NAME -->`."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Page:
    """A document and its tested blocks; `path` is relative to the repository."""

    def __init__(self, path: str) -> None:
        self.text = (ROOT / path).read_text()

    def block(self, name: str) -> str:
        found = re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", self.text, re.DOTALL)
        assert found is not None, f"no block {name}"
        return found[1]

    def commands(self) -> list[str]:
        return [line for line in self.block("commands").splitlines() if line.strip()]


def words_of(command: str) -> list[str]:
    """Return the words that follow `hvdtune` in a command of a page."""
    program, *words = shlex.split(command, comments=True)
    assert program == "hvdtune", command
    return words
