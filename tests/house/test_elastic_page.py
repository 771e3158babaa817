"""The page about elastic training: its script runs, and it names every option."""

import pytest

from hvdtune.cli.checks import NOT_ELASTIC
from hvdtune.cli.options import RunOptions
from hvdtune.cli.parameters import rows_of, spelling_of
from tests.kit.pages import Page
from tests.kit.programs import run_cli

PAGE = Page("docs/elastic.md")


@pytest.mark.slow
def test_the_script_goes_on_without_a_rank_that_is_killed(tmp_path):
    script = PAGE.block("script")
    kill = (
        "import os\n"
        "if os.environ['HVDTUNE_WORKER'] == '1' and sampler.processed_num >= 16:\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    step = "            optimizer.step()\n"
    assert step in script
    indented = "".join(f"            {line}\n" for line in kill.splitlines())
    (tmp_path / "train.py").write_text(script.replace(step, indented + step))
    done = run_cli(
        *["run", "-np", "2", "--min-np", "1", "-H", "localhost:2", "train.py"], folder=tmp_path
    )
    assert "rank 0 of 1: epoch 2" in done.stdout
    assert "generation 1 has 1 rank" in done.stderr


def test_the_page_names_what_elastic_jobs_are_not_combined_with():
    named = {"--storage", "--mpi", "--keep-timelines", "--thread-affinity"}
    rows = rows_of(RunOptions)
    assert named < {spelling_of(rows[name]) for name in NOT_ELASTIC}
    assert all(f"`{option}`" in PAGE.text for option in named)


@pytest.mark.parametrize(
    "option", ["--min-np", "--elastic-timeout", "--reset-limit", "--blacklist-cooldown-range"]
)
def test_the_page_explains_the_option(option):
    assert f"`{option}" in PAGE.text or f" {option} " in PAGE.text
