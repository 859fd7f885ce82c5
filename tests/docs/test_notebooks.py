from __future__ import annotations

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "notebooks.md"


def test_the_page_on_notebooks_does_what_it_says() -> None:
    failures, examples = doctest.testfile(
        str(PAGE),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
        encoding="utf-8",
    )

    assert (failures, examples > 10) == (0, True)
