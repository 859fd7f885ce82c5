from __future__ import annotations

import errno
import os
import pickle
import time
from pathlib import Path

import pytest

from spark_pages.errors import InvalidInputError, InvalidKeyError, ObjectNotFoundError, StorageError
from spark_pages.storage import Created, Doubtful, DurableLocalStore, Exists, NotCreated, open_object_store
from tests.contract.store_contract import StoreContract

NOW_US = 10**18


def failing(code: int):
    def fail(*_args: object, **_options: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order of syncs (``file``, ``folder``), links and renames."""
    events: list[str] = []
    fsync, link, rename = os.fsync, os.link, os.rename

    def tell_fsync(descriptor: int) -> None:
        events.append("sync folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "sync file")
        fsync(descriptor)

    def tell_link(*args: object, **options: object) -> None:
        events.append("link")
        link(*args, **options)

    def tell_rename(*args: object, **options: object) -> None:
        events.append("rename")
        rename(*args, **options)

    monkeypatch.setattr(os, "fsync", tell_fsync)
    monkeypatch.setattr(os, "link", tell_link)
    monkeypatch.setattr(os, "rename", tell_rename)
    return events


class TestLocalStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableLocalStore:
        return DurableLocalStore(tmp_path / "store")


class TestLocalStoreWithoutNamelessFiles(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DurableLocalStore:
        store = DurableLocalStore(tmp_path / "store")
        store._nameless_files = False
        return store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> DurableLocalStore:
    return DurableLocalStore(root)


def test_a_create_syncs_the_file_before_the_link_and_the_folder_after_it(store, traced):
    store.create("_log/0", b"x")
    traced.clear()

    outcome = store.create("_log/1", b"x")

    assert outcome == Created()
    assert traced == ["sync file", "link", "sync folder"]


def test_a_create_by_a_named_temporary_keeps_the_same_order(store, traced):
    store._nameless_files = False
    store.create("_log/0", b"x")
    traced.clear()

    store.create("_log/1", b"x")

    assert traced == ["sync file", "link", "sync folder"]


def test_a_put_syncs_the_file_before_the_rename_and_the_folder_after_it(store, traced):
    store.put("pages/0", b"x")
    traced.clear()

    store.put("pages/1", b"x")

    assert traced == ["sync file", "rename", "sync folder"]


def test_every_folder_on_the_way_is_synced_before_the_first_object_in_it(store, traced):
    store.create("a/b/c/object", b"x")

    parent_of_root, root_itself, a, b = traced[:4]
    assert {parent_of_root, root_itself, a, b} == {"sync folder"}
    assert traced[4:] == ["sync file", "link", "sync folder"]


def test_a_folder_that_another_writer_made_is_synced_all_the_same(root, store, traced):
    (root / "_log").mkdir(parents=True)

    store.create("_log/0", b"x")

    assert traced == ["sync folder", "sync file", "link", "sync folder"]


def test_a_key_that_is_taken_is_told_only_after_its_folder_was_synced(store, traced):
    store.create("_log/0", b"x")
    traced.clear()

    assert store.create("_log/0", b"y") == Exists()
    assert traced == ["sync folder"]


def test_a_create_below_what_is_no_folder_surely_made_nothing(tmp_path):
    (tmp_path / "file").write_bytes(b"x")

    outcome = DurableLocalStore(tmp_path / "file").create("_log/0", b"y")

    assert isinstance(outcome, NotCreated)
    assert "ENOTDIR" in outcome.reason
    assert "A file lies where a folder" in outcome.hint


@pytest.mark.parametrize("call", ["link", "fsync", "write"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_create_that_fails_before_or_at_the_link_leaves_nothing_and_says_which_it_was(
    root, store, monkeypatch, call, code
):
    store.create("_log/0", b"x")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(code))
        outcome = store.create("_log/1", b"y")

    assert isinstance(outcome, Doubtful if call == "link" else NotCreated)
    assert errno.errorcode[code] in outcome.reason
    assert os.listdir(root / "_log") == ["0"]
    assert store.create("_log/1", b"y") == Created()


def test_a_create_whose_folder_cannot_be_synced_is_doubtful_although_the_object_is_there(
    store, monkeypatch, traced
):
    store.create("_log/0", b"x")
    tell = os.fsync

    def fail_for_folders(descriptor: int) -> None:
        tell(descriptor)
        if traced[-1] == "sync folder":
            raise OSError(errno.EIO, "disk")

    monkeypatch.setattr(os, "fsync", fail_for_folders)

    assert isinstance(store.create("_log/1", b"y"), Doubtful)
    assert isinstance(store.create("_log/1", b"y"), Doubtful)
    assert store.get("_log/1") == b"y"


def test_a_put_that_fails_keeps_the_old_object_and_leaves_no_temporary(root, store, monkeypatch):
    store.put("hint", b"old")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing(errno.ENOSPC))
        with pytest.raises(StorageError, match="ENOSPC"):
            store.put("hint", b"new")

    assert store.get("hint") == b"old"
    assert os.listdir(root / "_tmp") == []


def test_a_file_system_without_nameless_files_falls_back_to_named_ones(store, monkeypatch):
    really_open = os.open

    def without_tmpfile(path, flags, *args, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE here")
        return really_open(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", without_tmpfile)

    assert store.create("_log/0", b"x") == Created()
    assert store.get("_log/0") == b"x"
    assert [info.key for info in store.list("")] == ["_log/0"]


def test_short_writes_and_short_reads_are_carried_on(store, monkeypatch):
    write, pread = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    monkeypatch.setattr(os, "pread", lambda descriptor, n, offset: pread(descriptor, min(n, 3), offset))

    store.create("_log/0", b"0123456789")

    assert store.get("_log/0") == b"0123456789"
    assert store.get_range("_log/0", 2, 7) == b"2345678"


@pytest.mark.parametrize("linked", ["folder", "file"])
def test_a_link_below_the_root_is_refused_by_every_read_and_not_listed(tmp_path, root, store, linked):
    store.put("pages/real", b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    if linked == "folder":
        (root / "away").symlink_to(outside)
    else:
        (root / "away").mkdir()
        (root / "away" / "secret").symlink_to(outside / "secret")

    for read in (
        lambda: store.get("away/secret"),
        lambda: store.get_range("away/secret", 0, 1),
        lambda: store.size("away/secret"),
        lambda: store.local_path("away/secret"),
    ):
        with pytest.raises(InvalidKeyError, match="symbolic link"):
            read()
    assert [info.key for info in store.list("")] == ["pages/real"]


def test_no_write_goes_through_a_link_below_the_root(tmp_path, root, store):
    store.put("pages/real", b"x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    (root / "away").symlink_to(outside)

    for write in (
        lambda: store.create("away/new", b"x"),
        lambda: store.put("away/new", b"x"),
        lambda: store.delete("away/kept"),
        lambda: store.list("away/"),
    ):
        with pytest.raises(InvalidKeyError, match="symbolic link"):
            write()
    assert os.listdir(outside) == ["kept"]


def test_opening_a_store_and_reading_from_it_makes_no_folder(root, store):
    with pytest.raises(ObjectNotFoundError):
        store.get("_log/0")

    assert store.list("") == []
    assert not root.exists()


def test_a_local_path_leads_to_the_bytes_of_the_object(store):
    store.put("pages/1", b"bytes")

    assert Path(store.local_path("pages/1")).read_bytes() == b"bytes"


def test_files_that_are_named_by_no_key_are_not_listed(root, store):
    store.put("pages/1", b"x")
    (root / "README").write_bytes(b"")
    (root / "pages" / "1#0").write_bytes(b"")

    assert [info.key for info in store.list("")] == ["pages/1"]


def test_a_sweep_removes_old_temporaries_and_spares_young_ones(root, store):
    store.put("pages/1", b"x")
    (root / "_tmp" / ("ab" * 16)).write_bytes(b"half")

    assert store.sweep_temporaries(before_us=(time.time_ns() // 1_000) - 60_000_000) == 0
    assert store.sweep_temporaries(before_us=NOW_US) == 1
    assert os.listdir(root / "_tmp") == []


def test_a_local_store_survives_pickling(store):
    store.put("pages/1", b"x")

    again = pickle.loads(pickle.dumps(store))  # noqa: S301  our own bytes

    assert again.get("pages/1") == b"x"
    assert again.url == store.url


def test_path_url_relative_path_and_home_lead_to_the_same_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "with space"
    open_object_store(root).put("pages/1", b"x")

    by_url = (root.as_uri(), root.as_uri().replace("file://", "file:"), root.as_uri().replace("file", "FILE"))
    for address in (str(root), *by_url, "with space", "~/with space", f"{root}/"):
        opened = open_object_store(address)
        assert opened.get("pages/1") == b"x"
        assert opened.url == root.as_uri()
    assert [each.name for each in tmp_path.iterdir()] == ["with space"]


@pytest.mark.parametrize("address", ["", "file://host/path", "file://relative", "ftp://x/y", "http://x/y"])
def test_an_address_that_names_no_store_is_refused_with_what_is_known(address):
    with pytest.raises(InvalidInputError) as caught:
        open_object_store(address)

    assert "file://" in str(caught.value)


def test_options_for_a_path_are_refused_without_showing_their_values(tmp_path):
    with pytest.raises(InvalidInputError, match="secret_access_key") as caught:
        open_object_store(tmp_path, {"secret_access_key": "CANARY"})

    assert "CANARY" not in str(caught.value)


def test_keys_of_one_folder_are_looked_for_by_a_single_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DurableLocalStore(str(tmp_path))
    store.put("_log/a", b"one")
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more)
    )

    found = store.stamps([f"_log/{name}" for name in "abcdefghi"])

    assert found[1:] == [None] * 8
    assert opened == [f"{tmp_path.resolve()}/_log"]
