"""The page of each scheduler and platform: commands that parse, and what of them has been run."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kit.pages import Page

ROOT = Path(__file__).parents[2]
OVERVIEW = Page("docs/schedulers.md")
PAGES = [
    "docs/mpi.md",
    *sorted(f"docs/schedulers/{p.name}" for p in ROOT.glob("docs/schedulers/*")),
]


def blocks(kind):
    """The pages' blocks of a kind, by page and number."""
    return [
        pytest.param(text, id=f"{path}-{number}")
        for path in PAGES
        for number, text in enumerate(
            re.findall(rf"^```{kind}\n(.*?)^```", Page(path).text, re.MULTILINE | re.DOTALL)
        )
    ]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_says_what_was_run_and_the_overview_leads_to_it(path):
    said = Page(path).text.partition("\n## Tests\n\n")[2]
    assert re.match("Run for real: |Not run (on|under) ", said)
    assert f"]({path.removeprefix('docs/')})" in OVERVIEW.text


@pytest.mark.parametrize("text", blocks("sh"))
def test_a_command_of_a_page_is_sound_shell(text):
    # Activating an environment is the one thing that shellcheck cannot follow.
    command = ["shellcheck", "--shell=bash", "--exclude=SC1090", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("text", blocks("python"))
def test_a_program_of_a_page_is_python(text):
    compile(text, "page", "exec")


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_request_of_a_page_is_yaml(text):
    assert isinstance(yaml.safe_load(text), dict)
