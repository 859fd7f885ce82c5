"""Comparison of two versions of a table: the verb `Store.diff`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Protocol

import pyarrow as pa

from spark_pages.arguments import as_int
from spark_pages.boundary import guarded
from spark_pages.errors import InvalidInputError
from spark_pages.query.snapshot import Snapshot


class _Comparable(Protocol):
    def snapshot(
        self, version: int | None = None, timestamp: Any = None, tag: str | None = None
    ) -> Snapshot: ...
    def changes(
        self, start: int, end: int, table: str | None = None, *, values: Literal[True]
    ) -> pa.RecordBatchReader: ...


@guarded()
class DiffVerbs:
    """Verb of a store that compares versions."""

    def diff(
        self: _Comparable, a: int | str | datetime, b: int | str | datetime, table: str
    ) -> pa.RecordBatchReader:
        """Read the rows of a table that differ between two versions, with their values in both.

        Parameters
        ----------
        a, b
            The earlier version and the later one: a number, the name of a tag, or a datetime.
        table
            The table, by its name at `b`, or at `a` where it is gone since.

        Returns
        -------
        pyarrow.RecordBatchReader
            As `changes` with `values`: ``_change`` is ``insert``, ``delete``, or ``update_before`` and
            ``update_after`` for a row that is in both, one after the other.

        Raises
        ------
        VersionNotFoundError, SnapshotExpiredError, TableNotFoundError
            If a version or the table cannot be read.
        InvalidInputError
            If `a` is later than `b`.

        Notes
        -----
        Costs what `changes` costs: it grows with what differs, not with the table.
        """
        first, last = (_version_of(self, each) for each in (a, b))
        if first > last:
            raise InvalidInputError(
                f"Cannot compare version {first} with version {last}: the first is the later one.",
                hint=f"Swap them: `store.diff({last}, {first}, …)`.",
            )
        return self.changes(first + 1, last, table, values=True)


def _version_of(store: _Comparable, given: int | str | datetime) -> int:
    if isinstance(given, str):
        return store.snapshot(tag=given).version
    if isinstance(given, datetime):
        return store.snapshot(timestamp=given).version
    return store.snapshot(as_int(given, "a version")).version
