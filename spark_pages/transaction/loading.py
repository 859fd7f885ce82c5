"""Loading data into a table in one call and one commit: the verbs `Store.append` and `Store.write`."""

from __future__ import annotations

from typing import Any, Literal, Protocol, get_args

from spark_pages.arguments import as_flag, as_str, shortened
from spark_pages.boundary import guarded
from spark_pages.errors import InvalidInputError, TableExistsError, TableNotFoundError
from spark_pages.transaction.row_sources import as_rows
from spark_pages.transaction.transaction import Transaction

Mode = Literal["append", "overwrite", "error", "ignore"]
_MODES = get_args(Mode)


class _Begins(Protocol):
    def transaction(self, operation: str | None = None) -> Transaction: ...


@guarded()
class LoadVerbs:
    """Verbs of a store that load data in one commit."""

    def append(self: _Begins, table: str, data: Any, create: bool = False) -> int:
        """Append rows to a table.

        Parameters
        ----------
        table
            Name of the table.
        data
            Arrow data, a pyarrow dataset, a Polars frame (also lazy) or pandas frame, a DuckDB relation,
            batches, a dict of columns, a list of dicts or dataclasses, a structured NumPy array, or the path,
            folder or glob of Parquet, CSV, JSON lines, Arrow IPC or ORC files.
        create
            Whether to create the table from the schema of the data where there is none.

        Returns
        -------
        int
            The version that holds the rows.

        Raises
        ------
        TableNotFoundError
            If there is no such table and `create` is false.
        SchemaMismatchError
            If a column is unknown, missing though not nullable, or of a type that does not fit.

        Notes
        -----
        One commit. Streams and files are read piece by piece. If the call fails, nothing is changed.
        """
        return _load(self, table, data, "append", as_flag(create, "create"))

    def write(self: _Begins, table: str, data: Any, mode: Mode = "append", create: bool = True) -> int:
        """Write rows to a table, which is created from the schema of the data where there is none.

        Parameters
        ----------
        table, data
            See `append`.
        mode
            What to do where the table exists: ``"append"`` the rows, ``"overwrite"`` all rows, raise an
            ``"error"``, or ``"ignore"`` the call. An overwrite keeps the id, columns, properties and key of
            the table, and rows that others append meanwhile; see `Transaction.overwrite`.
        create
            Whether to create the table where there is none.

        Returns
        -------
        int
            The version that holds the rows.

        Raises
        ------
        TableExistsError
            If `mode` is ``"error"`` and the table exists.
        TableNotFoundError, SchemaMismatchError
            As `append`.
        InvalidInputError
            If `mode` is unknown, or ``"overwrite"`` for a table that is not aligned.
        """
        if not isinstance(mode, str) or mode not in _MODES:
            raise InvalidInputError(
                f"Cannot write to table {shortened(table)}: mode {shortened(mode)} is not known.",
                hint=f"Use one of {', '.join(map(repr, _MODES))}.",
            )
        return _load(self, table, data, mode, as_flag(create, "create"))


def _load(store: _Begins, table: str, data: Any, mode: str, create: bool) -> int:
    name = as_str(table, "The name of a table")
    with store.transaction("overwrite" if mode == "overwrite" else "append") as txn:
        # An append to a table that is known takes no request, so it is not looked up first.
        exists = (mode == "append" and not create) or _exists(txn, name)
        if exists and mode == "error":
            raise TableExistsError(
                f"Cannot write to table {name!r}: it exists.", hint='Use mode="append" to add rows to it.'
            )
        if not (exists and mode == "ignore"):
            rows = as_rows(data)
            if not exists and create:
                txn.create_table(name, rows.schema)
            if exists and mode == "overwrite":
                txn.overwrite(name, rows)
            else:
                txn.append(name, rows)
    assert txn.version is not None  # the block has committed
    return int(txn.version)


def _exists(txn: Transaction, name: str) -> bool:
    try:
        txn.table(name)
    except TableNotFoundError:
        return False
    return True
