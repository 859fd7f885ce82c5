"""Every field that a table or ``--json`` shows is in ``docs/reference/vocabulary.md``, with one type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import spark_pages as sp
from spark_pages.changes.history import HISTORY_SCHEMA
from spark_pages.changes.page_changes import PAGE_CHANGES_SCHEMA
from spark_pages.changes.row_changes import ROW_CHANGES_SCHEMA
from spark_pages.cli.app import app
from spark_pages.query.system_layouts import LAYOUTS
from spark_pages.spark import views
from spark_pages.spark.jobs import export, reconstruct_snapshot
from spark_pages.spark.options import ViewQuery
from spark_pages.spark.publish import CHANGES, HISTORY

PAGE = Path(__file__).parents[2] / "docs/reference/vocabulary.md"
FREE = ("parameters", "properties", "tags", "reasons", "rows")
"""Their keys are what users have chosen."""

JSON_TYPES = {int: "integer", str: "text", bool: "truth", float: "number", list: "list", dict: "object"}


def vocabulary() -> Iterator[tuple[str, str, str]]:
    """Name, type in tables, and type in JSON, of each name on the page."""
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            names, table, in_json, _ = (cell.strip() for cell in line.strip("|").split(" | "))
            for name in re.findall(r"`(\w+)`", names):
                yield name, table, in_json


KNOWN = {name: (table, in_json) for name, table, in_json in vocabulary()}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of one table, with a tag, a lease, a claim and a checkpoint."""
    url = str(tmp_path_factory.mktemp("vocabulary") / "store")
    store = sp.create(url)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("n", pa.int64())]))
    for _ in range(3):
        with store.transaction() as txn:
            txn.append("t", {"n": [1, 2, 3]})
    store.tag("first", 1)
    store.snapshot().lease(timedelta(hours=1)).__enter__()
    store.claim("t", owner="me", stop=2)
    store.checkpoint()
    return url


def schemas(url: str) -> Mapping[str, pa.Schema]:
    """The columns of every table that shows metadata."""
    store = sp.open(url)
    table = store.snapshot().table("t")
    system = {
        f"system.{name}": pa.schema([pa.field(column, kind) for column, (kind, _) in layout.columns.items()])
        for name, layout in LAYOUTS.items()
    }
    query = ViewQuery("pages", 0)
    of_views = {f"view {name}": view.schema(query) for name, view in views.VIEWS.items()}
    return {
        **system,
        **of_views,
        "history": HISTORY_SCHEMA,
        "changes of rows": ROW_CHANGES_SCHEMA,
        "changes of pages": PAGE_CHANGES_SCHEMA,
        "Delta history": HISTORY.schema,
        "Delta changes": CHANGES.schema,
        "Table.pages": table.pages().schema,
        "Table.blocks": table.blocks().schema,
        "Store.claims": store.claims().schema,
        "Store.leases": store.leases().schema,
        "Store.vacuum_plan": store.vacuum_plan().objects.schema,
    }


def wrong_fields(face: str, schema: pa.Schema) -> list[str]:
    return [
        f"{face}: {field.name} is {field.type}, the page has {KNOWN.get(field.name)}"
        for field in schema
        if KNOWN.get(field.name, ("",))[0] != str(field.type)
    ]


def wrong_keys(verb: str, value: Any) -> list[str]:
    """Keys of a document that the page does not have, or has with another type."""
    if isinstance(value, list):
        return [wrong for each in value for wrong in wrong_keys(verb, each)]
    if not isinstance(value, dict):
        return []
    found = []
    for key, inside in value.items():
        if key not in KNOWN or (inside is not None and KNOWN[key][1] != JSON_TYPES[type(inside)]):
            found.append(f"{verb}: {key} is {inside!r:.60}, the page has {KNOWN.get(key)}")
        if key not in FREE:
            found += wrong_keys(verb, inside)
    return found


