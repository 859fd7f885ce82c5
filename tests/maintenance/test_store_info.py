"""A store tells its identity, format, properties, and who holds what."""

from __future__ import annotations

from datetime import timedelta

import pytest

import spark_pages as sp
from spark_pages.errors import InvalidInputError
from tests.cli.test_verbs import run, run_json


@pytest.fixture
def url(tmp_path):
    address = str(tmp_path / "store")
    store = sp.create(address, properties={"retention_versions": "9"})
    store.sql("CREATE TABLE t (a BIGINT)")
    store.sql("INSERT INTO t VALUES (1), (2)")
    return address


def test_properties_of_a_store_are_read_and_unset(url):
    store = sp.open(url)
    with store.transaction() as txn:
        txn.set_properties({"retention_versions": "7", "owner": "ann"})
    assert dict(store.properties) == {"owner": "ann", "retention_versions": "7"}

    with store.transaction() as txn:
        txn.set_properties({"retention_versions": None})

    assert dict(sp.open(url).properties) == {"owner": "ann"}


def test_properties_of_a_store_are_read_only(url):
    with pytest.raises(TypeError):
        sp.open(url).properties["owner"] = "bob"


def test_a_property_that_a_store_cannot_have_is_refused_where_it_is_set(url):
    with pytest.raises(InvalidInputError, match="retention_versions"), sp.open(url).transaction() as txn:
        txn.set_properties({"retention_versions": "many"})


def test_info_shows_format_properties_tags_claims_and_leases(url):
    store = sp.open(url)
    store.tag("first", 1)
    store.claim("t", owner="ann")
    with store.snapshot().lease(timedelta(minutes=5)):
        found = store.info()

    assert found.format_version >= 1
    assert found.store_id
    assert dict(found.properties) == {"retention_versions": "9"}
    assert dict(found.tags) == {"first": 1}
    assert {each["owner"] for each in found.claims.to_pylist()} == {"ann"}
    assert found.leases.num_rows == 1


def test_info_is_the_same_as_json(url):
    sp.open(url).claim("t", owner="ann")

    facts = run_json("info", url)

    found = sp.open(url).info()
    assert facts["store_id"] == found.store_id
    assert (facts["format_version"], facts["properties"]) == (
        found.format_version,
        {"retention_versions": "9"},
    )
    assert (facts["reader_features"], facts["writer_features"]) == (
        list(found.reader_features),
        list(found.writer_features),
    )
    assert (facts["leases"], facts["tags"]) == ([], {})
    assert [each["owner"] for each in facts["claims"]] == ["ann"] * found.claims.num_rows


def test_info_of_people_is_one_line_for_each_fact(url):
    result = run("info", url)

    assert result.exit_code == 0
    assert "retention_versions=9" in result.stdout
