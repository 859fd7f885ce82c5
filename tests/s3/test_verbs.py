"""Verbs on an S3 store whose credentials only a profile knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.cli.app import app

pytestmark = pytest.mark.s3


def told(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_verbs_reach_a_store_by_the_name_of_a_profile(url: str, profile: str, tmp_path: Path) -> None:
    by = "--profile", profile

    assert told("create", url, *by)["version"] == 0
    with sp.open(url, {"profile": profile}).transaction() as txn:
        txn.create_table("t", pa.schema([("a", pa.int64())]))
        txn.append("t", pa.table({"a": range(100)}))
    assert told("sql", url, "SELECT max(a) FROM t", *by)["rows"] == [[99]]
    assert told("locate", url, "t", "a", 7, *by)["row_in_page"] == 7
    assert told("tag", url, "good", *by) == {"tag": "good", "version": 1}
    assert told("tags", url, *by)["tags"] == {"good": 1}
    assert told("restore", url, "--tag", "good", *by)["changed"] is False
    assert told("leases", url, *by) == {"leases": []}
    assert [row["version"] for row in told("history", url, *by)["history"]][-1] == 0
    assert told("verify", url, "--pages", "all", *by)["ok"]
    assert told("repair", url, *by)["steps"] == []
    assert told("report", url, tmp_path / "report.html", *by)["size_bytes"] > 10_000


def test_without_the_profile_the_store_is_not_reached(url: str, profile: str) -> None:
    told("create", url, "--profile", profile)

    assert CliRunner().invoke(app, ["info", url]).exit_code != 0
