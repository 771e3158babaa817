"""Builds the documentation as a site: `python docs/site.py` writes build/site, by mkdocs.

The pages are those of the repository, with what they link to. Their order is that of the index,
docs/README.md. A link or an anchor that leads nowhere is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[1]
_LINK: Final = re.compile(r"\]\(([^)#\s]+)")
_ENTRY: Final = re.compile(r"^- \[([^]]+)\]\(([^)#]+)\)", re.MULTILINE)
_SECTION: Final = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_AREA: Final = re.compile(r"^## \[([^]]+)\]\(([^)]+)\)", re.MULTILINE)

# Anchors are those that the pages have on GitHub.
_SLUGS: Final = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"


def main(target: Path) -> int:
    """Builds the site in `target`/site; returns mkdocs's exit code."""
    source = target / "site-source"
    shutil.rmtree(source, ignore_errors=True)
    for path in _needed():
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    config = target / "mkdocs.yml"
    config.write_text(yaml.safe_dump(_config(target), sort_keys=False).replace("GITHUBS", _SLUGS))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config]
    # Else it advertises its successor. Quiet, it would not count its warnings either.
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
    return done.returncode


def navigation() -> list[dict[str, Any]]:
    """The pages in the order of the index, by section, the areas of decisions below theirs."""
    index = (ROOT / "docs/README.md").read_text()
    found: list[dict[str, Any]] = [{"hvdtune": "README.md"}]
    for title, body in _SECTION.findall(index):
        pages = [{name: _from_root(path)} for name, path in _ENTRY.findall(body)]
        found.append({title: [_with_areas(page) for page in pages]})
    return found


def _with_areas(page: dict[str, Any]) -> dict[str, Any]:
    ((title, path),) = page.items()
    if path != "docs/decisions/README.md":
        return page
    areas = _AREA.findall((ROOT / path).read_text())
    return {title: [path, *({name: f"docs/decisions/{area}"} for name, area in areas)]}


def _from_root(path: str) -> str:
    return (ROOT / "docs" / path).resolve().relative_to(ROOT).as_posix()


def _needed() -> set[Path]:
    """The pages, and every file of the repository that one of them links to."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("studies/**/*.md")]
    linked = {
        (page.parent / target).resolve()
        for page in pages
        for target in _LINK.findall(page.read_text())
        if "://" not in target
    }
    return {*pages, *(path for path in linked if path.is_file())}


def _config(target: Path) -> dict[str, Any]:
    return {
        "site_name": "hvdtune",
        "docs_dir": str(target / "site-source"),
        "site_dir": str(target / "site"),
        "use_directory_urls": False,  # so that it can be read from a folder, without a server
        "theme": {"name": "material", "font": False, "features": ["navigation.indexes"]},
        "plugins": ["search"],
        "markdown_extensions": [
            "tables",
            "pymdownx.superfences",
            {"toc": {"permalink": True, "slugify": "GITHUBS"}},
        ],
        "validation": {
            "omitted_files": "ignore",
            "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"},
        },
        "nav": navigation(),
    }


if __name__ == "__main__":
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    sys.exit(main(build))
