"""Opening a version: by number, time and tag, and what is said where it cannot be read."""

from __future__ import annotations

import pytest

from spark_pages.errors import SnapshotExpiredError, VersionNotFoundError
from spark_pages.log.retention import check_version
from spark_pages.log.state import LogState
from spark_pages.model.actions import Retention, Tag
from spark_pages.store import Store
from tests.transaction.stores import store_with
from tests.versions.hand import commit, numbers, record, retain


@pytest.fixture
def kept() -> Store:
    """Versions 0 to 6, of which 3 and later can be read; a faulty writer has tagged version 2 ``old``."""
    store = store_with(numbers(0, 10), numbers(10, 20), numbers(20, 30))
    retain(store, 3)
    commit(store, record(store, tags=(Tag("old", 2),)))
    return store


def test_a_version_before_the_oldest_kept_is_refused_by_name_with_the_range(kept):
    with pytest.raises(SnapshotExpiredError, match=r"version 2\b.*versions 3 to 6") as refused:
        kept.snapshot(version=2)
    assert (refused.value.context["oldest"], refused.value.context["newest"]) == (3, 6)
    assert kept.snapshot(version=3).table("t").num_rows == 20


def test_a_time_before_the_oldest_kept_is_refused_by_name_with_the_range(kept):
    (second,) = kept._log.commits(2, 3)

    with pytest.raises(SnapshotExpiredError, match=r"version 2 \(as of .* UTC\).*3 to 6"):
        kept.snapshot(timestamp=second.timestamp_us)


def test_a_tag_of_a_version_before_the_oldest_kept_is_refused_by_name_with_the_range(kept):
    with pytest.raises(SnapshotExpiredError, match=r"version 2 \(tag 'old'\).*versions 3 to 6"):
        kept.snapshot(tag="old")


def test_restoring_a_version_before_the_oldest_kept_is_refused(kept):
    with pytest.raises(SnapshotExpiredError, match=r"version 2\b.*versions 3 to 6"):
        kept.restore(version=2)
    assert kept.snapshot().version == 6


@pytest.mark.parametrize(("start", "end"), [(2, 5), (0, 5), (3, 3)])
def test_changes_from_before_the_oldest_kept_are_refused(kept, start, end):
    with pytest.raises(SnapshotExpiredError, match="versions 3 to 6"):
        kept.changes(start, end)


def test_a_version_not_yet_made_is_not_there_rather_than_expired(kept):
    with pytest.raises(VersionNotFoundError, match=r"version 7\b.*versions 3 to 6") as refused:
        kept.snapshot(version=7)
    assert not isinstance(refused.value, SnapshotExpiredError)


def test_versions_from_the_oldest_kept_to_the_head_can_be_read_and_no_others():
    state = LogState(version=9, retention=Retention(0, 4))

    assert [_readable(state, version) for version in (-1, 0, 3, 4, 9, 10)] == [
        VersionNotFoundError,
        SnapshotExpiredError,
        SnapshotExpiredError,
        None,
        None,
        VersionNotFoundError,
    ]


def _readable(state, version):
    try:
        check_version(state, version)
    except VersionNotFoundError as error:
        return type(error)
    return None
