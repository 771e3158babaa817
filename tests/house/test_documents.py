"""Every page is found from the index, every link leads somewhere, every decision is dated."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs/decisions").glob("[a-z]*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/**/*.md")])


def name(path):
    return str(path.relative_to(ROOT))


def links(page):
    """The files that a page links to, without their anchors."""
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file(page):
    assert [str(target) for target in links(page) if not target.exists()] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("[a-z]*.md")), ids=name)
def test_the_index_lists_every_page(page):
    assert page in links(ROOT / "docs/README.md")


@pytest.mark.parametrize("page", DECISIONS, ids=name)
def test_every_decision_is_dated_and_in_the_index(page):
    index = " ".join((ROOT / "docs/decisions/README.md").read_text().split())
    for title, body in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S):
        assert re.match(r"\s+\*\d{4}-\d{2}-\d{2}\.\* [\w`*]", body), f"{title} has no date"
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        assert f"- [{title}]({page.name}#{anchor})" in index
