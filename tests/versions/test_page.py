"""docs/versions.md does what it says."""

from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "versions.md"


def test_the_blocks_of_the_page_about_versions_run():
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=options, encoding="utf-8")

    assert result.attempted >= 12
    assert result.failed == 0
