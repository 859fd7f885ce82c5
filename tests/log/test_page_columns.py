"""Pages inside a commit: columns that do not fit each other are refused."""

from __future__ import annotations

import pytest

from spark_pages.log.page_columns import pages_from_avro, pages_to_avro
from spark_pages.model.page import PageKind, PageStats
from spark_pages.model.run import NewPage, page_batches

PAGES = [
    NewPage(3, 3, PageKind.INLINE, None, 0, 0, 80, 1, b"page", PageStats(0, b"a", b"", True)),
    NewPage(
        4, 4, PageKind.FILE, "pages/x", 4096, 4096, 80, 2**64 - 1, None, PageStats(None, None, None, None)
    ),
]


def encoded() -> dict[str, object]:
    return pages_to_avro(*page_batches(PAGES))


def test_nothing_is_written_for_what_a_page_does_not_have():
    value = encoded()

    assert (value["data"], value["min"], value["max"]) == ([b"page"], [b"a"], [b""])
    assert list(value["given"])[1] & (1 | 2 | 4 | 16) == 0
    assert value["entry_count"] == (3).to_bytes(8, "little") + (4).to_bytes(8, "little")


@pytest.mark.parametrize(
    "name",
    ["entry_count", "payload_entries", "kind", "path", "offset", "alloc_len", "actual_len", "checksum"],
)
def test_a_column_of_another_length_is_refused(name):
    for wrong in (encoded()[name][:-1], encoded()[name] + b"\0", b""):
        with pytest.raises(ValueError, match="bytes"):
            pages_from_avro({**encoded(), name: wrong})


@pytest.mark.parametrize("name", ["data", "min", "max"])
def test_values_that_nobody_announced_or_that_are_missing_are_refused(name):
    for wrong in ([], [b"one", b"two"]):
        with pytest.raises(ValueError, match="announced"):
            pages_from_avro({**encoded(), name: wrong})


@pytest.mark.parametrize("index", [1, -2, 2**31 - 1])
def test_a_path_that_is_not_listed_is_refused(index):
    wrong = index.to_bytes(4, "little", signed=True) * 2

    with pytest.raises(ValueError, match="path"):
        pages_from_avro({**encoded(), "path": wrong})
