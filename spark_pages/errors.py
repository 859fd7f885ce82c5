"""Every error that spark_pages raises on purpose, in one tree.

A class exists only where a caller would act differently::

    SparkPagesError
    ├── NotFoundError                    ask for something else
    │   ├── StoreNotFoundError           no store at this address: create it
    │   ├── ObjectNotFoundError          no object under this key
    │   ├── NamespaceNotFoundError       no such namespace in this version
    │   ├── TableNotFoundError           no such table in this version; also a KeyError
    │   ├── ColumnNotFoundError          no such column in this table; also a KeyError
    │   ├── PageNotFoundError            no page of this id in this version
    │   └── VersionNotFoundError         no such version; names the readable range
    │       └── SnapshotExpiredError     it was there, and has been cleaned away
    ├── ColumnUnavailableError           this process cannot construct its type: read the other columns
    ├── AlreadyExistsError               choose another name
    │   ├── StoreExistsError
    │   └── TableExistsError
    ├── InvalidInputError                mend the call; also a ValueError
    │   ├── InvalidKeyError              not a key of the grammar [a-z0-9._/-]
    │   ├── RowOutOfRangeError           also an IndexError
    │   ├── RowDeletedError              its row is gone: skip it; also a LookupError
    │   ├── SchemaMismatchError
    │   ├── RaggedTableError             columns of an aligned table differ in length
    │   └── ConstraintError              rows break a rule of their table: leave them out, or mend them
    ├── CommitError                      the commit did not (surely) happen
    │   ├── CommitConflictError          read again, then retry
    │   └── CommitUnknownError           may have happened: resume, delete nothing
    ├── DamageError                      stop: the bytes are not what they must be
    │   └── UnsupportedFormatError       stop: written by a newer release
    ├── StoreReplacedError               another store is, or has written, at this address: open it again
    ├── AccessDeniedError                the service wants another token
    ├── StorageError                     storage, or the service, failed: later may be better
    ├── SparkFailedError                 Spark, or what it runs on, failed: mend what it names, call again
    ├── MissingDependencyError           install the extra that it names
    └── InternalError                    our bug: please report it

A message says what was attempted, on which object, what was expected, what was found and what to
do next. All of them survive pickling, because they cross to Spark workers.
"""

from __future__ import annotations

from typing import Any

from spark_pages.printable import escape_controls


class SparkPagesError(Exception):
    """Something that spark_pages refused or could not do.

    Parameters
    ----------
    message
        What was attempted, on which object, and what was found. Control characters are escaped, because
        messages end on terminals.
    hint
        What to do next; shown behind the message, and escaped likewise.
    **context
        Plain values for programs: versions, keys, names. Never a secret.
    """

    def __init__(self, message: str, *, hint: str | None = None, **context: Any) -> None:
        self.message = escape_controls(message)
        self.hint = None if hint is None else escape_controls(hint)
        super().__init__(self.message)
        self.context = context

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        end = "" if self.message.endswith((".", "…", "?", "!")) else "."  # of a reason in another's words
        return f"{self.message}{end} {self.hint}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.context))


def _rebuild(
    cls: type[SparkPagesError], message: str, hint: str | None, context: dict[str, Any]
) -> SparkPagesError:
    return cls(message, hint=hint, **context)


class NotFoundError(SparkPagesError):
    """What was asked for is not there."""


class StoreNotFoundError(NotFoundError):
    """There is no store at this address."""


class ObjectNotFoundError(NotFoundError):
    """There is no object under this key."""


class NamespaceNotFoundError(NotFoundError):
    """The version that is read has no such namespace."""


class TableNotFoundError(NotFoundError, KeyError):
    """The version that is read has no such table."""


class ColumnNotFoundError(NotFoundError, KeyError):
    """The table has no such column."""


class PageNotFoundError(NotFoundError):
    """The version that is read has no page of this id."""


class VersionNotFoundError(NotFoundError):
    """The store has no such version; the message names the readable range."""


class SnapshotExpiredError(VersionNotFoundError):
    """The version was there and has been cleaned away by retention."""


class ColumnUnavailableError(SparkPagesError):
    """This process cannot construct the type of a column; other columns can be read."""


class AlreadyExistsError(SparkPagesError):
    """The name is taken."""


class StoreExistsError(AlreadyExistsError):
    """There is a store at this address already."""


class TableExistsError(AlreadyExistsError):
    """The namespace has a table of this name already."""


class InvalidInputError(SparkPagesError, ValueError):
    """The call itself is wrong."""


class InvalidKeyError(InvalidInputError):
    """A key leaves the root or does not follow the grammar of keys."""


class RowOutOfRangeError(InvalidInputError, IndexError):
    """A row number lies outside the column or table."""


class RowDeletedError(InvalidInputError, LookupError):
    """A row was deleted."""


class SchemaMismatchError(InvalidInputError):
    """The data does not fit the schema of its table."""


class RaggedTableError(InvalidInputError):
    """The columns of an aligned table would hold different numbers of rows."""


class ConstraintError(InvalidInputError):
    """Rows break a rule that their table has."""


class CommitError(SparkPagesError):
    """A commit did not happen, or is not known to have happened."""


class CommitConflictError(CommitError):
    """Another commit changed what this transaction read or replaces; nothing was committed."""


class CommitUnknownError(CommitError):
    """The outcome is not known; ``context`` holds what is needed to resume, and nothing was deleted."""


class DamageError(SparkPagesError):
    """The bytes of an object are not the ones that were written."""


class StoreReplacedError(SparkPagesError):
    """The log at this address is, or holds a commit of, another store than the one that was opened."""


class UnsupportedFormatError(DamageError):
    """The object needs a format version or feature that this release does not have."""


class AccessDeniedError(SparkPagesError):
    """The token of a call is missing, not valid any more, or does not allow what was asked."""


class StorageError(SparkPagesError):
    """The storage, or the service in front of it, failed; the same call may succeed later."""


class SparkFailedError(SparkPagesError):
    """Spark, or what it runs on, failed; its own account is the cause of this error."""


class MissingDependencyError(SparkPagesError):
    """An optional package is not installed."""


class InternalError(SparkPagesError):
    """A state that must not occur: a bug of spark_pages."""
