"""The documentation as a site: mkdocs finds no link and no anchor that leads nowhere."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "docs/site.py"))


@pytest.mark.skipif(not find_spec("material"), reason="needs mkdocs-material")
def test_the_site_is_built_and_has_every_page(tmp_path):
    assert SITE["main"](tmp_path) == 0
    pages = {path.relative_to(ROOT).with_suffix("") for path in ROOT.glob("docs/**/[a-z]*.md")}
    made = {
        path.relative_to(tmp_path / "site").with_suffix("")
        for path in (tmp_path / "site/docs").rglob("*.html")
    }
    assert pages <= made
    assert (tmp_path / "site/index.html").exists()


@pytest.mark.skipif(not find_spec("material"), reason="needs mkdocs-material")
@pytest.mark.parametrize("link", ["nowhere.md", "page.md#nope"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path, monkeypatch, capsys, link):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# hvdtune\n")
    (tmp_path / "docs/README.md").write_text("# Index\n\n## Pages\n\n- [Page](page.md): one.\n")
    (tmp_path / "docs/page.md").write_text(f"# Page\n\n[there]({link})\n")
    monkeypatch.setitem(SITE["main"].__globals__, "ROOT", tmp_path)
    (tmp_path / "build").mkdir()
    assert SITE["main"](tmp_path / "build") == 1
    assert link in capsys.readouterr().err


def test_the_navigation_has_what_the_index_has():
    titles = [title for entry in SITE["navigation"]() for title in entry]
    index = (ROOT / "docs/README.md").read_text()
    assert titles[1:] == [line[3:] for line in index.splitlines() if line.startswith("## ")]
