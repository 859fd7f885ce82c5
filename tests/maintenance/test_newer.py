"""What a newer release has written is no damage and is not mended, and nobody is told to repair it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from spark_pages.cli.app import app
from spark_pages.errors import UnsupportedFormatError
from spark_pages.format.commit import encode_commit
from spark_pages.format.names import HINT_KEY, commit_key
from spark_pages.format.pages import page_header
from spark_pages.log.checkpoint import root
from spark_pages.log.compaction import compacted_range
from spark_pages.log.compaction.compacted_range import CompactedRange, decode_range, encode_range
from spark_pages.maintenance.repair import plan_repair
from spark_pages.maintenance.verify.faults import UPGRADE, FaultKind
from spark_pages.maintenance.verify.verify import verify
from spark_pages.model.actions import Features
from spark_pages.storage.store import ObjectStore
from spark_pages.store import Store
from tests.log.newer import ask, content
from tests.log.records import commit, record
from tests.maintenance.stores import keys_of, rich_store


@pytest.fixture
def rich(url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    return rich_store(url, monkeypatch)


def newest_root(store: Store) -> str:
    """Key of the root that opening begins with."""
    return max(keys_of(store, "_log/checkpoints/"))


def name_a_checkpoint(store: Store) -> None:
    """There is a new checkpoint, and a commit names it."""
    store.checkpoint()
    with store.transaction() as txn:
        txn.append("u", pa.table({"x": [1]}))


def newer_root(store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """A newer release has made the newest checkpoint, and commits name it; gives its key."""
    with monkeypatch.context() as newer:
        newer.setattr(root, "FORMAT_VERSION", 2)
        newer.setattr(root, "check_readable", lambda *_: None)
        name_a_checkpoint(store)
    return newest_root(store)


def check_left_alone(objects: ObjectStore, newer: str) -> None:
    """The store is told to be newer than this release, nothing else is, and nothing is written to it."""
    before = content(objects)

    found = verify(objects, pages="all")
    plan = plan_repair(objects, pages="all")

    assert [(fault.kind, fault.key) for fault in found.faults] == [(FaultKind.NEWER, newer)]
    assert plan.steps == ()
    assert plan.refused.startswith(f"{newer} was written by a newer release.")
    assert f"refused: {plan.refused}" in repr(plan)
    assert plan.refused in plan._repr_html_()
    assert plan.beyond == found.damage
    assert "repair" not in repr(found) + repr(plan.beyond)
    with pytest.raises(UnsupportedFormatError, match="newer release"):
        plan.execute()
    assert content(objects) == before


def test_a_root_of_a_newer_release_is_left_alone_and_the_store_stays_refused(
    rich: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = newer_root(rich, monkeypatch)

    check_left_alone(rich.object_store, newer)

    with pytest.raises(UnsupportedFormatError):
        Store(rich.object_store).snapshot()


def test_a_commit_of_a_newer_release_is_left_alone(rich: Store) -> None:
    version = rich.snapshot().version + 1
    ask(rich, Features(reader=("holograms",)))

    check_left_alone(rich.object_store, commit_key(version))


def test_a_compacted_range_of_a_newer_release_is_left_alone(
    rich: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    around = CompactedRange(0, 3)
    rich.compact_log()
    slots = decode_range(rich.object_store.get(around.key), around)
    with monkeypatch.context() as newer:
        newer.setattr(compacted_range, "FORMAT_VERSION", 2)
        rich.object_store.put(around.key, encode_range(0, slots))

    check_left_alone(rich.object_store, around.key)


def test_a_page_of_a_newer_release_is_left_alone(rich: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    page = rich.snapshot().table("u").pages().to_pylist()[0]
    with monkeypatch.context() as newer:
        newer.setattr(page_header, "PAGE_FORMAT_VERSION", 2)
        found = verify(rich.object_store, pages="all")

    assert page["path"] in {fault.key for fault in found.damage}
    assert {fault.kind for fault in found.damage} == {FaultKind.NEWER}
    assert "repair" not in repr(found)


def test_a_catalog_of_a_newer_release_is_told_as_such(rich: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise UnsupportedFormatError("The catalog has columns that this release does not know.")

    monkeypatch.setattr("spark_pages.maintenance.verify.verify.stored_table_zero", refuse)

    check_left_alone(rich.object_store, commit_key(rich.snapshot().version))


@pytest.fixture
def frozen(rich: Store) -> Store:
    """A store whose writers must know more, and which has lost a root and its hint."""
    name_a_checkpoint(rich)
    ask(rich)
    rich.object_store.delete(newest_root(rich))
    rich.object_store.put(HINT_KEY, b"?")
    return Store(rich.object_store)


def test_what_is_broken_where_writers_must_know_more_is_left_to_a_newer_release(frozen: Store) -> None:
    before = content(frozen.object_store)

    found = verify(frozen.object_store)
    plan = plan_repair(frozen.object_store)

    assert [fault.kind for fault in found.damage] == [FaultKind.MISSING]
    assert [fault.remedy for fault in found.damage] == [UPGRADE]
    assert UPGRADE in {fault.remedy for fault in found.notices if fault.kind is FaultKind.HINT}
    assert "spark-pages repair" not in repr(found)
    assert plan.steps == ()
    assert "frozen-pages" in plan.refused
    assert plan.beyond == found.damage
    with pytest.raises(UnsupportedFormatError, match="frozen-pages"):
        plan.execute()
    assert content(frozen.object_store) == before


def test_a_whole_store_whose_writers_must_know_more_needs_no_repair(rich: Store) -> None:
    ask(rich)

    plan = plan_repair(rich.object_store)

    assert (plan.steps, plan.beyond, plan.refused) == ((), (), "")


@pytest.mark.parametrize("features", [Features(writer=("frozen-pages",)), Features(reader=("holograms",))])
def test_a_plan_from_before_a_newer_release_came_is_not_executed(rich: Store, features: Features) -> None:
    newest = newest_root(rich)
    data = rich.object_store.get(newest)
    rich.object_store.delete(newest)
    plan = plan_repair(rich.object_store)
    rich.object_store.put(newest, data)
    ask(rich, features)
    rich.object_store.delete(newest)
    before = content(rich.object_store)

    with pytest.raises(UnsupportedFormatError):
        plan.execute()

    assert plan.steps
    assert content(rich.object_store) == before


def test_a_slot_that_a_newer_release_has_put_back_is_not_overwritten(rich: Store) -> None:
    rich.compact_log()
    rich.object_store.delete(commit_key(3))
    plan = plan_repair(rich.object_store)
    newer = replace(commit(3, record(1)), features=Features(reader=("holograms",)))
    rich.object_store.put(commit_key(3), encode_commit(newer)[0])
    before = content(rich.object_store)

    with pytest.raises(UnsupportedFormatError):
        plan.execute()

    assert plan.steps
    assert content(rich.object_store) == before


def test_the_verb_says_why_it_mends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = rich_store(str(tmp_path / "store"))
    newer = newer_root(store, monkeypatch)
    before = content(store.object_store)

    shown = CliRunner().invoke(app, ["repair", store.url, "--apply"])
    told = CliRunner().invoke(app, ["repair", store.url, "--apply", "--json"])

    assert (shown.exit_code, told.exit_code) == (1, 1)
    assert "was written by a newer release" in shown.output
    assert "nothing to mend" not in shown.output
    answer = json.loads(told.stdout)
    assert (answer["applied"], answer["steps"]) == (False, [])
    assert answer["refused"].startswith(f"{newer} was written by a newer release.")
    assert [each["key"] for each in answer["lost"]] == [newer]
    assert content(store.object_store) == before
