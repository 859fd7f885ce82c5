from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from spark_pages.cli.app import app
from spark_pages.log.names import HINT_KEY, commit_key
from spark_pages.storage import open_object_store
from tests.upkeep.stores import rich_store


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def run_json(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.stderr == ""
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def url(tmp_path: Path) -> str:
    rich_store(str(tmp_path / "store"))
    return str(tmp_path / "store")


def test_a_whole_store_verifies_with_exit_code_0(url: str) -> None:
    code, told = run_json("verify", url, "--pages", "all")

    assert code == 0
    assert told["ok"] is True
    assert told["pages_read"] == told["pages"] > 0
    assert told["faults"] == []


def test_damage_gives_exit_code_1_and_is_named(url: str) -> None:
    open_object_store(url).delete(commit_key(2))

    code, told = run_json("verify", url)
    plain = run("verify", url)

    assert (code, plain.exit_code) == (1, 1)
    assert [fault["key"] for fault in told["faults"]] == [commit_key(2)]
    assert commit_key(2) in plain.stdout


def test_a_repair_is_only_planned_unless_told_to_apply(url: str) -> None:
    objects = open_object_store(url)
    key = objects.list("_log/segments/")[0].key
    objects.delete(key)

    planned = run("repair", url)
    still_lost = run_json("verify", url)[0]
    code, applied = run_json("repair", url, "--apply")
    whole = run_json("verify", url)[0]
    nothing_left = run("repair", url)

    assert (planned.exit_code, still_lost, code, whole, nothing_left.exit_code) == (1, 1, 0, 0, 0)
    assert key in planned.stdout
    assert "--apply" in planned.stderr
    assert [step["key"] for step in applied["steps"]] == [key]
    assert applied["lost"] == []
    assert "nothing to mend" in nothing_left.stderr


def test_what_is_beyond_repair_gives_exit_code_1(url: str) -> None:
    open_object_store(url).delete(commit_key(2))

    code, told = run_json("repair", url, "--apply")

    assert code == 1
    assert [each["object"] for each in told["lost"]] == [commit_key(2)]


def test_a_notice_is_no_damage(url: str) -> None:
    open_object_store(url).delete(HINT_KEY)

    code, told = run_json("verify", url)

    assert code == 0
    assert [fault["harmless"] for fault in told["faults"]] == [True]


def test_verifying_no_store_is_told_as_not_found(tmp_path: Path) -> None:
    code, told = run_json("verify", tmp_path / "none")

    assert code == 4
    assert told["error"]["type"] == "StoreNotFoundError"


def test_the_doctor_passes_a_local_disk(tmp_path: Path) -> None:
    code, told = run_json("doctor", tmp_path / "new")

    assert code == 0
    assert told["ok"] is True
    assert {"check", "status", "found", "remedy"} == set(told["checks"][0])


def test_the_doctor_fails_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    code, told = run_json("doctor", tmp_path / "file" / "store")

    assert code == 1
    assert told["ok"] is False
    assert [check["check"] for check in told["checks"] if check["status"] == "failed"] == ["reach"]
