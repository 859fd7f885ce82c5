"""Which public methods the rules of state machines have called."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import spark_pages as sp
from spark_pages.transaction.registration import StagedDirectory

HERE = str(Path(__file__).parent)
CLASSES = (sp.Store, sp.Snapshot, sp.Table, sp.PageDirectory, StagedDirectory, sp.Transaction)

FOR_OTHER_MODULES = "for other modules of the package, and in no document: "
NOT_DRIVEN = {
    "PageDirectory.load": FOR_OTHER_MODULES + "page compaction: `tests/maintenance/test_page_compaction.py`",
    "PageDirectory.check_lengths": FOR_OTHER_MODULES
    + "what a read compares: `tests/query/test_row_counts.py`",
    "PageDirectory.of_unfinished": FOR_OTHER_MODULES + "what a transaction that registers pages shows",
    "PageDirectory.reopen": FOR_OTHER_MODULES + "what reads again after a vacuum",
    "PageDirectory.pages_from": FOR_OTHER_MODULES + "the pages of a Spark task",
    "Snapshot.reopen": FOR_OTHER_MODULES + "what reads again after a vacuum",
    "Snapshot.table_of": FOR_OTHER_MODULES + "a table by its definition",
    "Snapshot.uncommitted": FOR_OTHER_MODULES + "what a transaction shows",
    "Snapshot.watched": FOR_OTHER_MODULES + "what a serializable transaction shows",
    "Store.erase": "rows erased for good: `tests/maintenance/erase`",
    "Store.resume_erase": "rows erased for good: `tests/maintenance/erase`",
    "Store.append": "one append in a transaction: `tests/transaction/test_loading.py`",
    "Store.table": "a table of the latest snapshot: `tests/query/test_dataset.py`",
    "Store.tables": "tables of the latest snapshot: `tests/query/test_dataset.py`",
    "Store.version": "version of the latest snapshot: `tests/query/test_dataset.py`",
    "Store.write": "one append in a transaction: `tests/transaction/test_loading.py`",
    "Store.clear_caches": "what caches hold: `tests/api/test_cache_budgets.py`",
    "Store.claim": "claims by name: `tests/maintenance/test_claims.py`",
    "Store.claims": "claims by name: `tests/maintenance/test_claims.py`",
    "Store.release_claims": "claims by name: `tests/maintenance/test_claims.py`",
    "Store.reset_clock": "clocks that are ahead: `tests/versions/test_clock.py`",
    "PageDirectory.dead_rows": "deleted rows: `test_deleted_rows.py`",
    "PageDirectory.marks": "deleted rows: `test_deleted_rows.py`",
    "Snapshot.dataset": "as other libraries read tables: `tests/query/test_dataset.py`",
    "Snapshot.duckdb": "as other libraries read tables: `tests/sql/test_duckdb_connection.py`",
    "StagedDirectory.reopen": FOR_OTHER_MODULES + "what reads again after a vacuum",
    "Table.are_live": "deleted rows: `test_deleted_rows.py`",
    "Table.count_rows": "rows by position, samples and counts: `tests/query/test_table_views.py`",
    "Table.dataset": "as other libraries read tables: `tests/query/test_dataset.py`",
    "Store.diff": "`changes` with values under other arguments: `tests/versions/test_diff.py`",
    "Table.batches": "shards, order and resuming: `tests/query/test_batches.py`",
    "Table.head": "rows by position, samples and counts: `tests/query/test_table_views.py`",
    "Table.marks": "deleted rows: `test_deleted_rows.py`",
    "Table.row_numbers": "deleted rows: `test_deleted_rows.py`",
    "Table.rows_at": "rows by position, samples and counts: `tests/query/test_table_views.py`",
    "Table.sample": "rows by position, samples and counts: `tests/query/test_table_views.py`",
    "Table.scan_polars": "as other libraries read tables: `tests/query/test_dataset.py`",
    "Table.to_pandas": "as other libraries read tables: `tests/query/test_dataset.py`",
    "Table.to_polars": "as other libraries read tables: `tests/query/test_dataset.py`",
    "Table.candidate_rows": FOR_OTHER_MODULES + "the rows of a Spark task",
    "Table.filter_columns": FOR_OTHER_MODULES + "the columns of a Spark task",
    "Table.page_folder": FOR_OTHER_MODULES + "where Spark tasks write",
    "Table.page_handler": FOR_OTHER_MODULES + "what page compaction reads by",
    "Table.page_options": FOR_OTHER_MODULES + "how Spark tasks write",
    "Table.reopen": FOR_OTHER_MODULES + "what reads again after a vacuum",
    "Table.rows_in": FOR_OTHER_MODULES + "the rows of a Spark task",
    "Table.rows_to_read": FOR_OTHER_MODULES + "the rows of a Spark task",
    "Transaction.purge_rows": "page compaction calls it: `tests/transaction/test_purged_rows.py`",
    "Transaction.delete": "deleted rows: `test_deleted_rows.py`",
    "Transaction.overwrite": "`tests/transaction/test_row_verbs.py`",
    "Transaction.sql": "random statements: `tests/sql/test_random_changes.py`",
    "Transaction.update": "conditions: `tests/transaction/test_row_verbs.py`",
    "Transaction.refresh": FOR_OTHER_MODULES + "what goes on after a vacuum",
    "Transaction.replace_pages": "what page compaction calls; `test_one_truth.py` compacts by hand",
    "Transaction.append_written": "takes what Spark tasks have written: `tests/spark/test_write.py`",
}
"""Public methods that no rule calls, and why."""


def public_methods() -> set[str]:
    """``Class.method`` of all, where the class defines it or gets it from one that nobody sees."""
    return {f"{owner.__name__}.{name}" for owner in CLASSES for name in _names(owner)}


def _names(owner: type) -> list[str]:
    known = {name for base in owner.__mro__[1:] if base in CLASSES for name in dir(base)}
    return [
        name
        for name in dir(owner)
        if not name.startswith("_")
        and (name not in known or name in vars(owner))
        and isinstance(inspect.getattr_static(owner, name), property | type(_names))
    ]


@contextmanager
def recording() -> Iterator[set[str]]:
    """Inside, the public methods that something in this folder calls get into the set."""
    called: set[str] = set()

    def noting(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(work)
        def noted(*given: Any, **named: Any) -> Any:
            if sys._getframe(1).f_code.co_filename.startswith(HERE):
                called.add(name)
            return work(*given, **named)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        for owner in CLASSES:
            for name in _names(owner):
                found = inspect.getattr_static(owner, name)
                full = f"{owner.__name__}.{name}"
                if isinstance(found, property):
                    assert found.fget is not None
                    patch.setattr(owner, name, property(noting(full, found.fget)))
                else:
                    patch.setattr(owner, name, noting(full, found))
        yield called
