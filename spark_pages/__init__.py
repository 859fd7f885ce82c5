"""spark_pages: exact rows out of column pages in object storage, as of any version.

Start with `create` or `open`, which give a `Store`; `docs/` explains the rest. What is listed in
`__all__` is the public surface. Everything is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_pages.catalog.types import typed as typed
    from spark_pages.errors import AccessDeniedError as AccessDeniedError
    from spark_pages.errors import AlreadyExistsError as AlreadyExistsError
    from spark_pages.errors import ColumnNotFoundError as ColumnNotFoundError
    from spark_pages.errors import ColumnUnavailableError as ColumnUnavailableError
    from spark_pages.errors import CommitConflictError as CommitConflictError
    from spark_pages.errors import CommitError as CommitError
    from spark_pages.errors import CommitUnknownError as CommitUnknownError
    from spark_pages.errors import ConstraintError as ConstraintError
    from spark_pages.errors import DamageError as DamageError
    from spark_pages.errors import InternalError as InternalError
    from spark_pages.errors import InvalidInputError as InvalidInputError
    from spark_pages.errors import InvalidKeyError as InvalidKeyError
    from spark_pages.errors import MissingDependencyError as MissingDependencyError
    from spark_pages.errors import NamespaceNotFoundError as NamespaceNotFoundError
    from spark_pages.errors import NotFoundError as NotFoundError
    from spark_pages.errors import ObjectNotFoundError as ObjectNotFoundError
    from spark_pages.errors import PageNotFoundError as PageNotFoundError
    from spark_pages.errors import RaggedTableError as RaggedTableError
    from spark_pages.errors import RowDeletedError as RowDeletedError
    from spark_pages.errors import RowOutOfRangeError as RowOutOfRangeError
    from spark_pages.errors import SchemaMismatchError as SchemaMismatchError
    from spark_pages.errors import SnapshotExpiredError as SnapshotExpiredError
    from spark_pages.errors import SparkFailedError as SparkFailedError
    from spark_pages.errors import SparkPagesError as SparkPagesError
    from spark_pages.errors import StorageError as StorageError
    from spark_pages.errors import StoreExistsError as StoreExistsError
    from spark_pages.errors import StoreNotFoundError as StoreNotFoundError
    from spark_pages.errors import StoreReplacedError as StoreReplacedError
    from spark_pages.errors import TableExistsError as TableExistsError
    from spark_pages.errors import TableNotFoundError as TableNotFoundError
    from spark_pages.errors import UnsupportedFormatError as UnsupportedFormatError
    from spark_pages.errors import VersionNotFoundError as VersionNotFoundError
    from spark_pages.io import CacheStats as CacheStats
    from spark_pages.io import ReadTrace as ReadTrace
    from spark_pages.maintenance.erase.report import ErasureReport as ErasureReport
    from spark_pages.model.page import PageStats as PageStats
    from spark_pages.model.page import PendingPage as PendingPage
    from spark_pages.query.directory import PageDirectory as PageDirectory
    from spark_pages.query.snapshot import Snapshot as Snapshot
    from spark_pages.query.table import Table as Table
    from spark_pages.service.remote_store import StoreClient as StoreClient
    from spark_pages.service.remote_store import connect as connect
    from spark_pages.sql.expression import Expr as Expr
    from spark_pages.sql.expression import expr as expr
    from spark_pages.store import CacheConfig as CacheConfig
    from spark_pages.store import Store as Store
    from spark_pages.store import create as create
    from spark_pages.store import open as open
    from spark_pages.transaction.transaction import Transaction as Transaction

__version__ = "0.1.0"

_ERRORS = (
    "AccessDeniedError",
    "AlreadyExistsError",
    "ColumnNotFoundError",
    "ColumnUnavailableError",
    "CommitConflictError",
    "CommitError",
    "CommitUnknownError",
    "ConstraintError",
    "DamageError",
    "InternalError",
    "InvalidInputError",
    "InvalidKeyError",
    "MissingDependencyError",
    "NamespaceNotFoundError",
    "NotFoundError",
    "ObjectNotFoundError",
    "PageNotFoundError",
    "RaggedTableError",
    "RowDeletedError",
    "RowOutOfRangeError",
    "SchemaMismatchError",
    "SnapshotExpiredError",
    "SparkFailedError",
    "SparkPagesError",
    "StorageError",
    "StoreExistsError",
    "StoreNotFoundError",
    "StoreReplacedError",
    "TableExistsError",
    "TableNotFoundError",
    "UnsupportedFormatError",
    "VersionNotFoundError",
)

_HOMES = {
    **dict.fromkeys(_ERRORS, "spark_pages.errors"),
    "CacheConfig": "spark_pages.store",
    "CacheStats": "spark_pages.io",
    "Expr": "spark_pages.sql.expression",
    "ErasureReport": "spark_pages.maintenance.erase.report",
    "PageDirectory": "spark_pages.query.directory",
    "PageStats": "spark_pages.model.page",
    "PendingPage": "spark_pages.model.page",
    "ReadTrace": "spark_pages.io",
    "Snapshot": "spark_pages.query.snapshot",
    "Store": "spark_pages.store",
    "StoreClient": "spark_pages.service.remote_store",
    "Table": "spark_pages.query.table",
    "Transaction": "spark_pages.transaction.transaction",
    "connect": "spark_pages.service.remote_store",
    "create": "spark_pages.store",
    "expr": "spark_pages.sql.expression",
    "open": "spark_pages.store",
    "typed": "spark_pages.catalog.types",
}

__all__ = [*sorted(_HOMES), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'spark_pages' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
