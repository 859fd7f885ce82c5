"""What a connected store tells of its log; methods of `StoreClient`."""

from __future__ import annotations

from typing import Any, Literal

import pyarrow as pa

from spark_pages.arguments import MOST_NUMBER, as_choice, as_int, as_str
from spark_pages.catalog.resolve import split_name
from spark_pages.changes.feed import check_version_range
from spark_pages.changes.history import HISTORY_SCHEMA
from spark_pages.changes.page_changes import PAGE_CHANGES_SCHEMA
from spark_pages.changes.row_changes import ROW_CHANGES_SCHEMA
from spark_pages.errors import DamageError
from spark_pages.log.commit_times import as_datetime
from spark_pages.service.client import ServiceClient
from spark_pages.service.log_queries import TAGS_SCHEMA
from spark_pages.service.wire import table_of
from spark_pages.versions.blame import Blame
from spark_pages.versions.leases import LEASES_SCHEMA

_GRANULARITIES = {"pages": PAGE_CHANGES_SCHEMA, "rows": ROW_CHANGES_SCHEMA}


class LogVerbs:
    """Calls of a connected store about its log.

    Notes
    -----
    The service reads commits for each of these calls, as an opened store does.
    """

    _calls: ServiceClient

    def history(self, limit: int | None = None) -> pa.Table:
        """List transactions and upkeep of the log, newest first; see `Store.history`.

        Raises
        ------
        AccessDeniedError
            If the token does not allow the namespace ``system``.

        Notes
        -----
        One call for each 1,024 versions.
        """
        left = None if limit is None else as_int(limit, "limit", "a number of rows, 0 or more", 0)
        parts: list[pa.Table] = []
        end: int | None = None
        while True:
            header, batches = self._calls.get("history", limit=left, end=end)
            parts.append(table_of(batches, HISTORY_SCHEMA))
            first, oldest = _whole(header, "first"), _whole(header, "oldest")
            left = None if left is None else left - parts[-1].num_rows
            if first <= oldest or (left is not None and left <= 0):
                return pa.concat_tables(parts)
            if end is not None and first > end:
                raise DamageError("Cannot use the answer of the service: its history does not go on.")
            end = first - 1

    def changes(
        self,
        start: int,
        end: int,
        table: str | None = None,
        granularity: Literal["pages", "rows"] = "pages",
    ) -> pa.Table:
        """Read what the commits from version `start` to `end` changed, both included; see `Store.changes`.

        Raises
        ------
        AccessDeniedError
            If the token does not allow the namespace of the table, or, without a table, all namespaces.
        InvalidInputError
            Also if the range has more than 4,096 versions, or the answer more than the service sends at once.
        VersionNotFoundError, SnapshotExpiredError, TableNotFoundError

        Notes
        -----
        One call. Changed values are read by `spark_pages.open(url).changes(…, values=True)`.
        """
        schema = _GRANULARITIES[as_choice(granularity, "granularity", tuple(_GRANULARITIES))]
        start, end = check_version_range(start, end)
        named = {} if table is None else _named(table)
        _, batches = self._calls.get("changes", start=start, end=end, granularity=granularity, **named)
        return table_of(batches, schema)

    def tags(self) -> dict[str, int]:
        """Return the tags and the versions that they name, sorted by name."""
        _, batches = self._calls.get("tags")
        found = table_of(batches, TAGS_SCHEMA)
        return dict(zip(found.column("tag").to_pylist(), found.column("version").to_pylist(), strict=True))

    def leases(self) -> pa.Table:
        """List unexpired leases, oldest version first; see `Store.leases`.

        Raises
        ------
        AccessDeniedError
            If the token does not allow the namespace ``system``.
        """
        _, batches = self._calls.get("leases")
        return table_of(batches, LEASES_SCHEMA)

    def blame(self, table: str, column: str, row: int) -> Blame:
        """Find the commit that last wrote a row of a column; see `Store.blame`.

        Raises
        ------
        TableNotFoundError, ColumnNotFoundError, RowOutOfRangeError
        AccessDeniedError
            If the token does not allow the namespace of the table.
        """
        column, row = as_str(column, "the name of a column"), as_int(row, "row", least=0, most=MOST_NUMBER)
        told = self._calls.request("blame", column=column, row=row, **_named(table))
        deleted = told.get("deleted_by")
        return _blame_of(told, None if deleted is None else _blame_of(deleted))


def _blame_of(told: Any, deleted_by: Blame | None = None) -> Blame:
    if not isinstance(told, dict):
        raise DamageError("Cannot use the answer of the service: it does not name who deleted the row.")
    operation, writer, exact = told.get("operation"), told.get("writer"), told.get("exact")
    if not (isinstance(operation, str | None) and isinstance(writer, str | None) and isinstance(exact, bool)):
        raise DamageError("Cannot use the answer of the service: it does not name who wrote the row.")
    when = as_datetime(_whole(told, "timestamp_us"))
    return Blame(_whole(told, "version"), when, operation, writer, exact, deleted_by)


def _named(table: str) -> dict[str, str]:
    namespace, name = split_name(table)
    return {"db": namespace or "default", "table": name}


def _whole(header: dict[str, Any], name: str) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise DamageError(f"Cannot use the answer of the service: {name!r} is no whole number.")
    return value
