"""A store that is removed while it is in use: nothing is acknowledged that nobody could read again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import spark_pages as sp
from spark_pages.errors import StoreExistsError, StoreNotFoundError
from spark_pages.format.names import HINT_KEY, commit_key

NUMBERS = pa.schema([("n", pa.int64())])
ROWS = {"n": list(range(100_000))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with a table, a commit and a checkpoint."""
    with sp.create(str(tmp_path / "store")) as store:
        with store.transaction() as txn:
            txn.create_table("t", NUMBERS)
            txn.append("t", {"n": [1]})
        store.checkpoint()
    return tmp_path / "store"


@pytest.mark.parametrize("part", ["", "_log"])
@pytest.mark.parametrize("wrote", [True, False], ids=["a writer", "one who has only read"])
@pytest.mark.parametrize("rows", [{"n": [1]}, ROWS], ids=["inline", "with files"])
def test_a_commit_into_a_store_that_was_removed_is_an_error_and_leaves_nothing(
    folder: Path, part: str, wrote: bool, rows: dict[str, list[int]]
) -> None:
    store = sp.open(str(folder))
    assert store.snapshot().table("t").read().num_rows == 1
    if wrote:
        with store.transaction() as txn:
            txn.append("t", ROWS)
    shutil.rmtree(folder / part)

    with (
        pytest.raises(StoreNotFoundError, match=r"is missing\. Nothing was written"),
        store.transaction() as txn,
    ):
        txn.append("t", rows)

    assert not (folder / "_log").exists()
    assert part or not folder.exists()


def test_a_store_can_be_made_where_one_was_removed_and_be_used(folder: Path) -> None:
    old = sp.open(str(folder))
    shutil.rmtree(folder)

    new = sp.create(str(folder))

    with new.transaction() as txn:
        txn.create_table("u", NUMBERS)
    assert old.url == new.url
    assert sp.open(str(folder)).snapshot().tables() == ["u"]


@pytest.mark.parametrize("left", [[commit_key(1)], [HINT_KEY], ["_log/checkpoints/x.parquet"]], ids=str)
def test_a_store_does_not_begin_among_the_remains_of_another(url: str, left: list[str]) -> None:
    old = sp.create(url)
    for info in old.object_store.list(""):
        old.object_store.delete(info.key)
    for key in left:
        old.object_store.put(key, b"of another log")

    with pytest.raises(StoreExistsError, match=f"remains of one.* 1 objects of a log, such as {left[0]}"):
        sp.create(url)

    assert [info.key for info in old.object_store.list("")] == left


def test_pages_and_what_others_keep_there_are_no_remains(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "mine.txt").write_text("mine")

    store = sp.create(str(tmp_path))

    assert store.snapshot().version == 0
