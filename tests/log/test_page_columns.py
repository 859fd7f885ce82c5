"""Pages inside a commit: columns that do not fit each other are refused."""

from __future__ import annotations

import pytest

from spark_pages.log.page_columns import pages_from_avro, pages_to_avro
from spark_pages.model.page import BloomLocation, PageKind, PageStats
from spark_pages.model.run import NewPage, page_batches

PAGES = [
    NewPage(3, 3, PageKind.INLINE, None, 0, 0, 80, 1, b"page", PageStats(0, b"a", b"", True)),
    NewPage(
        4, 4, PageKind.FILE, "pages/x", 4096, 4096, 80, 2**64 - 1, None, PageStats(None, None, None, None)
    ),
]


MORE = [
    *PAGES,
    NewPage(
        *(5, 5, PageKind.FILE, "pages/x", 8192, 4096, 80, 3, None),
        PageStats(1, None, None, False, 7, BloomLocation(12288, 64, 2**64 - 2)),
    ),
]


def test_estimates_and_places_of_filters_are_listed_for_the_pages_that_have_them():
    pages, stats = page_batches(MORE)

    value = pages_to_avro(pages, stats)

    assert [value[name] for name in ("distinct", "bloom_offset", "bloom_length", "bloom_checksum")] == [
        (7).to_bytes(8, "little"),
        (12288).to_bytes(8, "little"),
        (64).to_bytes(4, "little"),
        (2**64 - 2).to_bytes(8, "little"),
    ]
    assert [each.to_pylist() for each in pages_from_avro(value)] == [pages.to_pylist(), stats.to_pylist()]


@pytest.mark.parametrize("name", ["distinct", "bloom_offset", "bloom_length", "bloom_checksum"])
def test_as_many_estimates_and_places_are_there_as_are_announced(name):
    value = pages_to_avro(*page_batches(MORE))
    for wrong in (b"", value[name] * 2, value[name][:-1]):
        with pytest.raises(ValueError, match="bytes"):
            pages_from_avro({**value, name: wrong})


def test_a_commit_of_a_release_without_estimates_and_filters_is_read():
    value = encoded()
    absent = dict.fromkeys(("distinct", "bloom_offset", "bloom_length", "bloom_checksum"), "")

    _, stats = pages_from_avro({**value, **absent})

    assert stats.to_pylist() == page_batches(PAGES)[1].to_pylist()


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
