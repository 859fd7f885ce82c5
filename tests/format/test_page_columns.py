"""Pages inside a commit: columns that do not fit each other are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_pages.format.page_columns import pages_from_avro
from spark_pages.model.added_pages import FEW_PAGES, AddedPages, NewPage, page_batches
from spark_pages.model.page import BloomLocation, PageKind, PageStats
from tests.log.records import as_read

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
WITH_NAN = replace(PAGES[0], stats=replace(PAGES[0].stats, nan=True))


def test_estimates_and_places_of_filters_are_listed_for_the_pages_that_have_them():
    pages, stats = page_batches(MORE)

    value = as_read(AddedPages(pages, stats))

    assert [value[name] for name in ("distinct", "bloom_offset", "bloom_length", "bloom_checksum")] == [
        (7).to_bytes(8, "little"),
        (12288).to_bytes(8, "little"),
        (64).to_bytes(4, "little"),
        (2**64 - 2).to_bytes(8, "little"),
    ]
    assert [each.to_pylist() for each in pages_from_avro(value).batches] == [
        pages.to_pylist(),
        stats.to_pylist(),
    ]


@pytest.mark.parametrize("name", ["distinct", "bloom_offset", "bloom_length", "bloom_checksum"])
def test_as_many_estimates_and_places_are_there_as_are_announced(name):
    value = as_read(AddedPages.of(MORE))
    for wrong in (b"", value[name] * 2, value[name][:-1]):
        with pytest.raises(ValueError, match="bytes"):
            pages_from_avro({**value, name: wrong})


def test_a_commit_of_a_release_without_estimates_and_filters_is_read():
    value = encoded()
    absent = dict.fromkeys(("distinct", "bloom_offset", "bloom_length", "bloom_checksum"), "")

    _, stats = pages_from_avro({**value, **absent}).batches

    assert stats.to_pylist() == page_batches(PAGES)[1].to_pylist()


@pytest.mark.parametrize("pages", [[PAGES[0], WITH_NAN], [WITH_NAN, PAGES[0]] * FEW_PAGES])
def test_a_page_with_a_nan_is_told_by_one_bit_and_nothing_else(pages):
    value, without = as_read(AddedPages.of(pages)), as_read(AddedPages.of([PAGES[0]] * len(pages)))

    assert [a ^ b for a, b in zip(value["given"], without["given"], strict=True)] == [
        128 if page.stats.nan else 0 for page in pages
    ]
    assert {**value, "given": b""} == {**without, "given": b""}
    assert pages_from_avro(value).batches[1].column("nan").to_pylist() == [
        True if page.stats.nan else None for page in pages
    ]


def encoded() -> dict[str, Any]:
    return as_read(AddedPages(*page_batches(PAGES)))


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


def many(times: int) -> list[NewPage]:
    constant = NewPage(
        9, 9, PageKind.CONSTANT, None, 0, 0, 70, 2**63, b"one", PageStats(9, None, None, True, 0)
    )
    return [*MORE, constant, replace(MORE[1], path="pages/y"), WITH_NAN] * times


def test_a_few_pages_are_told_in_the_same_bytes_as_columns_of_arrow():
    for listed in ([], PAGES, MORE, many(1), many(FEW_PAGES // 6)):
        assert as_read(AddedPages.of(listed)) == as_read(AddedPages(*page_batches(listed)))


def test_pages_read_as_values_are_those_read_as_columns():
    for times in (1, FEW_PAGES // 6, FEW_PAGES // 6 + 1):
        listed = many(times)

        read = pages_from_avro(as_read(AddedPages(*page_batches(listed))))

        assert (read.few is not None) == (len(listed) <= FEW_PAGES)
        assert [each.to_pylist() for each in read.batches] == [
            each.to_pylist() for each in page_batches(listed)
        ]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("kind", b"\x03"),
        ("kind", b"\xff"),
        ("entry_count", (-1).to_bytes(8, "little", signed=True)),
        ("offset", (1).to_bytes(8, "little")),
        ("alloc_len", (4095).to_bytes(4, "little")),
        ("actual_len", (63).to_bytes(4, "little")),
        ("alloc_len", bytes(4)),
        ("path", b"\xff\xff\xff\xff"),
        ("kind", b"\x02"),
        ("entry_count", (1 << 62).to_bytes(8, "little")),
    ],
)
@pytest.mark.parametrize("count", [1, FEW_PAGES + 1])
def test_numbers_that_cannot_be_true_are_refused_of_few_pages_as_of_many(name, wrong, count):
    value = as_read(AddedPages.of([PAGES[1]] * count))

    with pytest.raises(ValueError, match=r"page 0 has|more rows"):
        pages_from_avro({**value, name: wrong + value[name][len(wrong) :]})
