"""Pictures of real stores: what is drawn is what the store holds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages import pictures
from spark_pages.display.markup import BLUE, GREEN, INK, ORANGE
from spark_pages.errors import ColumnNotFoundError
from spark_pages.pictures.charts import log_of
from spark_pages.store import Store
from tests.display.reading import assert_plain_svg, elements

NOISE = np.random.default_rng(1).integers(0, 1 << 60, 60_000)
"""Too many bytes for the log itself, so that they go to a file."""

ROWS = pa.table({"id": pa.array(range(60_000), pa.int64()), "name": NOISE})


@pytest.fixture
def filled(store: Store) -> Store:
    with store.transaction("make") as txn:
        txn.create_table("things", ROWS.schema)
    with store.transaction("fill") as txn:
        txn.append("things", ROWS)
    return store


def words(picture: pictures.Picture) -> list[str]:
    return elements(picture.svg).words


def fills(picture: pictures.Picture, name: str) -> list[str | None]:
    return [attributes.get("fill") for tag, attributes in elements(picture.svg).found if tag == name]


def test_a_chain_is_drawn_beside_an_earlier_version_of_itself(filled):
    before = filled.snapshot().table("things")
    with filled.transaction() as txn:
        txn.update_rows("things", [5], {"id": [-5]})
    now = filled.snapshot().table("things")
    pages = now.directory.chain("id").num_pages

    picture = pictures.chain(now, "id", before)

    assert_plain_svg(picture.svg)
    assert {"things.id", "version 3", "version 2"} <= set(words(picture))
    assert f"{pages} pages, 60,000 rows, 1 of the pages new" in words(picture)


def test_a_chain_of_a_column_that_is_not_there_is_refused(filled):
    with pytest.raises(ColumnNotFoundError):
        pictures.chain(filled.snapshot().table("things"), "nmae")


def test_pages_that_the_log_holds_are_told_from_those_in_files(filled):
    with filled.transaction() as txn:
        txn.append("things", ROWS.slice(0, 1))

    picture = pictures.chain(filled.snapshot().table("things"), "name")

    assert "in the log" in words(picture)
    assert any(word.endswith(".pages") for word in words(picture))


def test_the_log_shows_kinds_rebases_and_checkpoints(filled):
    filled.checkpoint()
    slow = filled.transaction("slow")
    slow.append("things", ROWS.slice(0, 1))
    with filled.transaction("quick") as txn:
        txn.append("things", ROWS.slice(0, 1))
    slow.commit()
    for _ in range(3):
        with filled.transaction("small") as txn:
            txn.append("things", ROWS.slice(0, 1))
    (done,) = filled.compact_pages("things")
    filled.tag("after", done["version"])

    picture = pictures.log(filled)

    history = filled.history()
    history = history.filter(history.column("transaction").is_valid())
    dots = fills(picture, "circle")
    assert len(dots) == history.num_rows
    assert (dots.count(ORANGE), dots.count(GREEN), dots.count(INK)) == (1, 2, 2)
    assert dots.count(BLUE) == history.num_rows - 5
    assert f"{history.num_rows} transactions, 1 rebase" in words(picture)
    assert "checkpoint" in words(picture)


def test_a_checkpoint_that_no_commit_has_told_of_yet_is_in_the_log(filled):
    assert "checkpoint" not in words(pictures.log(filled))

    filled.checkpoint()

    assert "checkpoint" in words(pictures.log(filled))


def test_the_log_can_be_limited_to_the_newest_versions(filled):
    assert "1 transaction, 0 rebases" in words(pictures.log(filled, limit=1))


def test_a_history_without_rows_is_a_picture_too(filled):
    assert "nothing was committed" in words(log_of("empty", filled.history().slice(0, 0), 1))


def test_a_compaction_is_drawn_with_the_pages_before_and_after(filled):
    for _ in range(20):
        with filled.transaction() as txn:
            txn.append("things", ROWS.slice(0, 3_000))
    before = filled.snapshot().table("things")
    filled.compact_pages("things")
    after = filled.snapshot().table("things")

    picture = pictures.compaction(before, after)

    counts = [before.directory.chain("id").num_pages, after.directory.chain("id").num_pages]
    assert counts[0] > counts[1]
    assert any(word.startswith(f"{counts[0]} → {counts[1]} pages, ") for word in words(picture))


def test_a_cache_is_drawn_from_the_differences_of_its_statistics(url, filled):
    table = sp.open(url).snapshot().table("things")
    calls = {}
    for name in ("cold", "again"):
        before = table.page_handler.stats()
        table.read(["name"])
        calls[name] = table.page_handler.stats() - before

    picture = pictures.cache(calls)

    n = table.directory.chain("name").num_pages
    assert f"{2 * n} pages in 2 calls, 50% without storage" in picture.caption
    assert {"cold", "again", f"decoded: {n}", f"storage: {n}"} <= set(words(picture))
    assert {"call 1", "2"} <= set(words(pictures.cache(calls.values())))


def test_a_waterfall_has_a_line_for_each_request_of_a_stranger(filled):
    filled.snapshot().table("things").read(["name"])
    filled.checkpoint()

    picture = pictures.waterfall(filled, lambda s: s.snapshot().table("things").take([59_999], ["name"]))

    keys = [word for word in words(picture) if word.startswith(("_log/", "pages/"))]
    assert keys[0] == "_log/_last_checkpoint"
    assert sum(key.startswith("pages/") for key in keys) == 1
    assert {"commit", "checkpoint", "pages"} <= set(words(picture))


def test_a_question_that_fails_raises_its_error(filled):
    with pytest.raises(ColumnNotFoundError):
        pictures.waterfall(filled, lambda s: s.snapshot().table("things").read(["nmae"]))
