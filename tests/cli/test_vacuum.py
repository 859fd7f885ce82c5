"""``spark-pages vacuum`` and ``spark-pages leases``."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app
from spark_pages.errors import InvalidInputError
from spark_pages.log.retention import RetentionPolicy, parse_retention, retention_policy
from tests.maintenance.vacuum.stores import numbers


@pytest.fixture
def folder(tmp_path):
    url = str(tmp_path / "store")
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", numbers(1).schema)
        txn.append("t", numbers(1))
    for value in range(2):
        with store.transaction() as txn:
            txn.update_rows("t", [0, 9_000], {"x": [value, value]})
    store.close()
    return url


def run(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def test_vacuum_shows_the_plan_and_deletes_only_when_told_to(folder):
    before = {info.key for info in sp.open(folder).object_store.list("pages/")}

    planned = json.loads(run("vacuum", folder, "--retention", "1", "--json"))
    after_plan = {info.key for info in sp.open(folder).object_store.list("pages/")}
    shown = run("vacuum", folder, "--retention", "1")
    applied = json.loads(run("vacuum", folder, "--retention", "1", "--apply", "--json"))

    assert before <= after_plan
    assert planned["applied"] is False
    assert planned["reasons"]["page file"] == 2
    assert sum(each["size_bytes"] for each in planned["plan"]) == planned["size_bytes"]
    assert "page file" in shown
    assert "nothing was deleted" in shown
    assert applied["applied"] is True
    assert applied["objects"] >= planned["objects"]
    assert len({info.key for info in sp.open(folder).object_store.list("pages/")} & before) == len(before) - 2
    assert sp.open(folder).snapshot().table("t").read(stop=1).to_pylist() == [{"x": 1}]


def test_leases_are_listed(folder):
    lease = sp.open(folder).snapshot().lease(timedelta(hours=1))

    listed = json.loads(run("leases", folder, "--json"))["leases"]

    assert [each["lease_id"] for each in listed] == [lease.lease_id]
    assert lease.lease_id[:8] in run("leases", folder)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("30", 30),
        ("0", 0),
        ("7d", timedelta(days=7)),
        ("90m", timedelta(minutes=90)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_a_retention_is_a_number_of_versions_or_a_time(text, means):
    assert parse_retention(text) == means


@pytest.mark.parametrize("text", ["", "-1", "7 days", "1.5h", "d"])
def test_another_retention_is_refused(text):
    with pytest.raises(InvalidInputError, match="neither a number of versions"):
        parse_retention(text)


def test_a_retention_may_be_text():
    assert retention_policy("7d", {}) == RetentionPolicy(age_us=7 * 86_400_000_000)
    assert retention_policy("30", {}) == RetentionPolicy(versions=30)
