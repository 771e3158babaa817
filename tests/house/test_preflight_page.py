"""The commands of docs/preflight.md work, and its figures are the code's."""

import pytest

from hvdtune.launcher.preflight import advice, way
from hvdtune.workflows import preflight
from tests.kit.pages import Page, words_of
from tests.kit.programs import call_cli

PAGE = Page("docs/preflight.md")


@pytest.mark.parametrize("command", PAGE.commands())
def test_a_command_of_the_page_works(command, tmp_path):
    assert call_cli(*words_of(command), folder=tmp_path)


@pytest.mark.parametrize(
    "said",
    [
        f"the shortest of {preflight._CLOCK_ROUND_TRIPS} round trips",
        f"more than {advice._MOST_CLOCK_OFFSET_MS / 1000:g} s off",
        f"less than {advice._LEAST_SHM_BYTES >> 20} MiB free",
        f"up to {way._MOST_ROUND_TRIPS} round trips and {way._MOST_BLOCKS} blocks of up to "
        f"{way._LAST_BLOCK_BYTES >> 20} MiB",
        f"{advice._OWN_FILES} and {advice._FILES_FOR_A_RANK} for each rank",
        f"and {preflight._CONNECT_S:g} s more where a firewall",
    ],
)
def test_the_figures_of_the_page_are_the_codes(said):
    assert said in " ".join(PAGE.text.split())