def test_the_columns_of_every_table_are_in_the_vocabulary(url: str) -> None:
    assert [wrong for face, schema in schemas(url).items() for wrong in wrong_fields(face, schema)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        "info {url}", "tables {url}", "history {url}", "pages {url} t", "locate {url} t n 4", "read {url} t",
        "changes {url} --start 1", "blame {url} t n 3", "tags {url}", "leases {url}", "claims {url}",
        "claim {url} t --owner you --start 5 --stop 6", "release {url} you",
        "tag {url} other", "untag {url} other",
        "delete {url} t --where n=2", "delete {url} t --where n=2 --apply", "erase {url} t --where n=3",
        "erase {url} t --where n=3 --apply",
        "restore {url} --version 3", "reset-clock {url}", "checkpoint {url} --local --publish",
        "checkpoint {url} --dry-run", "compact-log {url}", "compact-log {url} --dry-run",
        "compact-pages {url}",
        "compact-pages {url} --dry-run", "publish-delta {url}", "publish-delta {url} --dry-run",
        "vacuum {url}",
        "vacuum {url} --apply", "verify {url}", "repair {url}", "reconstruct-snapshot {url}",
        "reconstruct-snapshot {url} --dry-run", "export {url} --table t --output {url}-out --overwrite",
        "ingest {url} --table t --path {url}-out --format parquet", "tables {url}-nowhere",
        "doctor {url}-doctor",
        "report {url} {url}.html",
    ],
)  # fmt: skip
def test_the_keys_of_every_json_document_are_in_the_vocabulary(url: str, arguments: str) -> None:
    words = [word.format(url=url) for word in arguments.split()]

    result = CliRunner().invoke(app, [*words, "--json"])

    assert wrong_keys(arguments, json.loads(result.stdout)) == []


def test_json_never_holds_json_as_text(url: str) -> None:
    documents = [
        CliRunner().invoke(app, [verb, url, "--json"]).stdout for verb in ("history", "info", "tables")
    ]

    assert [found for text in documents for found in re.findall(r'"[\[{]\\?"', text)] == []


def test_maps_of_users_are_objects_and_others_stay_pairs(tmp_path: Path) -> None:
    store = sp.create(str(tmp_path / "maps"))
    kind = pa.map_(pa.string(), pa.int64())
    values = pa.array([[("a", 1), ("b", 2)], [("a", 1), ("a", 2)], None], kind)
    with store.transaction() as txn:
        txn.create_table("t", pa.schema([("m", kind), ("s", pa.struct([("inner", kind)]))]))
        txn.append("t", {"m": values, "s": pa.StructArray.from_arrays([values], ["inner"])})

    rows = json.loads(CliRunner().invoke(app, ["read", str(tmp_path / "maps"), "t", "--json"]).stdout)["rows"]

    assert [row["m"] for row in rows] == [{"a": 1, "b": 2}, [["a", 1], ["a", 2]], None]
    assert rows[0]["s"] == {"inner": {"a": 1, "b": 2}}


@pytest.mark.parametrize(
    "arguments", ["export {url} --table t --output {url}-as-of", "reconstruct-snapshot {url}"]
)
@pytest.mark.parametrize(("choice", "version"), [("--version 2", 2), ("--tag first", 1)])
def test_export_and_reconstruction_choose_a_version_alike(
    url: str, arguments: str, choice: str, version: int
) -> None:
    words = f"{arguments} {choice} --dry-run --json".format(url=url).split()

    assert json.loads(CliRunner().invoke(app, words).stdout)["version"] == version


@pytest.mark.parametrize("job", [export, reconstruct_snapshot])
def test_the_jobs_choose_a_version_as_the_verbs_do(
    url: str, job: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ["--table", "t", "--output", f"{url}-by-job"] if job is export else []

    code = job.main([url, *given, "--tag", "first", "--dry-run"])

    assert code == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["version"] == 1
