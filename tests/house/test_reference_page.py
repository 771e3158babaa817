"""docs/reference.md is what the tables say."""

import runpy
from pathlib import Path

REFERENCE = runpy.run_path(str(Path(__file__).parents[2] / "docs/reference.py"))


def test_the_page_is_made_of_the_tables_as_they_are():
    assert REFERENCE["PAGE"].read_text() == REFERENCE["render"](), "run python docs/reference.py"
