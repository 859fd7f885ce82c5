"""The files of tests/sql, each on a store of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql.logic import records, run_file, run_file_in_duckdb

FILES = sorted(Path(__file__).parent.glob("*.test"))
ABOUT_NAMES = [path for path in FILES if path.stem in ("names", "scopes", "joins", "aliases")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_record_of_the_file_holds(path, store):
    wrong = run_file(path, store)

    assert wrong == []


@pytest.mark.parametrize("path", ABOUT_NAMES, ids=lambda path: path.stem)
def test_duckdb_finds_the_same_names_and_refuses_the_same_but_where_the_file_says_otherwise(path):
    otherwise, as_here = run_file_in_duckdb(path)

    assert otherwise == []
    assert as_here == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("statement ok\nSELECT 1 FROM nowhere\n", "TableNotFoundError"),
        ("statement error nothing like this\nSELECT 1 FROM nowhere\n", "expected error"),
        ("statement error x\nSELECT 1\n", "expected error"),
        ("query I\nSELECT 1\n----\n2\n", "expected ['2'], found ['1']"),
        ("query T\nSELECT 1\n----\n1\n", "expected columns T"),
        ("query I\nSELECT 1\n----\n1\n1\n", "expected ['1', '1']"),
    ],
)
def test_a_file_that_does_not_hold_is_noticed(text, told, tmp_path, store):
    path = tmp_path / "wrong.test"
    path.write_text(text)

    (wrong,) = run_file(path, store)

    assert told in wrong


def test_the_files_say_something():
    counts = {path.stem: sum(1 for _ in records(path)) for path in FILES}

    assert len(counts) >= 5
    assert min(counts.values()) >= 8
