"""The frame of the documentation site: its navigation and its pictures."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = "reference/command-line.md"
CONCEPTS = ("page", "chain", "commit", "checkpoint", "snapshot", "transaction")


def pages(entries: list[Any]) -> list[str]:
    """The pages that a part of the navigation names, in order."""
    named: list[str] = []
    for entry in entries:
        for value in [entry] if isinstance(entry, str) else entry.values():
            named.extend([value] if isinstance(value, str) else pages(value))
    return named


def test_the_navigation_names_every_page_once():
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} | {GENERATED}

    assert sorted(pages(nav)) == sorted(written)


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_picture_of_the_concepts_is_the_one_that_its_script_draws(name: str):
    drawn = runpy.run_path(str(DOCS / "images" / "concepts.py"))["PICTURES"][name]()

    assert drawn == (DOCS / "images" / f"concept_{name}.svg").read_text(encoding="utf-8")


def test_every_command_has_a_section_in_the_generated_page():
    text = runpy.run_path(str(DOCS / "reference" / "command_line.py"))["page"]()

    for verb in ("create", "read", "vacuum", "serve"):
        assert f"\n## {verb}\n" in text
