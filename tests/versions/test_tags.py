"""Tags: names of versions, kept in the log."""

from __future__ import annotations

import pytest

from spark_pages.errors import (
    AlreadyExistsError,
    InvalidInputError,
    SnapshotExpiredError,
    VersionNotFoundError,
)
from spark_pages.store import Store
from spark_pages.versions.tags import set_tag
from tests.transaction.stores import store_with
from tests.versions.hand import numbers, retain


@pytest.fixture
def three() -> Store:
    """Versions 0 to 4; ``t`` has no rows at 1, and ten more at each later one."""
    return store_with(numbers(0, 10), numbers(10, 20), numbers(20, 30))


def test_a_tag_names_the_version_given_or_the_newest_one(three):
    assert three.tag("first", version=2) == 2
    assert three.tag("now") == 5

    assert three.tags() == {"first": 2, "now": 5}
    assert three.snapshot(tag="first").table("t").num_rows == 10
    assert three.snapshot(tag="now").version == 5


def test_a_tag_is_seen_by_every_reader_and_survives_a_checkpoint(three):
    three.tag("first", version=2)
    three.checkpoint()

    reader = Store(three.object_store)

    assert reader.tags() == {"first": 2}
    assert reader.snapshot(tag="first").version == 2


def test_a_deleted_tag_is_gone_and_its_name_is_free(three):
    three.tag("first", version=2)

    assert three.delete_tag("first") == 2

    assert three.tags() == {}
    with pytest.raises(VersionNotFoundError, match="Cannot find tag 'first'"):
        three.snapshot(tag="first")
    assert three.tag("first", version=3) == 3


def test_deleting_a_tag_that_is_not_there_names_those_that_are(three):
    three.tag("first", version=2)

    with pytest.raises(VersionNotFoundError, match=r"Cannot find tag 'frist'.* There are 'first'"):
        three.delete_tag("frist")


def test_a_tag_moves_only_if_that_is_said(three):
    three.tag("good", version=2)

    with pytest.raises(
        AlreadyExistsError,
        match=r"Cannot tag version 3 as 'good': the tag names version 2.*replace=True.*--replace",
    ):
        three.tag("good", version=3)
    assert three.tags() == {"good": 2}
    assert three.tag("good", version=3, replace=True) == 3
    assert three.tags() == {"good": 3}


def test_setting_a_tag_where_it_is_commits_nothing(three):
    three.tag("good", version=2)
    before = three.snapshot().version

    assert three.tag("good", version=2) == 2

    assert three.snapshot().version == before


@pytest.mark.parametrize("name", ["v1", "release/2026-11", "A.b_c-d", "0", "x" * 200])
def test_names_of_tags_may_look_like_this(three, name):
    three.tag(name)

    assert list(three.tags()) == [name]


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", "/x", ".x", "x\n", "ü", "a:b", "x" * 201])
def test_other_names_are_refused_with_what_a_name_may_be(three, name):
    with pytest.raises(InvalidInputError, match=r"Cannot name a tag .*: expected 1 to 200 characters"):
        three.tag(name)
    assert three.tags() == {}


@pytest.mark.parametrize("version", [-1, 5, 99])
def test_a_version_that_never_was_is_not_tagged(three, version):
    with pytest.raises(VersionNotFoundError, match=rf"version {version}\b.*'x'.* versions 0 to 4"):
        three.tag("x", version=version)


def test_a_version_that_cannot_be_read_any_more_is_not_tagged(three):
    retain(three, 3)

    with pytest.raises(SnapshotExpiredError, match=r"version 2\b.*'x'.* versions 3 to 5"):
        three.tag("x", version=2)
    assert three.tag("x", version=3) == 3


def test_retention_that_moved_in_between_refuses_the_tag(three, monkeypatch):
    late = Store(three.object_store)
    head = late._log.refresh()
    monkeypatch.setattr(late._log, "refresh", _first(head, late._log.refresh))
    retain(three, 3)

    with pytest.raises(SnapshotExpiredError, match=r"version 2\b.*'x'.* versions 3 to 5"):
        set_tag(late._log, late._runtime, "x", 2, replace=False)
    assert three.tags() == {}


def test_of_two_that_set_one_tag_at_once_the_later_is_told(three, monkeypatch):
    late = Store(three.object_store)
    head = late._log.refresh()
    monkeypatch.setattr(late._log, "refresh", _first(head, late._log.refresh))
    three.tag("x", version=2)

    with pytest.raises(AlreadyExistsError, match="as 'x': the tag names version 2"):
        set_tag(late._log, late._runtime, "x", 3, replace=False)
    assert three.tags() == {"x": 2}


def test_the_newest_version_is_the_one_seen_when_the_tag_was_asked_for(three, monkeypatch):
    late = Store(three.object_store)
    head = late._log.refresh()
    monkeypatch.setattr(late._log, "refresh", _first(head, late._log.refresh))
    with three.transaction() as txn:
        txn.append("t", numbers(30, 40))

    assert set_tag(late._log, late._runtime, "x", None, replace=False) == 4
    assert three.tags() == {"x": 4}


def _first(value, then):
    """Gives the value once, and goes on as before."""
    values = [value]
    return lambda: values.pop() if values else then()
