"""The pages do what they say: every block of a session is run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    "README.md": 20,
    "docs/caches.md": 8,
    "docs/catalog.md": 9,
    "docs/changing-tables.md": 7,
    "docs/erasing.md": 9,
    "docs/errors.md": 3,
    "docs/loading.md": 12,
    "docs/notebooks.md": 11,
    "docs/other-libraries.md": 10,
    "docs/reading.md": 6,
    "docs/registering-pages.md": 18,
    "docs/retention.md": 12,
    "docs/service.md": 20,
    "docs/sql.md": 10,
    "docs/statistics.md": 14,
    "docs/tutorial.md": 20,
    "docs/types.md": 11,
    "docs/versions.md": 12,
    "docs/writing.md": 10,
}
"""Pages, and how many examples each has at least."""


@pytest.mark.parametrize(("page", "least"), EXAMPLES.items(), ids=EXAMPLES)
def test_the_examples_of_a_page_run(
    page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    result = doctest.testfile(
        str(ROOT / page),
        module_relative=False,
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
        encoding="utf-8",
    )

    assert result.attempted >= least
    assert result.failed == 0
