"""What a user is told to do about damage is something that helps, by each verb and each call."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.errors import DamageError, StoreNotFoundError
from spark_pages.format.commit import decode_slot, encode_commit
from spark_pages.maintenance.repair import plan_repair
from spark_pages.maintenance.verify.faults import FaultKind
from spark_pages.maintenance.verify.verify import verify
from spark_pages.model.actions import Features
from spark_pages.storage import open_object_store
from tests.transaction.stores import QUIET

HEAD = "_log/00000000000000000002.avro"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store whose newest commit, version 2, is the only one that names a page file."""
    store = sp.create(str(tmp_path / "store"), properties=QUIET)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    with store.transaction() as txn:
        txn.append("t", {"n": np.random.default_rng(0).integers(0, 1 << 62, 40_000)})
    return tmp_path / "store"


CALLS: dict[str, Callable[[Path], object]] = {
    "snapshot": lambda folder: sp.open(str(folder)).snapshot(),
    "transaction": lambda folder: sp.open(str(folder)).transaction(),
    "history": lambda folder: sp.open(str(folder)).history(),
}


@pytest.mark.parametrize("call", CALLS)
def test_damage_of_the_head_is_raised_with_the_verb_that_reports_it(folder, call):
    (folder / HEAD).write_bytes(b"")

    with pytest.raises(DamageError) as caught:
        CALLS[call](folder)

    assert "`spark-pages verify URL`" in caught.value.hint
    shown = CliRunner().invoke(app, ["verify", str(folder)])
    assert shown.exit_code == 1
    assert HEAD in shown.output


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("slot", [0, 1, 2])
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(path.read_bytes()[::-1]),
        make_folder,
        make_link,
        make_pipe,
    ],
    ids=["empty", "cut", "reversed", "a folder", "a link", "a pipe"],
)
def test_a_store_with_a_damaged_slot_opens_with_a_warning_and_verify_names_the_slot(
    folder, slot, damage, caplog
):
    key = f"_log/{slot:020d}.avro"
    damage(folder / key)

    store = sp.open(str(folder))
    found = store.verify()

    assert key in {fault.key for fault in found.damage}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert isinstance(store.repair_plan().beyond, tuple)
    with pytest.raises((DamageError, sp.InvalidKeyError)):
        store.snapshot()


def test_a_store_of_a_newer_release_does_not_open(folder):
    store = sp.open(str(folder))
    newer = replace(decode_slot((folder / HEAD).read_bytes(), HEAD), features=Features(reader=("later",)))
    store.object_store.put(HEAD, encode_commit(newer)[0])

    with pytest.raises(sp.UnsupportedFormatError):
        sp.open(str(folder))


def test_damage_with_a_hint_of_its_own_keeps_it(folder):
    (folder / "_log/00000000000000000001.avro").unlink()

    with pytest.raises(DamageError) as caught:
        sp.open(str(folder)).snapshot()

    assert caught.value.hint.startswith("Put the object back")


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["lost", "empty"])
def test_pages_of_a_commit_that_cannot_be_read_are_not_called_orphans(folder, damage):
    with sp.open(str(folder)).transaction() as txn:
        txn.append("t", {"n": [1]})
    damage(folder / HEAD)

    found = verify(open_object_store(str(folder)))

    assert HEAD in {fault.key for fault in found.faults}
    assert FaultKind.ORPHAN not in {fault.kind for fault in found.faults}


def test_a_repair_tells_to_move_a_link_away_as_verify_does(folder, tmp_path):
    (folder / "_log/link").symlink_to(tmp_path)
    objects = open_object_store(str(folder))

    (told,), (left,) = verify(objects).damage, plan_repair(objects).beyond

    assert told.remedy.startswith("Move it away")
    assert left.remedy == told.remedy


def test_who_has_asked_for_all_pages_is_not_told_to_ask_for_them(folder):
    next(folder.glob("pages/*")).unlink()

    shown = CliRunner().invoke(app, ["verify", str(folder), "--pages", "all"])

    assert "is missing" in shown.output
    assert "--pages all" not in shown.output


@pytest.mark.parametrize("call", [verify, plan_repair])
def test_a_plain_file_is_no_store_and_no_link(tmp_path, call):
    (tmp_path / "notes.txt").write_text("no store")

    with pytest.raises(StoreNotFoundError):
        call(open_object_store(str(tmp_path / "notes.txt")))
