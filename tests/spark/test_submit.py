from __future__ import annotations

import pytest

import spark_pages as sp
from spark_pages.errors import MissingDependencyError, TableNotFoundError
from spark_pages.spark import submit
from spark_pages.spark.session import find_java
from tests.spark.conftest import History

needs_java = pytest.mark.skipif(find_java() is None, reason="spark-submit needs Java, and there is none")


@needs_java
def test_the_compaction_job_runs_by_spark_submit(own_history: History) -> None:
    rows = own_history.store.snapshot().table("flights").read()

    result = submit("compact_pages", [own_history.url, "--table", "flights"])

    after = sp.open(own_history.url).snapshot()
    assert result["version"] == after.version == own_history.latest + 1
    assert result["pages_after"] < result["pages_before"]
    assert after.table("flights").read().equals(rows)


@needs_java
def test_the_reconstruction_job_runs_by_spark_submit(history: History) -> None:
    result = submit("reconstruct_snapshot", [history.url])

    assert result["equal_to_local"]
    assert result["version"] == history.latest


@needs_java
def test_the_error_of_a_job_arrives_as_the_class_that_it_was(history: History) -> None:
    with pytest.raises(TableNotFoundError, match="absent"):
        submit("compact_pages", [history.url, "--table", "absent", "--dry-run"])


@needs_java
def test_a_job_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingDependencyError, match="no_such_job"):
        submit("no_such_job", [])
