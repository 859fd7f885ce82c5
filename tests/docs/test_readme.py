"""Links of the README and the pages lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted([README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])

GENERATED = [ROOT / "docs" / "reference" / "command-line.md"]
"""Pages that `make docs` writes; a test of the site says that it can."""


def headings(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub forms them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(page: Path) -> list[tuple[Path, str]]:
    """File and anchor of every relative link of a page."""
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    split = [target.partition("#") for target in targets if "://" not in target]
    return [((page.parent / name) if name else page, anchor) for name, _, anchor in split]


def named(page: Path) -> list[Path]:
    """Files, folders and modules that the text of a page names; rooms of the package without its name."""
    text = page.read_text(encoding="utf-8")
    rooms = re.findall(r"`((?:tables|log|io|storage|catalog|model)/[\w/]+\.py)`", text)
    files = re.findall(r"`((?:spark_pages|tests|benchmarks|jobs|conf|notebooks|docs)/[\w./-]+)`", text)
    modules = re.findall(r"python -m ((?:benchmarks|tests)[\w.]*\w)", text)
    return [
        *(ROOT / "spark_pages" / room for room in rooms),
        *(ROOT / file for file in files),
        *(ROOT.joinpath(*module.split(".")) for module in modules),
    ]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_commands_of_the_readme_are_in_the_makefile(target):
    readme, makefile = README.read_text(encoding="utf-8"), (ROOT / "Makefile").read_text(encoding="utf-8")

    assert f"\nmake {target} " in readme
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page):
    missing = [str(file) for file, _ in links(page) if file not in GENERATED and not file.exists()]
    astray = [anchor for file, anchor in links(page) if anchor and anchor not in headings(file)]

    assert (missing, astray) == ([], [])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_and_module_that_a_page_names_is_there(page):
    missing = [str(path) for path in named(page) if not (path.exists() or path.with_suffix(".py").exists())]

    assert missing == []


def test_the_figures_of_the_readme_are_those_of_the_page_on_performance():
    costs = README.read_text(encoding="utf-8").partition("## What it costs")[2].partition("\n## ")[0]
    told = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")

    figures = re.findall(r"(?<![\d,.])\d[\d,.]*\d(?= [µm]s| KB| a second|;| to )", costs)
    assert len(figures) > 25
    assert [figure for figure in figures if not re.search(rf"(?<![\d,.]){re.escape(figure)}", told)] == []


def test_the_picture_of_the_readme_is_the_one_that_its_script_draws():
    script = ROOT / "docs" / "images" / "chain_strip.py"

    drawn = runpy.run_path(str(script))["draw"]().svg

    assert drawn + "\n" == script.with_suffix(".svg").read_text(encoding="utf-8")
