"""The specification names everything that is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_pages.catalog.table_zero import table_zero
from spark_pages.format import commit_schema, segment
from spark_pages.format.pages.page_header import PAGE_MAGIC
from spark_pages.model.actions import IntentKind
from spark_pages.model.page_schema import PAGE_SCHEMA, STATS_SCHEMA

FORMAT = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")


def avro_names(schema: Any) -> Iterator[str]:
    """Names of records and fields in an Avro schema, however deep."""
    if isinstance(schema, list):
        for each in schema:
            yield from avro_names(each)
    elif isinstance(schema, dict):
        if schema.get("type") == "record":
            yield schema["name"].rpartition(".")[2]
        for field in schema.get("fields", []):
            yield field["name"]
            yield from avro_names(field["type"])
        yield from avro_names(schema.get("items"))


NAMES = sorted(
    {
        *avro_names(commit_schema.COMMIT_SCHEMA),
        *PAGE_SCHEMA.names,
        *STATS_SCHEMA.names,
        *segment.SEGMENT_SCHEMA.names,
        *segment.NODE_SCHEMA.names,
        *table_zero(0).schema.names,
        *(kind.value for kind in IntentKind),
        PAGE_MAGIC.decode(),
    }
)


def test_the_walk_over_the_schema_of_a_commit_reaches_its_depths():
    assert {"CommitHeader", "Splice", "removed_entries", "original_length", "fence"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_specification_names_every_field_and_column(name):
    assert re.search(rf"`(spark_pages\.)?{name}`", FORMAT), f"docs/format.md does not name `{name}`"


@pytest.mark.parametrize("title", ["Layout", "Commits", "Rebase", "Statistics"])
def test_the_sections_that_the_code_refers_to_exist(title):
    assert f"\n## {title}\n" in FORMAT
